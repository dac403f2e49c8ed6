"""Claims that were published, each parameter with its source; ``python -m benchmarks.claims`` recomputes them."""
