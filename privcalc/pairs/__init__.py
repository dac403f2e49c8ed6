"""What one use leaks: ordered pairs (P, Q) of output distributions."""
