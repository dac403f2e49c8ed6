"""A bound of ε in whole numbers: the algorithm whose theorem Coq checks (``proofs/formal``, ``proofs/kernel.md``).

It knows Gaussian noise, with Poisson sampling or without, under add-or-remove-one, and imports nothing but the standard
library. Others answer more tightly; this one is there so that a number can be traced to a proof that a machine checked.
"""

from privcalc.kernel.run import Composed, composed, read, said, theorem

__all__ = ["Composed", "composed", "read", "said", "theorem"]
