"""Every accountant that installs, asked the same questions."""
