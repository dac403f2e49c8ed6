(** Finite pairs of measures, their hockey-stick divergences, and adaptive composition.

    The idea: [stick u v a] is the sum of max(u p - v q, 0) over the outcomes of a pair. A pair dominates another where it is
    at least as large for all u, v >= 0. Products keep domination, and an adaptive composition is at most a product. *)

Require Import Reals Lra List ZArith Lia Permutation.
Import ListNotations.
Open Scope R_scope.

(** The masses (p, q) of each outcome, under two neighbouring data sets. *)
Definition pair := list (R * R).

Definition pos (x : R) : R := Rmax x 0.

Fixpoint stick (u v : R) (a : pair) : R :=
  match a with
  | [] => 0
  | (p, q) :: rest => pos (u * p - v * q) + stick u v rest
  end.

Definition nonneg (a : pair) : Prop := Forall (fun m => 0 <= fst m /\ 0 <= snd m) a.

(** Domination: for every u, v >= 0. With u = 1 and v = e^eps this is delta(eps). *)
Definition below (a b : pair) : Prop := forall u v, 0 <= u -> 0 <= v -> stick u v a <= stick u v b.

Definition scale (m n : R * R) : R * R := (fst m * fst n, snd m * snd n).

Definition prod (a b : pair) : pair := flat_map (fun m => map (scale m) b) a.

Arguments prod : simpl never.

Definition unit : pair := [(1, 1)].

Definition prods (l : list pair) : pair := fold_right prod unit l.

Lemma prod_nil : forall b, prod [] b = [].
Proof. reflexivity. Qed.

Lemma prod_cons : forall m a b, prod (m :: a) b = map (scale m) b ++ prod a b.
Proof. reflexivity. Qed.

Lemma pos_nonneg : forall x, 0 <= pos x.
Proof. intros; unfold pos; apply Rmax_r. Qed.

Lemma pos_le : forall x y, x <= y -> pos x <= pos y.
Proof. intros; unfold pos; apply Rle_max_compat_r; assumption. Qed.

Lemma pos_of_nonneg : forall x, 0 <= x -> pos x = x.
Proof. intros; unfold pos; apply Rmax_left; lra. Qed.

Lemma pos_of_nonpos : forall x, x <= 0 -> pos x = 0.
Proof. intros; unfold pos; apply Rmax_right; lra. Qed.

Lemma pos_scale : forall c x, 0 <= c -> pos (c * x) = c * pos x.
Proof.
  intros c x Hc. destruct (Rle_dec 0 x) as [H | H].
  - rewrite !pos_of_nonneg; nra.
  - rewrite !pos_of_nonpos; nra.
Qed.

Lemma stick_nonneg : forall u v a, 0 <= stick u v a.
Proof.
  induction a as [| [p q] a IH]; simpl; [lra |].
  pose proof (pos_nonneg (u * p - v * q)); lra.
Qed.

Lemma stick_app : forall u v a b, stick u v (a ++ b) = stick u v a + stick u v b.
Proof. induction a as [| [p q] a IH]; intros; simpl; [lra |]. rewrite IH; lra. Qed.

Lemma stick_scaled : forall u v m b, stick u v (map (scale m) b) = stick (u * fst m) (v * snd m) b.
Proof.
  induction b as [| [p q] b IH]; simpl; [reflexivity |].
  rewrite IH. f_equal. f_equal. unfold scale; simpl; ring.
Qed.

Lemma stick_prod : forall u v a b, stick u v (prod (a) b) =
  fold_right (fun m s => stick (u * fst m) (v * snd m) b + s) 0 a.
Proof.
  induction a as [| m a IH]; intros; [reflexivity |].
  rewrite prod_cons, stick_app, stick_scaled, IH. reflexivity.
Qed.

Lemma below_refl : forall a, below a a.
Proof. intros a u v _ _; lra. Qed.

Lemma below_trans : forall a b c, below a b -> below b c -> below a c.
Proof. intros a b c H K u v Hu Hv. specialize (H u v Hu Hv). specialize (K u v Hu Hv). lra. Qed.

Lemma scale_nonneg : forall m b, 0 <= fst m -> 0 <= snd m -> nonneg b -> nonneg (map (scale m) b).
Proof.
  intros m b H K Hb. apply Forall_forall. intros n Hn. apply in_map_iff in Hn. destruct Hn as [o [<- Ho]].
  unfold nonneg in Hb. rewrite Forall_forall in Hb. specialize (Hb o Ho). unfold scale; simpl; split; nra.
