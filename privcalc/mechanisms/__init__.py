"""One file per mechanism."""
