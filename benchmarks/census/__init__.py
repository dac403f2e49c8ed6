"""The 2020 Census, recomputed from its published allocations: ``python -m benchmarks.census``."""