Qed.

Lemma prod_nonneg : forall a b, nonneg a -> nonneg b -> nonneg (prod a b).
Proof.
  induction a as [| m a IH]; intros b Ha Hb; [constructor |].
  inversion Ha; subst. rewrite prod_cons. apply Forall_app. split; [apply scale_nonneg; tauto | apply IH; assumption].
Qed.

(** The second factor may grow. *)
Lemma prod_below_right : forall a b c, nonneg a -> below b c -> below (prod a b) (prod a c).
Proof.
  intros a b c Ha H u v Hu Hv. rewrite !stick_prod.
  induction a as [| m a IH]; simpl; [lra |].
  inversion Ha as [| x l [Hp Hq] Hrest]; subst. specialize (IH Hrest).
  assert (stick (u * fst m) (v * snd m) b <= stick (u * fst m) (v * snd m) c) by (apply H; nra). lra.
Qed.

(** The order of factors does not matter to the divergence. *)
Lemma prod_comm : forall u v a b, stick u v (prod a b) = stick u v (prod b a).
Proof.
  intros u v a b. revert a. induction b as [| n b IH]; intros a.
  - induction a as [| m a IHa]; [reflexivity |]. rewrite prod_cons. exact IHa.
  - rewrite prod_cons, stick_app, <- (IH a), stick_scaled.
    clear IH. induction a as [| m a IHa]; [unfold prod; simpl; lra |].
    rewrite !prod_cons, !stick_app, IHa. simpl map. simpl stick. rewrite !stick_scaled.
    destruct m as [p q]; destruct n as [p' q']; unfold scale; simpl.
    replace (pos (u * (p * p') - v * (q * q'))) with (pos (u * p' * p - v * q' * q)) by (f_equal; ring). lra.
Qed.

Lemma prod_below_left : forall a b c, nonneg c -> below a b -> below (prod a c) (prod b c).
Proof.
  intros a b c Hc H u v Hu Hv. rewrite (prod_comm u v a c), (prod_comm u v b c).
  apply prod_below_right; assumption.
Qed.

Lemma scale_assoc : forall m n o, scale (scale m n) o = scale m (scale n o).
Proof. intros [a b] [c d] [e f]; unfold scale; simpl; f_equal; ring. Qed.

Lemma map_scale_prod : forall m b c, map (scale m) (prod b c) = prod (map (scale m) b) c.
Proof.
  induction b as [| n b IH]; intros; [reflexivity |].
  simpl map. rewrite !prod_cons, map_app, map_map, IH. f_equal.
  apply map_ext. intros o. symmetry. apply scale_assoc.
Qed.

Lemma prod_assoc : forall a b c, prod (prod a b) c = prod a (prod b c).
Proof.
  induction a as [| m a IH]; intros; [reflexivity |].
  rewrite !prod_cons, map_scale_prod, <- IH. unfold prod. apply flat_map_app.
Qed.

Lemma prod_unit : forall a, prod unit a = a.
Proof.
  intros. unfold unit. rewrite prod_cons, prod_nil, app_nil_r. rewrite <- (map_id a) at 2. apply map_ext.
  intros [p q]. unfold scale; simpl; f_equal; ring.
Qed.

Lemma prods_app : forall l k, prods (l ++ k) = prod (prods l) (prods k).
Proof.
  induction l as [| a l IH]; intros; simpl.
  - symmetry. apply prod_unit.
  - rewrite IH, prod_assoc. reflexivity.
Qed.

Lemma prods_nonneg : forall l, Forall nonneg l -> nonneg (prods l).
Proof.
  induction 1; simpl; [constructor; simpl; [lra | constructor] | apply prod_nonneg; assumption].
Qed.

Lemma prods_permutation : forall l k, Permutation l k -> Forall nonneg l ->
  forall u v, 0 <= u -> 0 <= v -> stick u v (prods l) = stick u v (prods k).
