"""From pairs and counts to a certified bound."""
