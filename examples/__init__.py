"""Worked examples: scripts, some of which others import."""