Proof.
  intros l k H. induction H as [| a l k H IH | a b l | l k j H IH K IK]; intros Hl u v Hu Hv.
  - reflexivity.
  - inversion Hl as [| x y Ha Hrest]; subst. simpl. rewrite !stick_prod.
    clear Hl. induction a as [| m a IHa]; simpl; [reflexivity |].
    inversion Ha as [| x y [Hp Hq] Hm]; subst. rewrite (IHa Hm). f_equal. apply IH; try assumption; nra.
  - simpl. rewrite <- !prod_assoc. rewrite !(stick_prod u v (prod _ _)).
    rewrite <- (stick_prod u v (prod b a)), <- (stick_prod u v (prod a b)).
    rewrite (prod_comm u v (prod b a)), (prod_comm u v (prod a b)).
    rewrite !stick_prod. assert (Hn : nonneg (prods l)) by (inversion Hl as [| x y Hx Hy]; inversion Hy; subst; apply prods_nonneg; assumption).
    clear - Hu Hv Hn. induction (prods l) as [| m c IHc]; simpl; [reflexivity |].
    inversion Hn; subst. rewrite IHc by assumption. f_equal. apply prod_comm.
  - rewrite IH by assumption. apply IK; try assumption. apply (Permutation_Forall H); assumption.
Qed.

(** ** Adaptive composition *)

(** What a step does may depend on all outcomes so far, a list of numbers, the last one first; which table it keeps to, not. *)
Definition mechanism := list nat -> pair.

(** The pairs of masses of all transcripts of [n] more steps. *)
Fixpoint weave (i : nat) (a : pair) (next : nat -> list (list nat * (R * R))) : list (list nat * (R * R)) :=
  match a with
  | [] => []
  | m :: rest => map (fun o => (fst o, scale m (snd o))) (next i) ++ weave (S i) rest next
  end.

Fixpoint joint (n : nat) (mech : mechanism) (history : list nat) : list (list nat * (R * R)) :=
  match n with
  | O => [(history, (1, 1))]
  | S k => weave 0 (mech history) (fun i => joint k mech (i :: history))
  end.

Lemma weave_below : forall a next b i u v, nonneg a -> 0 <= u -> 0 <= v ->
  (forall j, below (map snd (next j)) b) -> stick u v (map snd (weave i a next)) <= stick u v (prod a b).
Proof.
  induction a as [| m a IH]; intros next b i u v Ha Hu Hv H; simpl; [lra |].
  inversion Ha as [| x y [Hp Hq] Hrest]; subst.
  rewrite prod_cons, map_app, !stick_app, map_map. simpl.
  rewrite <- (map_map snd (scale m)), !stick_scaled.
  apply Rplus_le_compat; [apply H; nra | apply IH; assumption].
Qed.

(** If each step, whatever came before, is dominated by a pair for its place, all are by the product. *)
Theorem composition : forall doms mech history,
  Forall nonneg doms ->
  (forall h, nonneg (mech h)) ->
  (forall h i, length h = (length history + i)%nat -> (i < length doms)%nat -> below (mech h) (nth i doms unit)) ->
  below (map snd (joint (length doms) mech history)) (prods doms).
Proof.
  induction doms as [| d doms IH]; intros mech history Hd Hn H; simpl; [apply below_refl |].
  inversion Hd as [| x y Hhead Hrest]; subst.
  intros u v Hu Hv.
  apply Rle_trans with (stick u v (prod (mech history) (prods doms))).
  - apply weave_below; try assumption; [apply Hn |].
    intros j. apply IH; try assumption.
    intros h i Hl Hi. apply (H h (S i)); simpl in *; lia.
  - apply prod_below_left; try assumption; [apply prods_nonneg; assumption |].
    apply (H history O); simpl; lia.
Qed.

(** ** Events *)

Definition chance (side : R * R -> R) (event : list nat -> bool) (all : list (list nat * (R * R))) : R :=
  fold_right (fun o s => (if event (fst o) then side (snd o) else 0) + s) 0 all.

Lemma event_bound : forall event all v,
  chance fst event all <= v * chance snd event all + stick 1 v (map snd all).
Proof.
  induction all as [| [t [p q]] all IH]; intros v; simpl; [lra |].
  specialize (IH v). pose proof (pos_nonneg (1 * p - v * q)) as H.
  assert (K : 1 * p - v * q <= pos (1 * p - v * q)) by (unfold pos; apply Rmax_l).
  unfold chance in *. destruct (event t); lra.
Qed.
