"""The version, which certificates quote."""

__version__ = "0.1.0"
