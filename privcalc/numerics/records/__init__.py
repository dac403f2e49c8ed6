"""The realised ε of many records at once."""
