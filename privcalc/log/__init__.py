"""Append-only logs of JSON entries: their lines, and what keeps them, a file (or memory), SQLite or PostgreSQL."""
