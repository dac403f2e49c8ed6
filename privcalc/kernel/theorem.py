"""A theorem about one run, as a file for Coq: what was computed is computed again there, and the theorem applied."""

from __future__ import annotations

import math
from fractions import Fraction

from privcalc.kernel import curve
from privcalc.kernel.run import Composed

BEGINS = """(* {said}
   Proved here: the composition. Assumed of each step, as a hypothesis: the table of its divergences at powers of x.
   Check: coqc Pairs.v && coqc Curves.v && coqc this file, all in one folder. *)
Require Import Reals List ZArith Permutation Pairs Curves.
Import ListNotations.
Open Scope Z_scope.

Definition s : settings := Settings {bits} {grid} {cut} (Z.to_nat {most}).
Lemma bits_ge : 0 <= bits s. Proof. easy. Qed.
Lemma grid_ge : 0 <= grid s <= bits s. Proof. easy. Qed.
"""

EACH = """
Definition {name}_first : entry := {first}.
Definition {name}_others : list entry := [{others}].

Lemma {name}_checked : certified s {name}_first {name}_others (Z.to_nat {n}) {epsilon} {delta} = true.
Proof. vm_compute. reflexivity. Qed.

Theorem {name} : forall order mech,
  Permutation order (steps ({name}_first :: {name}_others)) ->
  (forall history, nonneg (mech history)) ->
  (forall history t, nth_error order (length history) = Some t -> tabled s (fst t) (snd t) (mech history)) ->
  forall event, let all := joint (length order) mech [] in
    (chance fst event all
      <= exp (IZR {epsilon} / IZR (one s)) * chance snd event all + IZR {delta} / IZR (one s))%R.
Proof.
  exact (fun order mech => private s bits_ge grid_ge {name}_first {name}_others (Z.to_nat {n}) {epsilon} {delta}
    order mech {name}_checked).
Qed.
"""


def theorem(found: Composed, delta: float, *, said: str = "") -> str:
    """The text of a file in which Coq proves δ(ε) ≤ δ for a removed and for an added record.

    Args:
        found: a run that was composed; some hundred masses take Coq a minute.
        delta: δ.
        said: what the run is, for its first comment.

    Raises:
        ValueError: if no ε is proved at δ.
    """
    epsilon, s = found.epsilon(delta), found.settings
    if epsilon == math.inf:
        raise ValueError(f"delta = {delta!r}: no epsilon is proved at it")
    unit = 1 << s.bits
    text = BEGINS.format(
        said=said.replace("(*", "( *").replace("*)", "* )"), bits=s.bits, grid=s.grid, cut=s.cut, most=s.most
    )
    for name, c, entries in zip(("removed", "added"), found.curves, found.entries, strict=True):
        first, *others = (
            f"(({low}, [{'; '.join(map(str, table))}]), {count}%positive)" for low, table, count in entries
        )
        n = found.power(c, delta)
        assert n is not None
        text += EACH.format(
            name=name,
            first=first,
            others="; ".join(others),
            n=n,
            epsilon=int(Fraction(epsilon) * unit),
            delta=curve.delta(s, c, n),
        )
    return text
