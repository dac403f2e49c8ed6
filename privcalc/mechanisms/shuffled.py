"""Epochs over a shuffled data set."""

from __future__ import annotations

from dataclasses import dataclass

from privcalc import errors
from privcalc.mechanisms.sampled import Batched, Claimed, Command, check_unsampled
from privcalc.pairs.dominating import Pairs
from privcalc.relation import ADD_OR_REMOVE_ONE, Relation
from privcalc.run import Mechanism

__all__ = ["ShuffledEpoch"]


@dataclass(frozen=True)
class ShuffledEpoch(Batched):
    """One pass over disjoint batches of the shuffled data set; the mechanism runs once on each.

    Repeat it for more epochs.

    This is what most training loops do. Each record takes part in exactly one release per epoch, and that is all that
    is used: shuffling is given no credit, however many batches there are. It is exact for an epoch of a single batch,
    and where it is known which batch a record is in. Poisson sampling of the same size buys much more:

        >>> import privcalc as pc
        >>> noise = pc.Gaussian(noise_multiplier=1.0)  # 10 epochs of 100 batches
        >>> print(f"{(ShuffledEpoch(noise) * 10).epsilon(delta=1e-5, relation=pc.ZERO_OUT):.6f}")
        17.856587
        >>> print(f"{(pc.PoissonSampled(noise, rate=0.01) * 1000).epsilon(delta=1e-5, relation=pc.ZERO_OUT):.6f}")
        1.828237

    Refused under add-or-remove-one: a record more moves others from batch to batch, so that many releases change. Under
    zero-out, the usual substitute, the nulled record keeps its place.

    Args:
        mechanism: what runs on each batch; it is not told how many records a batch has, so nothing depends on that.

    Raises:
        PrivcalcError: if the mechanism is itself sampled or a run.
    """

    kind = "ShuffledEpoch"
    page = "fixed_size.md"
    draws = None
    scheme = "shuffled"
    command = Command(
        "shuffled",
        "each record in one batch of an epoch, which a shuffled data set was cut into",
        counted=("epoch", ""),
    )
    claim = Claimed(
        "shuffled", "each epoch cut into batches; nothing is known from below", counted="epochs", below=False
    )

    mechanism: Mechanism

    def __post_init__(self) -> None:
        check_unsampled(self.mechanism)

    def pairs(self, relation: Relation) -> Pairs:
        """The mechanism's own (``proofs/parallel.md``, §2)."""
        if relation is ADD_OR_REMOVE_ONE:
            raise errors.PrivcalcError(
                f"relation = {relation}: ShuffledEpoch has no guarantee under it, because a record more moves others "
                "from batch to batch; ask under privcalc.ZERO_OUT or privcalc.REPLACE_ONE"
            )
        return self.mechanism.pairs(relation)
