"""Planted bugs, by what is wrong."""
