"""Laws of every class, asked of its examples: a new one needs no strategy to be asked."""

from __future__ import annotations

import itertools

import pytest
from strategies import EXAMPLES, refuses

import privcalc as pc

DELTA = 1e-4
CASES = [
    pytest.param(one, relation, id=f"{one}, {relation}")
    for one, relation in itertools.product(EXAMPLES, pc.Relation)
    if not refuses(one, relation)
]


def at_most(a: pc.Enclosure, b: pc.Enclosure) -> None:
    """The true a does not exceed the true b."""
    assert 0 <= a.lower <= a.upper
    assert a.lower <= b.upper * (1 + 1e-12), f"{a!r} exceeds {b!r}"


@pytest.mark.parametrize(("one", "relation"), CASES)
def test_one_use_and_more(one: pc.Mechanism, relation: pc.Relation) -> None:
    found = one.epsilon(delta=DELTA, relation=relation)
    level = min(found.upper, 50.0)
    deltas = [one.delta(epsilon=share * level, relation=relation) for share in (0.0, 0.5, 1.0)]
    for low, high in itertools.pairwise(deltas):
        at_most(high, low)
    assert level < found.upper or deltas[-1].lower <= DELTA * (1 + 1e-9)
    at_most(found, (one * 2).epsilon(delta=DELTA, relation=relation))
    at_most(found, one.epsilon(delta=DELTA, relation=relation, group_size=2))


@pytest.mark.parametrize("one", EXAMPLES, ids=str)
def test_to_null_a_record_is_one_way_to_replace_it(one: pc.Mechanism) -> None:
    if not any(refuses(one, relation) for relation in (pc.ZERO_OUT, pc.REPLACE_ONE)):
        asked = (one.epsilon(delta=DELTA, relation=relation) for relation in (pc.ZERO_OUT, pc.REPLACE_ONE))
        at_most(*asked)


@pytest.mark.parametrize(("one", "relation"), CASES)
def test_a_sample_never_costs_more(one: pc.Mechanism, relation: pc.Relation) -> None:
    if one.sampled or one.nulled is None:
        with pytest.raises(pc.PrivcalcError, match=r"not itself sampled|is a whole run"):
            pc.PoissonSampled(one, 0.2)
    elif not one.pairs(relation).forward.moments_only:  # which are refused
        sampled = pc.PoissonSampled(one, 0.2).epsilon(delta=DELTA, relation=relation)
        at_most(sampled, one.epsilon(delta=DELTA, relation=relation))
