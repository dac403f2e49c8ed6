"""Data sets that install offline, and their features."""
