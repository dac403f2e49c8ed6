(* {said}
   Proved here: the composition. Assumed of each step, as a hypothesis: the table of its divergences at powers of x.
   Theorem removed: p with the record, q without. Theorem added: p without, q with.
   Check: coqc Pairs.v && coqc Curves.v && coqc this file, all in one folder. *)
Require Import Reals List ZArith Permutation Pairs Curves.
Import ListNotations.
Open Scope Z_scope.

Definition s : settings := Settings {bits} {grid} {cut} (Z.to_nat {most}).
Lemma bits_ge : 0 <= bits s. Proof. easy. Qed.
Lemma grid_ge : 0 <= grid s <= bits s. Proof. easy. Qed.
(* for each of removed and added *)
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
