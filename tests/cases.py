"""Printed values that several test files share."""

from __future__ import annotations

# Poisson-sampled Gaussians: rate, noise multiplier, steps, δ, ε to the printed digits (contour integral in 40-digit arithmetic,
# by an earlier, separate program).
PRINTED = [
    (0.01, 1.0, 1_000, 1e-5, "1.8282366665"),
    (0.01, 1.0, 10_000, 1e-5, "6.1877123900"),
    (0.001, 0.6, 100_000, 1e-6, "6.960843884"),
    (0.01, 10.0, 1_000, 1e-5, "0.09775338555"),
    (0.02, 2.0, 2_000, 1e-12, "3.418328336"),
    (0.01, 1.0, 2_000, 1e-20, "7.423223989"),
    (0.0001, 0.8, 1_000_000, 1e-8, "1.00176944007"),
    (0.01, 100.0, 10_000, 1e-6, "0.03368071481"),
]
