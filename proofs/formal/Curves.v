(** Curves of whole numbers, the algorithm that composes them, and what it bounds.

    A curve has masses w_k >= 0, in units of 2^-bits, of losses k ln x, and a leak. It stands for the pair with masses
    p = w_k, q = w_k x^-k, and (leak, 0). Every rounding is upward, so that what stands for the rest only grows. *)

Require Import Reals Lra Lia List ZArith Psatz Permutation.
From Bignums Require Import BigZ.
Require Import Pairs.
Import ListNotations.
Open Scope R_scope.

(** ** The algorithm: whole numbers only *)

Record settings := Settings { bits : Z; grid : Z; cut : Z; most : nat }.
Record curve := Curve { level : nat; low : Z; mass : list Z; leak : Z }.

Definition cdiv (a b : Z) : Z := (- (- a / b))%Z.
Definition one (s : settings) : Z := (2 ^ bits s)%Z.
Definition down (s : settings) (a : Z) : Z := Z.shiftr a (bits s).
Definition up (s : settings) (a : Z) : Z := (- down s (- a))%Z.

Definition total (l : list Z) : Z := fold_right Z.add 0%Z l.

Fixpoint add (a b : list Z) : list Z :=
  match a, b with
  | [], _ => b
  | _, [] => a
  | x :: a', y :: b' => (x + y)%Z :: add a' b'
  end.

Fixpoint conv (a b : list Z) : list Z :=
  match a with
  | [] => []
  | x :: a' => add (map (Z.mul x) b) (0%Z :: conv a' b)
  end.

(** The same with machine words, some hundred times as fast. *)
Fixpoint big_add (a b : list bigZ) : list bigZ :=
  match a, b with
  | [], _ => b
  | _, [] => a
  | x :: a', y :: b' => BigZ.add x y :: big_add a' b'
  end.

Fixpoint big_conv (a b : list bigZ) : list bigZ :=
  match a with
  | [] => []
  | x :: a' => big_add (map (BigZ.mul x) b) (BigZ.zero :: big_conv a' b)
  end.

Definition fast_conv (a b : list Z) : list Z :=
  map BigZ.to_Z (big_conv (map BigZ.of_Z a) (map BigZ.of_Z b)).

Lemma fast_conv_is : forall a b, fast_conv a b = conv a b.
Proof.
  assert (A : forall a b, map BigZ.to_Z (big_add a b) = add (map BigZ.to_Z a) (map BigZ.to_Z b)).
  { induction a as [| x a IH]; intros [| y b]; simpl; try reflexivity. rewrite BigZ.spec_add, IH. reflexivity. }
  intros a b. unfold fast_conv. induction a as [| x a IH]; [reflexivity |].
  simpl map at 2. cbn [big_conv conv]. rewrite A. cbn [map]. rewrite IH, !map_map. f_equal.
  apply map_ext. intros y. rewrite BigZ.spec_mul, !BigZ.spec_of_Z. reflexivity.
Qed.

(** x at a level: (1 + 2^-grid)^(2^level), between two whole numbers of units. *)
Fixpoint base (s : settings) (n : nat) : Z * Z :=
  match n with
  | O => let x := (one s + one s / 2 ^ grid s)%Z in (x, (x + 1)%Z)
  | S n' => let b := base s n' in (down s (fst b * fst b), up s (snd b * snd b))
  end.

Definition multiply (s : settings) (a b : curve) : curve :=
  Curve (level a) (low a + low b) (map (up s) (fast_conv (mass a) (mass b)))
    (up s (leak a * (leak b + total (mass b)) + total (mass a) * leak b)).

Fixpoint trim_low (most_of_it acc k : Z) (l : list Z) : Z * list Z :=
  match l with
  | [] => (k, [acc])
  | w :: rest =>
      match rest with
      | [] => (k, [(acc + w)%Z])
      | _ => if (acc + w <=? most_of_it)%Z then trim_low most_of_it (acc + w) (k + 1) rest
             else (k, (acc + w)%Z :: rest)
      end
  end.

Fixpoint trim_high (most_of_it acc : Z) (r : list Z) : Z * list Z :=
  match r with
  | w :: rest => if (acc + w <=? most_of_it)%Z then trim_high most_of_it (acc + w) rest else (acc, r)
  | [] => (acc, [])
  end.

Definition trim (s : settings) (c : curve) : curve :=
  let h := trim_high (cut s) 0 (rev (mass c)) in
  let l := trim_low (cut s) 0 (low c) (rev (snd h)) in
  Curve (level c) (fst l) (snd l) (leak c + fst h).

Fixpoint spread (s : settings) (least largest carry : Z) (l : list Z) : list Z :=
  match l with
  | [] => [carry]
  | e :: rest =>
      match rest with
      | [] => [(carry + e)%Z]
      | o :: rest' => (carry + e + up s (o * largest))%Z :: spread s least largest (up s (o * (one s - least))) rest'
      end
  end.

Definition coarsen (s : settings) (c : curve) : curve :=
  let b := base s (level c) in
  let least := (one s * one s / (snd b + one s))%Z in
  let largest := cdiv (one s * one s) (fst b + one s) in
  let l := if Z.even (low c) then mass c else 0%Z :: mass c in
  Curve (S (level c)) (low c / 2) (spread s least largest 0 l) (leak c).

Definition fit (s : settings) (c : curve) : curve :=
  let t := trim s c in if (most s <? length (mass t))%nat then coarsen s t else t.

Definition lift (s : settings) (n : nat) (c : curve) : curve := Nat.iter (n - level c) (coarsen s) c.

Definition product (s : settings) (a b : curve) : curve :=
  fit s (multiply s (lift s (level b) a) (lift s (level a) b)).

Fixpoint power (s : settings) (c : curve) (n : positive) : curve :=
  match n with
  | xH => c
  | xO p => let h := power s c p in product s h h
  | xI p => let h := power s c p in product s (product s h h) c
  end.

(** From bounds d_k of the divergences at x^low, x^(low + 1), …, in units, to the curve of their chords. *)
Fixpoint bends (D previous : Z) (l : list Z) : list Z :=
  match l with
  | [] => []
  | d :: rest =>
      match rest with
      | [] => [((D + 1) * (previous - d))%Z]
      | d' :: _ => (D * (d' - d) - (D + 1) * (d - previous))%Z :: bends D d rest
      end
  end.

Definition chords (s : settings) (k : Z) (l : list Z) : curve :=
  let D := (2 ^ grid s)%Z in
  match l with
  | d :: ((d' :: _) as rest) =>
      Curve 0 k (map (Z.max 0) ((D * (d' - d) + (one s - d))%Z :: bends D d rest)) (last rest 0%Z)
  | _ => Curve 0 k [] (one s)
  end.

(** delta at x^n: the sum of w_k (1 - x^(n - k)) over k > n, and the leak. *)
Fixpoint tail (s : settings) (x y : Z) (l : list Z) : Z :=
  match l with
  | [] => 0%Z
  | w :: rest => (w * (one s - y) + tail s x (y * one s / x) rest)%Z
  end.

Definition delta (s : settings) (c : curve) (n : nat) : Z :=
  let x := snd (base s (level c)) in
  let y := Nat.iter (Z.to_nat (low c - Z.of_nat n)) (fun y => y * one s / x)%Z (one s) in
  (up s (tail s x y (skipn (Z.to_nat (Z.of_nat n - low c)) (mass c))) + leak c)%Z.

(** Whether x^n <= exp(e 2^-bits), shown by x^n <= (1 + e 2^(-bits - 40))^(2^40). *)
Definition reaches (s : settings) (c : curve) (n : nat) (e : Z) : bool :=
  let x := snd (base s (level c)) in
  (Nat.iter n (fun y => up s (y * x)) (one s)
   <=? Nat.iter 40 (fun z => down s (z * z)) (one s + e / 2 ^ 40)%Z)%Z.

(** Entries of a run: the bounds of one use, from which power of x on, and how often it is used. *)
Definition entry := ((Z * list Z) * positive)%type.

Definition used (s : settings) (e : entry) : curve := power s (chords s (fst (fst e)) (snd (fst e))) (snd e).

Definition composed (s : settings) (first : entry) (others : list entry) : curve :=
  fold_left (fun c e => product s c (used s e)) others (used s first).

(** Whether all is so: e >= 0, x^n <= exp(e 2^-bits), and delta there is at most d 2^-bits. *)
Definition certified (s : settings) (first : entry) (others : list entry) (n : nat) (e d : Z) : bool :=
  let c := composed s first others in ((0 <=? e)%Z && reaches s c n e && (delta s c n <=? d)%Z)%bool.

(** ** What a curve stands for *)

Section Meaning.

Variable s : settings.
Hypothesis bits_ge : (0 <= bits s)%Z.
Hypothesis grid_ge : (0 <= grid s <= bits s)%Z.

Let u1 : R := IZR (one s).

Lemma one_pos : (0 < one s)%Z.
Proof. unfold one. apply Z.pow_pos_nonneg; lia. Qed.

Lemma u1_pos : 0 < u1.
Proof. unfold u1. apply IZR_lt, one_pos. Qed.

(** ln x at a level. *)
Definition step (n : nat) : R := 2 ^ n * ln (1 + / IZR (2 ^ grid s)).

Definition weight (l : R) (k : Z) : R := exp (- (IZR k * l)).

Fixpoint gain (l u v : R) (k : Z) (ws : list Z) : R :=
  match ws with
  | [] => 0
  | w :: rest => IZR w / u1 * pos (u - v * weight l k) + gain l u v (k + 1) rest
  end.

Fixpoint outcomes (l : R) (k : Z) (ws : list Z) : pair :=
  match ws with
  | [] => []
  | w :: rest => (IZR w / u1, IZR w / u1 * weight l k) :: outcomes l (k + 1) rest
  end.

Definition meaning (c : curve) : pair :=
  (IZR (leak c) / u1, 0) :: outcomes (step (level c)) (low c) (mass c).

Definition valid (c : curve) : Prop := Forall (Z.le 0) (mass c) /\ (0 <= leak c)%Z.

Lemma share_nonneg : forall w, (0 <= w)%Z -> 0 <= IZR w / u1.
Proof. intros w H. apply Rmult_le_pos; [apply IZR_le; assumption | left; apply Rinv_0_lt_compat, u1_pos]. Qed.

Lemma share_le : forall a b, (a <= b)%Z -> IZR a / u1 <= IZR b / u1.
Proof.
  intros a b H. apply Rmult_le_compat_r; [left; apply Rinv_0_lt_compat, u1_pos | apply IZR_le; assumption].
Qed.

Lemma cdiv_ge : forall a b, (0 < b)%Z -> IZR a / IZR b <= IZR (cdiv a b).
Proof.
  intros a b H. assert (0 < IZR b) by (apply IZR_lt; assumption).
  apply Rmult_le_reg_r with (IZR b); [assumption |].
  unfold Rdiv. rewrite Rmult_assoc, Rinv_l, Rmult_1_r by lra.
  rewrite <- mult_IZR. apply IZR_le. unfold cdiv.
  pose proof (Z.mul_div_le (- a) b H). lia.
Qed.

Lemma div_le : forall a b, (0 < b)%Z -> IZR (a / b) <= IZR a / IZR b.
Proof.
  intros a b H. assert (0 < IZR b) by (apply IZR_lt; assumption).
  apply Rmult_le_reg_r with (IZR b); [assumption |].
  unfold Rdiv. rewrite Rmult_assoc, Rinv_l, Rmult_1_r by lra.
  rewrite <- mult_IZR. apply IZR_le. pose proof (Z.mul_div_le a b H). lia.
Qed.

Lemma down_is : forall a, down s a = (a / one s)%Z.
Proof. intros. unfold down, one. apply Z.shiftr_div_pow2. assumption. Qed.

Lemma up_is : forall a, up s a = cdiv a (one s).
Proof. intros. unfold up, cdiv. rewrite down_is. reflexivity. Qed.

Lemma up_ge : forall a, IZR a / u1 <= IZR (up s a).
Proof. intros. rewrite up_is. apply cdiv_ge, one_pos. Qed.

Lemma up_nonneg : forall a, (0 <= a)%Z -> (0 <= up s a)%Z.
Proof.
  intros a H. apply le_IZR. apply Rle_trans with (IZR a / u1); [apply share_nonneg; assumption | apply up_ge].
Qed.

Lemma weight_pos : forall l k, 0 < weight l k.
Proof. intros; apply exp_pos. Qed.

Lemma weight_add : forall l j k, weight l (j + k) = weight l j * weight l k.
Proof. intros. unfold weight. rewrite <- exp_plus, plus_IZR. f_equal. ring. Qed.

Lemma stick_outcomes : forall l ws k u v, Forall (Z.le 0) ws -> stick u v (outcomes l k ws) = gain l u v k ws.
Proof.
  induction ws as [| w ws IH]; intros k u v H; simpl; [reflexivity |].
  inversion H; subst. rewrite IH by assumption. f_equal.
  rewrite <- pos_scale by (apply share_nonneg; assumption). f_equal. ring.
Qed.

Lemma stick_meaning : forall c u v, valid c -> 0 <= u ->
  stick u v (meaning c) = u * (IZR (leak c) / u1) + gain (step (level c)) u v (low c) (mass c).
Proof.
  intros c u v [H K] Hu. unfold meaning. simpl stick. rewrite stick_outcomes by assumption.
  rewrite pos_of_nonneg; [ring |]. pose proof (share_nonneg (leak c) K). nra.
Qed.

Lemma meaning_nonneg : forall c, valid c -> nonneg (meaning c).
Proof.
  intros c [H K]. constructor; simpl; [split; [apply share_nonneg; assumption | lra] |].
  revert H. generalize (low c) as k. induction (mass c) as [| w ws IH]; intros k H; simpl; [constructor |].
  inversion H; subst. constructor; [| apply IH; assumption]. simpl.
  pose proof (share_nonneg w ltac:(assumption)). pose proof (weight_pos (step (level c)) k). split; nra.
Qed.

Lemma gain_nonneg : forall l ws k u v, Forall (Z.le 0) ws -> 0 <= gain l u v k ws.
Proof.
  intros. rewrite <- stick_outcomes by assumption. apply stick_nonneg.
Qed.

Lemma gain_app : forall l a b k u v,
  gain l u v k (a ++ b) = gain l u v k a + gain l u v (k + Z.of_nat (length a)) b.
Proof.
  induction a as [| x a IH]; intros b k u v.
  - simpl. rewrite Z.add_0_r. lra.
  - cbn [app gain]. rewrite IH. replace (k + Z.of_nat (length (x :: a)))%Z with (k + 1 + Z.of_nat (length a))%Z by (simpl length; lia). lra.
Qed.

Lemma gain_add : forall l a b k u v, gain l u v k (add a b) = gain l u v k a + gain l u v k b.
Proof.
  induction a as [| x a IH]; intros b k u v; simpl; [lra |].
  destruct b as [| y b]; simpl; [lra |]. rewrite IH, plus_IZR. unfold Rdiv. ring.
Qed.

Lemma gain_times : forall l w ws k u v, gain l u v k (map (Z.mul w) ws) = IZR w * gain l u v k ws.
Proof. induction ws as [| x ws IH]; intros; simpl; [ring |]. rewrite IH, mult_IZR. unfold Rdiv. ring. Qed.

Lemma gain_up : forall l ws k u v, gain l u v k ws / u1 <= gain l u v k (map (up s) ws).
Proof.
  induction ws as [| w ws IH]; intros; simpl.
  - unfold Rdiv. rewrite Rmult_0_l. lra.
  - specialize (IH (k + 1)%Z u v). pose proof (up_ge w). pose proof (pos_nonneg (u - v * weight l k)).
    pose proof (Rinv_0_lt_compat _ u1_pos).
    assert (IZR w / u1 * / u1 * pos (u - v * weight l k) <= IZR (up s w) * / u1 * pos (u - v * weight l k)).
    { apply Rmult_le_compat_r; [assumption |]. apply Rmult_le_compat_r; lra. }
    unfold Rdiv in *. rewrite Rmult_plus_distr_r. lra.
Qed.

Lemma gain_shift : forall l ws j k u v, gain l u (v * weight l j) k ws = gain l u v (j + k) ws.
Proof.
  induction ws as [| w ws IH]; intros; simpl; [reflexivity |].
  rewrite IH, Rmult_assoc, <- weight_add. rewrite Z.add_assoc. reflexivity.
Qed.

Lemma gain_homogeneous : forall l ws k c u v, 0 <= c -> gain l (u * c) (v * c) k ws = c * gain l u v k ws.
Proof.
  induction ws as [| w ws IH]; intros; simpl; [ring |].
  rewrite IH by assumption. replace (u * c - v * c * weight l k) with (c * (u - v * weight l k)) by ring.
  rewrite pos_scale by assumption. ring.
Qed.

Lemma gain_total : forall l ws k u, 0 <= u -> gain l u 0 k ws = u * (IZR (total ws) / u1).
Proof.
  induction ws as [| w ws IH]; intros; simpl; [unfold Rdiv; ring |].
  rewrite IH by assumption. rewrite Rmult_0_l, Rminus_0_r, pos_of_nonneg by assumption.
  rewrite plus_IZR. unfold Rdiv. ring.
Qed.

Lemma gain_le_total : forall l ws k u v, Forall (Z.le 0) ws -> 0 <= u -> 0 <= v ->
  gain l u v k ws <= u * (IZR (total ws) / u1).
Proof.
  intros l ws k u v H Hu Hv. rewrite <- (gain_total l ws k u Hu).
  revert k. induction ws as [| w ws IH]; intros k; simpl; [lra |].
  inversion H; subst. apply Rplus_le_compat; [| apply IH; assumption].
  apply Rmult_le_compat_l; [apply share_nonneg; assumption | apply pos_le].
  pose proof (weight_pos l k). nra.
Qed.

Lemma gain_le : forall l a b, Forall2 Z.le a b -> forall k u v, gain l u v k a <= gain l u v k b.
Proof.
  induction 1 as [| x y a b H K IH]; intros; simpl; [lra |].
  apply Rplus_le_compat; [| apply IH].
  apply Rmult_le_compat_r; [apply pos_nonneg | apply share_le; assumption].
Qed.

Lemma total_nonneg : forall ws, Forall (Z.le 0) ws -> (0 <= total ws)%Z.
Proof. induction 1; simpl; lia. Qed.

(** *** Products *)

Lemma conv_nonneg : forall a b, Forall (Z.le 0) a -> Forall (Z.le 0) b -> Forall (Z.le 0) (conv a b).
Proof.
  assert (A : forall a b, Forall (Z.le 0) a -> Forall (Z.le 0) b -> Forall (Z.le 0) (add a b)).
  { induction a as [| x a IH]; intros b Ha Hb; simpl; [assumption |].
    destruct b as [| y b]; [assumption |]. inversion Ha; inversion Hb; subst. constructor; [lia | apply IH; assumption]. }
  induction a as [| x a IH]; intros b Ha Hb; simpl; [constructor |].
  inversion Ha; subst. apply A; [| constructor; [lia | apply IH; assumption]].
  apply Forall_forall. intros y Hy. apply in_map_iff in Hy. destruct Hy as [z [<- Hz]].
  rewrite Forall_forall in Hb. specialize (Hb z Hz). nia.
Qed.

Lemma gain_conv : forall l a b j k u v,
  fold_right (fun m t => gain l (u * fst m) (v * snd m) k b + t) 0 (outcomes l j a) = gain l u v (j + k) (conv a b) / u1
  \/ exists w, In w a /\ (w < 0)%Z.
Proof.
  induction a as [| x a IH]; intros b j k u v.
  - left. simpl. unfold Rdiv. ring.
  - destruct (Z.lt_ge_cases x 0) as [N | P]; [right; exists x; split; [left; reflexivity | assumption] |].
    destruct (IH b (j + 1)%Z k u v) as [E | [w [I N]]]; [| right; exists w; split; [right |]; assumption].
    left. cbn [outcomes fold_right fst snd conv]. rewrite E, gain_add, gain_times.
    replace (v * (IZR x / u1 * weight l j)) with (v * weight l j * (IZR x / u1)) by ring.
    rewrite gain_homogeneous by (apply share_nonneg; assumption). rewrite gain_shift.
    cbn [gain]. replace (j + k + 1)%Z with (j + 1 + k)%Z by lia. unfold Rdiv. ring.
Qed.

Lemma multiply_sound : forall a b, level a = level b -> valid a -> valid b ->
  valid (multiply s a b) /\ below (prod (meaning a) (meaning b)) (meaning (multiply s a b)).
Proof.
  intros a b L Va Vb. pose proof Va as [Ha Ka]. pose proof Vb as [Hb Kb].
  pose proof (conv_nonneg _ _ Ha Hb) as Hc. pose proof (total_nonneg _ Ha) as Ta. pose proof (total_nonneg _ Hb) as Tb.
  assert (V : valid (multiply s a b)).
  { split; simpl; [| apply up_nonneg; nia]. rewrite fast_conv_is.
    apply Forall_forall. intros y Hy. apply in_map_iff in Hy. destruct Hy as [z [<- Hz]].
    rewrite Forall_forall in Hc. apply up_nonneg, Hc, Hz. }
  split; [assumption |]. intros u v Hu Hv.
  rewrite (stick_meaning _ _ _ V Hu). simpl leak. simpl low. simpl mass. simpl level. rewrite fast_conv_is.
  rewrite stick_prod. unfold meaning at 2. cbn [fold_right fst snd].
  assert (Hl : 0 <= u * (IZR (leak a) / u1)) by (pose proof (share_nonneg _ Ka); nra).
  rewrite (stick_meaning b _ _ Vb Hl). rewrite Rmult_0_r, gain_total by assumption.
  assert (E : fold_right (fun m t => stick (u * fst m) (v * snd m) (meaning b) + t) 0
                (outcomes (step (level a)) (low a) (mass a))
              = u * (IZR (total (mass a)) / u1) * (IZR (leak b) / u1)
                + gain (step (level a)) u v (low a + low b) (conv (mass a) (mass b)) / u1).
  { destruct (gain_conv (step (level a)) (mass a) (mass b) (low a) (low b) u v) as [G | [w [I N]]].
    - rewrite <- G. clear G V Hc Ta Va. revert Ha. generalize (low a) as k.
      induction (mass a) as [| w ws IH]; intros k Ha; [simpl; unfold Rdiv; ring |].
      inversion Ha; subst. cbn [outcomes fold_right fst snd total]. rewrite IH by assumption.
      assert (0 <= u * (IZR w / u1)) by (pose proof (share_nonneg w ltac:(assumption)); nra).
      rewrite stick_meaning by assumption. rewrite <- L, plus_IZR. fold (total ws). unfold Rdiv. ring.
    - rewrite Forall_forall in Ha. specialize (Ha w I). lia. }
  rewrite E. clear E.
  pose proof (gain_up (step (level a)) (conv (mass a) (mass b)) (low a + low b) u v) as G.
  pose proof (up_ge (leak a * (leak b + total (mass b)) + total (mass a) * leak b)) as U.
  rewrite plus_IZR, !mult_IZR, plus_IZR in U.
  assert (I : 0 < / u1) by (apply Rinv_0_lt_compat, u1_pos).
  apply (Rmult_le_compat_r (/ u1)) in U; [| lra].
  apply (Rmult_le_compat_l u) in U; [| assumption].
  unfold Rdiv in *. lra.
Qed.

(** *** Trimming *)

Lemma weight_decreasing : forall l j k, 0 <= l -> (j <= k)%Z -> weight l k <= weight l j.
Proof.
  intros l j k Hl H. unfold weight. destruct (Rle_lt_or_eq_dec (- (IZR k * l)) (- (IZR j * l))) as [A | A].
  - apply IZR_le in H. nra.
  - left. apply exp_increasing. assumption.
  - right. rewrite A. reflexivity.
Qed.

Lemma trim_low_sound : forall l c, 0 <= l -> forall ws acc k u v, (0 <= acc)%Z -> Forall (Z.le 0) ws -> 0 <= v ->
  Forall (Z.le 0) (snd (trim_low c acc k ws)) /\
  IZR acc / u1 * pos (u - v * weight l k) + gain l u v k ws
    <= gain l u v (fst (trim_low c acc k ws)) (snd (trim_low c acc k ws)).
Proof.
  intros l c Hl. induction ws as [| w ws IH]; intros acc k u v Ha Hw Hv.
  - simpl. split; [repeat constructor; assumption | lra].
  - inversion Hw as [| x y W Rest]; subst. cbn [trim_low].
    assert (E : IZR acc / u1 * pos (u - v * weight l k) + gain l u v k (w :: ws)
                = IZR (acc + w) / u1 * pos (u - v * weight l k) + gain l u v (k + 1) ws).
    { cbn [gain]. rewrite plus_IZR. unfold Rdiv. ring. }
    destruct ws as [| w' ws].
    + rewrite E. simpl. split; [repeat constructor; lia | lra].
    + destruct (acc + w <=? c)%Z.
      * specialize (IH (acc + w)%Z (k + 1)%Z u v ltac:(lia) Rest Hv). destruct IH as [IH1 IH2]. split; [assumption |].
        rewrite E. eapply Rle_trans; [| exact IH2]. apply Rplus_le_compat_r.
        apply Rmult_le_compat_l; [apply share_nonneg; lia | apply pos_le].
        pose proof (weight_decreasing l k (k + 1) Hl ltac:(lia)). nra.
      * cbn [fst snd]. split; [constructor; [lia | assumption] | rewrite E; cbn [gain]; lra].
Qed.

Lemma trim_high_sound : forall l c r acc k u v, (0 <= acc)%Z -> Forall (Z.le 0) r -> 0 <= u -> 0 <= v ->
  (0 <= fst (trim_high c acc r))%Z /\ Forall (Z.le 0) (snd (trim_high c acc r)) /\
  u * (IZR acc / u1) + gain l u v k (rev r)
    <= u * (IZR (fst (trim_high c acc r)) / u1) + gain l u v k (rev (snd (trim_high c acc r))).
Proof.
  induction r as [| w r IH]; intros acc k u v Ha Hr Hu Hv; simpl.
  - repeat split; [assumption | constructor | lra].
  - inversion Hr as [| x y W Rest]; subst.
    destruct (acc + w <=? c)%Z.
    + specialize (IH (acc + w)%Z k u v ltac:(lia) Rest Hu Hv). destruct IH as [I1 [I2 I3]].
      repeat split; try assumption. eapply Rle_trans; [| exact I3].
      rewrite gain_app, plus_IZR. cbn [gain].
      assert (pos (u - v * weight l (k + Z.of_nat (length (rev r)))) <= u).
      { rewrite <- (pos_of_nonneg u Hu) at 2. apply pos_le. pose proof (weight_pos l (k + Z.of_nat (length (rev r)))). nra. }
      pose proof (share_nonneg w W). unfold Rdiv in *. nra.
    + simpl. repeat split; [assumption | assumption | lra].
Qed.

Lemma step_nonneg : forall n, 0 < step n.
Proof.
  intros n. unfold step. apply Rmult_lt_0_compat; [apply pow_lt; lra |].
  assert (0 < / IZR (2 ^ grid s)) by (apply Rinv_0_lt_compat, IZR_lt, Z.pow_pos_nonneg; lia).
  rewrite <- ln_1. apply ln_increasing; lra.
Qed.

Lemma trim_sound : forall c, valid c -> valid (trim s c) /\ below (meaning c) (meaning (trim s c)).
Proof.
  intros c V. destruct V as [H K].
  assert (Hr : Forall (Z.le 0) (rev (mass c))) by (apply Forall_rev; assumption).
  set (h := trim_high (cut s) 0 (rev (mass c))).
  assert (HH : forall u v, 0 <= u -> 0 <= v -> (0 <= fst h)%Z /\ Forall (Z.le 0) (snd h) /\
    gain (step (level c)) u v (low c) (mass c) <= u * (IZR (fst h) / u1) + gain (step (level c)) u v (low c) (rev (snd h))).
  { intros u v Hu Hv. pose proof (trim_high_sound (step (level c)) (cut s) (rev (mass c)) 0 (low c) u v ltac:(lia) Hr Hu Hv) as T.
    fold h in T. rewrite rev_involutive in T. destruct T as [T1 [T2 T3]]. repeat split; try assumption.
    unfold Rdiv in *. rewrite Rmult_0_l, Rmult_0_r in T3. lra. }
  destruct (HH 0 0 ltac:(lra) ltac:(lra)) as [F [G _]].
  assert (Gr : Forall (Z.le 0) (rev (snd h))) by (apply Forall_rev; assumption).
  assert (LL : forall u v, 0 <= v -> Forall (Z.le 0) (snd (trim_low (cut s) 0 (low c) (rev (snd h)))) /\
     gain (step (level c)) u v (low c) (rev (snd h)) <= gain (step (level c)) u v
       (fst (trim_low (cut s) 0 (low c) (rev (snd h)))) (snd (trim_low (cut s) 0 (low c) (rev (snd h))))).
  { intros u v Hv.
    pose proof (trim_low_sound (step (level c)) (cut s) (Rlt_le _ _ (step_nonneg _)) (rev (snd h)) 0 (low c) u v ltac:(lia) Gr Hv) as [T1 T2].
    split; [assumption |]. unfold Rdiv in *. rewrite !Rmult_0_l in T2. lra. }
  assert (V' : valid (trim s c)).
  { unfold trim. fold h. split; simpl; [apply (LL 0 0 ltac:(lra)) | lia]. }
  split; [assumption |]. intros u v Hu Hv.
  rewrite (stick_meaning c u v (conj H K) Hu), (stick_meaning _ u v V' Hu). unfold trim. fold h. cbn [level low mass leak].
  destruct (HH u v Hu Hv) as [_ [_ A]]. destruct (LL u v Hv) as [_ B]. rewrite plus_IZR. unfold Rdiv in *. lra.
Qed.

(** *** Coarser grids *)

Lemma exp_step_S : forall n, exp (step (S n)) = exp (step n) * exp (step n).
Proof. intros. rewrite <- exp_plus. f_equal. unfold step. simpl. ring. Qed.

Lemma base_sound : forall n, (one s <= fst (base s n))%Z /\ (0 < snd (base s n))%Z /\
  IZR (fst (base s n)) / u1 <= exp (step n) <= IZR (snd (base s n)) / u1.
Proof.
  pose proof one_pos as P. pose proof u1_pos as U. pose proof (Rinv_0_lt_compat _ U) as I.
  induction n as [| n [IH1 [IH2 [IH3 IH4]]]].
  - assert (D : (0 < 2 ^ grid s)%Z) by (apply Z.pow_pos_nonneg; lia).
    assert (E : (one s / 2 ^ grid s * 2 ^ grid s = one s)%Z).
    { unfold one. replace (bits s) with (bits s - grid s + grid s)%Z at 1 by lia.
      rewrite Z.pow_add_r by lia. rewrite Z.div_mul by lia. rewrite <- Z.pow_add_r by lia. f_equal. lia. }
    assert (Q : (0 <= one s / 2 ^ grid s)%Z) by (apply Z.div_pos; lia).
    assert (X : exp (step 0) = IZR (one s + one s / 2 ^ grid s) / u1).
    { unfold step. simpl pow. rewrite Rmult_1_l. assert (0 < IZR (2 ^ grid s)) by (apply IZR_lt; assumption).
      rewrite exp_ln by (pose proof (Rinv_0_lt_compat _ H); lra).
      rewrite plus_IZR. fold u1. apply (Rmult_eq_reg_r u1); [| lra].
      unfold Rdiv. rewrite Rmult_assoc, Rinv_l, Rmult_1_r by lra.
      apply (f_equal IZR) in E. rewrite mult_IZR in E. fold u1 in E. rewrite <- E at 1.
      field_simplify; [rewrite <- E; ring | lra]. }
    cbn [base fst snd]. repeat split; [lia | lia | rewrite X; lra |].
    rewrite X. apply share_le. lia.
  - cbn [base fst snd]. rewrite exp_step_S.
    assert (J1 : 0 <= IZR (fst (base s n)) / u1) by (apply share_nonneg; lia).
    pose proof (exp_pos (step n)) as Ex.
    assert (A : (one s <= down s (fst (base s n) * fst (base s n)))%Z) by (rewrite down_is; apply Z.div_le_lower_bound; nia).
    assert (B : IZR (down s (fst (base s n) * fst (base s n))) / u1 <= exp (step n) * exp (step n)).
    { pose proof (div_le (fst (base s n) * fst (base s n)) (one s) P) as T. rewrite mult_IZR in T. fold u1 in T.
      apply Rle_trans with ((IZR (fst (base s n)) / u1) * (IZR (fst (base s n)) / u1)); [| nra].
      rewrite down_is. unfold Rdiv in *. nra. }
    assert (C : exp (step n) * exp (step n) <= IZR (up s (snd (base s n) * snd (base s n))) / u1).
    { pose proof (up_ge (snd (base s n) * snd (base s n))) as T. rewrite mult_IZR in T.
      apply Rle_trans with ((IZR (snd (base s n)) / u1) * (IZR (snd (base s n)) / u1)); [nra |].
      unfold Rdiv in *. nra. }
    repeat split; try assumption. apply lt_IZR.
    assert (0 < IZR (up s (snd (base s n) * snd (base s n))) / u1) by nra.
    apply (Rmult_lt_compat_r u1) in H; [| assumption]. unfold Rdiv in H.
    rewrite Rmult_assoc, Rinv_l, Rmult_1_r, Rmult_0_l in H by lra. assumption.
Qed.

Lemma weight_S : forall n k, weight (step (S n)) k = weight (step n) (2 * k).
Proof. intros. unfold weight. f_equal. rewrite mult_IZR. unfold step. simpl. ring. Qed.

Lemma pos_convex : forall r a b, 0 <= r <= 1 -> pos (r * a + (1 - r) * b) <= r * pos a + (1 - r) * pos b.
Proof.
  intros r a b H. rewrite <- (pos_scale r a), <- (pos_scale (1 - r) b) by lra.
  assert (r * a <= pos (r * a)) by (unfold pos; apply Rmax_l).
  assert ((1 - r) * b <= pos ((1 - r) * b)) by (unfold pos; apply Rmax_l).
  unfold pos at 1. apply Rmax_lub; [lra |].
  pose proof (pos_nonneg (r * a)). pose proof (pos_nonneg ((1 - r) * b)). lra.
Qed.

Lemma split_point : forall n k u v, let r := / (exp (step n) + 1) in
  pos (u - v * weight (step n) (2 * k + 1))
    <= r * pos (u - v * weight (step (S n)) k) + (1 - r) * pos (u - v * weight (step (S n)) (k + 1)).
Proof.
  intros n k u v r. pose proof (exp_pos (step n)) as E.
  assert (R1 : 0 < r) by (apply Rinv_0_lt_compat; lra).
  assert (R2 : r * (exp (step n) + 1) = 1) by (unfold r; apply Rinv_l; lra).
  eapply Rle_trans; [| apply pos_convex; nra]. right. f_equal.
  rewrite !weight_S. replace (2 * (k + 1))%Z with (2 * k + 2)%Z by lia. rewrite !weight_add.
  assert (W1 : weight (step n) 1 * exp (step n) = 1).
  { unfold weight. rewrite <- exp_plus. replace (- (1 * step n) + step n) with 0 by ring. apply exp_0. }
  assert (W2 : weight (step n) 2 = weight (step n) 1 * weight (step n) 1) by (rewrite <- weight_add; f_equal).
  rewrite W2. set (w := weight (step n) 1) in *. set (x := exp (step n)) in *. set (y := weight (step n) (2 * k)).
  assert (K : r + (1 - r) * (w * w) = w).
  { assert (w = / x) by (apply (Rmult_eq_reg_r x); [rewrite W1, Rinv_l; lra | lra]). rewrite H. unfold r. field. lra. }
  assert (v * y * (r + (1 - r) * (w * w)) = v * y * w) by (rewrite K; ring). lra.
Qed.

Lemma spread_sound : forall n least largest,
  IZR least / u1 <= / (exp (step n) + 1) <= IZR largest / u1 -> (0 <= least <= one s)%Z -> (0 <= largest)%Z ->
  forall m ws carry k u v, (length ws <= m)%nat -> (0 <= carry)%Z -> Forall (Z.le 0) ws ->
  Forall (Z.le 0) (spread s least largest carry ws) /\
  IZR carry / u1 * pos (u - v * weight (step (S n)) k) + gain (step n) u v (2 * k) ws
    <= gain (step (S n)) u v k (spread s least largest carry ws).
Proof.
  intros n least largest [B1 B2] Hleast Hlargest. pose proof u1_pos as U. pose proof (Rinv_0_lt_compat _ U) as I.
  induction m as [| m IH]; intros ws carry k u v Hm Hc Hw.
  - destruct ws; [| simpl in Hm; lia]. simpl. split; [repeat constructor; assumption | lra].
  - destruct ws as [| e [| o ws]].
    + simpl. split; [repeat constructor; assumption | lra].
    + inversion Hw; subst. cbn [spread gain]. rewrite plus_IZR, weight_S.
      split; [repeat constructor; lia | unfold Rdiv; lra].
    + inversion Hw as [| x y He Hr]; subst. inversion Hr as [| x y Ho Hrest]; subst. cbn [spread].
      assert (P1 : (0 <= up s (o * largest))%Z) by (apply up_nonneg; nia).
      assert (P2 : (0 <= up s (o * (one s - least)))%Z) by (apply up_nonneg; nia).
      simpl in Hm. destruct (IH ws (up s (o * (one s - least))) (k + 1)%Z u v ltac:(lia) P2 Hrest) as [I1 I2].
      split; [constructor; [lia | assumption] |].
      cbn [gain] in *. rewrite !plus_IZR in *.
      replace (2 * k + 1 + 1)%Z with (2 * (k + 1))%Z by lia.
      pose proof (split_point n k u v) as S. cbv zeta in S. set (r := / (exp (step n) + 1)) in *.
      pose proof (up_ge (o * largest)) as U1. pose proof (up_ge (o * (one s - least))) as U2.
      rewrite mult_IZR in U1. rewrite mult_IZR, minus_IZR in U2. fold u1 in U2.
      assert (O : 0 <= IZR o) by (apply IZR_le; assumption).
      assert (O' : 0 <= IZR o / u1) by (apply share_nonneg; assumption).
      assert (V1 : IZR o / u1 * r <= IZR (up s (o * largest)) / u1).
      { apply Rle_trans with (IZR o / u1 * (IZR largest / u1)); [apply Rmult_le_compat_l; assumption |].
        unfold Rdiv in *. nra. }
      assert (V2 : IZR o / u1 * (1 - r) <= IZR (up s (o * (one s - least))) / u1).
      { apply Rle_trans with (IZR o / u1 * (1 - IZR least / u1)); [apply Rmult_le_compat_l; lra |].
        apply Rle_trans with (IZR o * (u1 - IZR least) / u1 / u1); [right; field; lra |].
        unfold Rdiv in *. nra. }
      rewrite !weight_S in *.
      set (p0 := pos (u - v * weight (step n) (2 * k))) in *.
      set (p1 := pos (u - v * weight (step n) (2 * k + 1))) in *.
      set (p2 := pos (u - v * weight (step n) (2 * (k + 1)))) in *.
      assert (0 <= p0) by apply pos_nonneg. assert (0 <= p2) by apply pos_nonneg.
      assert (T : IZR o / u1 * p1 <= IZR o / u1 * r * p0 + IZR o / u1 * (1 - r) * p2) by nra.
      assert (T1 : IZR o / u1 * r * p0 <= IZR (up s (o * largest)) / u1 * p0) by (apply Rmult_le_compat_r; assumption).
      assert (T2 : IZR o / u1 * (1 - r) * p2 <= IZR (up s (o * (one s - least))) / u1 * p2) by (apply Rmult_le_compat_r; assumption).
      unfold Rdiv in *. lra.
Qed.

Lemma coarsen_sound : forall c, valid c -> valid (coarsen s c) /\ below (meaning c) (meaning (coarsen s c)).
Proof.
  intros c [H K]. pose proof one_pos as P. pose proof u1_pos as U. pose proof (Rinv_0_lt_compat _ U) as I.
  destruct (base_sound (level c)) as [B1 [B2 [B3 B4]]].
  set (x := exp (step (level c))) in *. assert (X : 0 < x) by apply exp_pos.
  set (b := base s (level c)) in *.
  set (least := (one s * one s / (snd b + one s))%Z). set (largest := cdiv (one s * one s) (fst b + one s)).
  assert (F1 : 0 < IZR (fst b + one s)) by (apply IZR_lt; lia).
  assert (F2 : 0 < IZR (snd b + one s)) by (apply IZR_lt; lia).
  assert (L1 : IZR least / u1 <= / (x + 1)).
  { pose proof (div_le (one s * one s) (snd b + one s) ltac:(lia)) as T. fold least in T.
    apply Rle_trans with (IZR (one s * one s) / IZR (snd b + one s) / u1); [apply Rmult_le_compat_r; lra |].
    rewrite plus_IZR in F2. rewrite mult_IZR, plus_IZR. fold u1. fold u1 in F2.
    apply Rle_trans with (/ (IZR (snd b) / u1 + 1)); [right; field; split; lra |].
    apply Rinv_le_contravar; lra. }
  assert (L2 : / (x + 1) <= IZR largest / u1).
  { pose proof (cdiv_ge (one s * one s) (fst b + one s) ltac:(lia)) as T. fold largest in T.
    apply Rle_trans with (IZR (one s * one s) / IZR (fst b + one s) / u1); [| apply Rmult_le_compat_r; lra].
    rewrite plus_IZR in F1. rewrite mult_IZR, plus_IZR. fold u1. fold u1 in F1.
    apply Rle_trans with (/ (IZR (fst b) / u1 + 1)); [| right; field; split; lra].
    apply Rinv_le_contravar; [| lra]. assert (0 <= IZR (fst b) / u1) by (apply share_nonneg; lia). lra. }
  assert (L3 : (0 <= least <= one s)%Z).
  { unfold least. split; [apply Z.div_pos; nia |]. apply Z.div_le_upper_bound; nia. }
  assert (L4 : (0 <= largest)%Z).
  { apply le_IZR. pose proof (cdiv_ge (one s * one s) (fst b + one s) ltac:(lia)) as T. fold largest in T.
    assert (0 <= IZR (one s * one s) / IZR (fst b + one s)).
    { apply Rmult_le_pos; [apply IZR_le; nia | left; apply Rinv_0_lt_compat; lra]. } lra. }
  set (l := if Z.even (low c) then mass c else 0%Z :: mass c).
  assert (Hl : Forall (Z.le 0) l) by (unfold l; destruct (Z.even (low c)); [| constructor; [lia |]]; assumption).
  assert (E : forall u v, gain (step (level c)) u v (low c) (mass c) = gain (step (level c)) u v (2 * (low c / 2)) l).
  { intros u v. unfold l. destruct (Z.even (low c)) eqn:Ev.
    - f_equal. apply Z.even_spec in Ev. destruct Ev as [j Ej]. rewrite Ej, (Z.mul_comm 2 j), Z.div_mul by lia. lia.
    - cbn [gain]. replace (2 * (low c / 2) + 1)%Z with (low c).
      + unfold Rdiv. rewrite !Rmult_0_l, Rplus_0_l. reflexivity.
      + rewrite <- Z.negb_odd in Ev. apply Bool.negb_false_iff, Z.odd_spec in Ev. destruct Ev as [j E'].
        rewrite E'. rewrite (Z.add_comm (2 * j) 1), (Z.mul_comm 2 j), Z.div_add by lia. change (1 / 2)%Z with 0%Z. lia. }
  assert (S : forall u v, Forall (Z.le 0) (spread s least largest 0 l) /\
    gain (step (level c)) u v (low c) (mass c) <= gain (step (S (level c))) u v (low c / 2) (spread s least largest 0 l)).
  { intros u v. destruct (spread_sound (level c) least largest (conj L1 L2) L3 L4 (length l) l 0%Z (low c / 2)%Z u v
      (le_n _) (Z.le_refl 0) Hl) as [S1 S2]. split; [assumption |]. rewrite E. unfold Rdiv in *. rewrite !Rmult_0_l in S2. lra. }
  assert (V : valid (coarsen s c)) by (split; simpl; [apply (S 0 0) | assumption]).
  split; [assumption |]. intros u v Hu Hv.
  rewrite (stick_meaning c u v (conj H K) Hu), (stick_meaning _ u v V Hu). cbn [coarsen level low mass leak].
  fold b. fold least. fold largest. fold l. destruct (S u v) as [_ T]. lra.
Qed.

Lemma fit_sound : forall c, valid c -> valid (fit s c) /\ below (meaning c) (meaning (fit s c)).
Proof.
  intros c V. destruct (trim_sound c V) as [V1 B1]. unfold fit.
  destruct (most s <? length (mass (trim s c)))%nat; [| split; assumption].
  destruct (coarsen_sound _ V1) as [V2 B2]. split; [assumption | exact (below_trans _ _ _ B1 B2)].
Qed.

Lemma lift_sound : forall n c, valid c ->
  level (lift s n c) = (level c + (n - level c))%nat /\ valid (lift s n c) /\ below (meaning c) (meaning (lift s n c)).
Proof.
  intros n c V. unfold lift. induction (n - level c)%nat as [| k [IH1 [IH2 IH3]]]; simpl.
  - repeat split; [lia | apply V | apply V | apply below_refl].
  - destruct (coarsen_sound _ IH2) as [A B]. repeat split; [simpl; lia | apply A | apply A | exact (below_trans _ _ _ IH3 B)].
Qed.

Lemma product_sound : forall a b, valid a -> valid b ->
  valid (product s a b) /\ below (prod (meaning a) (meaning b)) (meaning (product s a b)).
Proof.
  intros a b Va Vb. unfold product.
  destruct (lift_sound (level b) a Va) as [A1 [A2 A3]]. destruct (lift_sound (level a) b Vb) as [B1 [B2 B3]].
  destruct (multiply_sound (lift s (level b) a) (lift s (level a) b) ltac:(lia) A2 B2) as [M1 M2].
  destruct (fit_sound _ M1) as [F1 F2]. split; [assumption |].
  eapply below_trans; [| exact F2]. eapply below_trans; [| exact M2].
  eapply below_trans; [apply prod_below_left; [apply meaning_nonneg; assumption | exact A3] |].
  apply prod_below_right; [apply meaning_nonneg; assumption | exact B3].
Qed.

Lemma prod_unit_right : forall a, prod a unit = a.
Proof.
  induction a as [| [p q] a IH]; [reflexivity |]. rewrite prod_cons, IH. simpl. unfold scale; simpl.
  rewrite !Rmult_1_r. reflexivity.
Qed.

Lemma power_sound : forall c n, valid c ->
  valid (power s c n) /\ below (prods (repeat (meaning c) (Pos.to_nat n))) (meaning (power s c n)).
Proof.
  intros c n V. assert (N : forall k, nonneg (prods (repeat (meaning c) k))).
  { intros k. apply prods_nonneg, Forall_forall. intros x Hx. apply repeat_spec in Hx. subst. apply meaning_nonneg; assumption. }
  induction n as [p [IH1 IH2] | p [IH1 IH2] |]; cbn [power].
  - destruct (product_sound _ _ IH1 IH1) as [P1 P2]. destruct (product_sound _ _ P1 V) as [Q1 Q2].
    split; [assumption |]. rewrite Pos2Nat.inj_xI.
    replace (S (2 * Pos.to_nat p)) with (Pos.to_nat p + Pos.to_nat p + 1)%nat by lia.
    rewrite !repeat_app, !prods_app. simpl (prods (repeat _ 1)). rewrite prod_unit_right.
    eapply below_trans; [| exact Q2]. apply prod_below_left; [apply meaning_nonneg; assumption |].
    eapply below_trans; [| exact P2].
    eapply below_trans; [apply prod_below_left; [apply N | exact IH2] |].
    apply prod_below_right; [apply meaning_nonneg; assumption | exact IH2].
  - destruct (product_sound _ _ IH1 IH1) as [P1 P2]. split; [assumption |]. rewrite Pos2Nat.inj_xO.
    replace (2 * Pos.to_nat p)%nat with (Pos.to_nat p + Pos.to_nat p)%nat by lia. rewrite repeat_app, prods_app.
    eapply below_trans; [| exact P2].
    eapply below_trans; [apply prod_below_left; [apply N | exact IH2] |].
    apply prod_below_right; [apply meaning_nonneg; assumption | exact IH2].
  - split; [assumption |]. simpl. rewrite prod_unit_right. apply below_refl.
Qed.

(** *** Chords: from finitely many inequalities to domination *)

Lemma stick_le_total : forall a u v, nonneg a -> 0 <= u -> 0 <= v -> stick u v a <= u * stick 1 0 a.
Proof.
  induction a as [| [p q] a IH]; intros u v H Hu Hv; simpl; [lra |].
  inversion H as [| x y [Hp Hq] Hrest]; subst. simpl in *. specialize (IH u v Hrest Hu Hv).
  assert (pos (u * p - v * q) <= u * pos (1 * p - 0 * q)).
  { rewrite <- pos_scale by assumption. apply pos_le. nra. } lra.
Qed.

Lemma stick_homogeneous : forall a c u v, 0 <= c -> stick (c * u) (c * v) a = c * stick u v a.
Proof.
  induction a as [| [p q] a IH]; intros c u v H; simpl; [ring |]. rewrite IH by assumption.
  rewrite Rmult_plus_distr_l, <- pos_scale by assumption. f_equal. f_equal. ring.
Qed.

Lemma stick_convex : forall a t v w, 0 <= t <= 1 ->
  stick 1 (t * v + (1 - t) * w) a <= t * stick 1 v a + (1 - t) * stick 1 w a.
Proof.
  induction a as [| [p q] a IH]; intros t v w H; simpl; [lra |].
  specialize (IH t v w H). pose proof (pos_convex t (1 * p - v * q) (1 * p - w * q) H) as C.
  replace (t * (1 * p - v * q) + (1 - t) * (1 * p - w * q)) with (1 * p - (t * v + (1 - t) * w) * q) in C by ring. lra.
Qed.

Lemma stick_decreasing : forall a v w, nonneg a -> v <= w -> stick 1 w a <= stick 1 v a.
Proof.
  induction a as [| [p q] a IH]; intros v w H Hvw; simpl; [lra |].
  inversion H as [| x y [Hp Hq] Hrest]; subst. simpl in *. specialize (IH v w Hrest Hvw).
  assert (pos (1 * p - w * q) <= pos (1 * p - v * q)) by (apply pos_le; nra). lra.
Qed.

(** Between two numbers with no x^k between them, a curve is a straight line. *)
Lemma gain_affine : forall l ws k t v w, 0 <= t <= 1 -> v <= w ->
  (forall j, (k <= j)%Z -> exp (IZR j * l) <= v \/ w <= exp (IZR j * l)) ->
  gain l 1 (t * v + (1 - t) * w) k ws = t * gain l 1 v k ws + (1 - t) * gain l 1 w k ws.
Proof.
  induction ws as [| m ws IH]; intros k t v w Ht Hvw H; simpl; [ring |].
  rewrite IH by (try assumption; intros j Hj; apply H; lia).
  assert (E : pos (1 - (t * v + (1 - t) * w) * weight l k) = t * pos (1 - v * weight l k) + (1 - t) * pos (1 - w * weight l k)).
  { assert (W : weight l k * exp (IZR k * l) = 1).
    { unfold weight. rewrite <- exp_plus. replace (- (IZR k * l) + IZR k * l) with 0 by ring. apply exp_0. }
    pose proof (weight_pos l k) as P. set (y := weight l k) in *. set (x := exp (IZR k * l)) in *.
    destruct (H k ltac:(lia)) as [A | A]; fold x in A.
    - rewrite !pos_of_nonpos; [ring | nra | nra |]. assert (x <= t * v + (1 - t) * w) by nra. nra.
    - rewrite !pos_of_nonneg; [ring | nra | nra |]. assert (t * v + (1 - t) * w <= x) by nra. nra. }
  rewrite E. ring.
Qed.

Lemma chord_below : forall a l ws k c v w g, 0 <= v -> v < w -> v <= g <= w ->
  (forall j, (k <= j)%Z -> exp (IZR j * l) <= v \/ w <= exp (IZR j * l)) ->
  stick 1 v a <= c + gain l 1 v k ws -> stick 1 w a <= c + gain l 1 w k ws ->
  stick 1 g a <= c + gain l 1 g k ws.
Proof.
  intros a l ws k c v w g Hv Hvw Hg H A B.
  set (t := (w - g) / (w - v)).
  assert (T : 0 <= t <= 1).
  { unfold t. split; [apply Rmult_le_pos; [lra | left; apply Rinv_0_lt_compat; lra] |].
    apply Rmult_le_reg_r with (w - v); [lra |]. unfold Rdiv. rewrite Rmult_assoc, Rinv_l; lra. }
  assert (G : g = t * v + (1 - t) * w) by (unfold t; field; lra).
  rewrite G, (gain_affine l ws k t v w T ltac:(lra) H).
  pose proof (stick_convex a t v w T). nra.
Qed.

(** Falling shares of masses: the sum of m_i (1 - t y^i), and what it is for the bends of a table. *)
Fixpoint fall (y t : R) (ms : list Z) : R :=
  match ms with
  | [] => 0
  | m :: rest => IZR m * (1 - t) + fall y (t * y) rest
  end.

Lemma fall_gain : forall l ms k v t, 0 <= t <= 1 -> 0 < l -> v * weight l k = t ->
  gain l 1 v k ms = fall (exp (- l)) t ms / u1.
Proof.
  induction ms as [| m ms IH]; intros k v t Ht Hl E; simpl; [unfold Rdiv; ring |].
  assert (Y : 0 < exp (- l) < 1) by (split; [apply exp_pos | rewrite <- exp_0; apply exp_increasing; lra]).
  rewrite (IH (k + 1)%Z v (t * exp (- l))); [| nra | assumption |].
  - rewrite E, pos_of_nonneg by lra. unfold Rdiv. ring.
  - rewrite weight_add, <- Rmult_assoc, E. f_equal. unfold weight. f_equal. ring.
Qed.

Lemma fall_le : forall y a b, Forall2 Z.le a b -> forall t, 0 <= y <= 1 -> 0 <= t <= 1 -> fall y t a <= fall y t b.
Proof.
  induction 1 as [| m n a b H K IH]; intros t Hy Ht; simpl; [lra |].
  apply IZR_le in H. specialize (IH (t * y) Hy ltac:(nra)). nra.
Qed.

Lemma fall_bends : forall D, (0 < D)%Z -> let y := IZR D / (IZR D + 1) in
  forall l d previous t, fall y t (bends D previous (d :: l)) =
    IZR previous - IZR (last (d :: l) 0%Z) + IZR D * (IZR previous - IZR d) * (1 - t / y).
Proof.
  intros D HD y. assert (P : 0 < IZR D) by (apply IZR_lt; assumption).
  induction l as [| d' l IH]; intros d previous t.
  - cbn [bends fall last]. rewrite mult_IZR, plus_IZR, minus_IZR. unfold y. field. lra.
  - change (bends D previous (d :: d' :: l)) with ((D * (d' - d) - (D + 1) * (d - previous))%Z :: bends D d (d' :: l)).
    cbn [fall]. rewrite IH. change (last (d :: d' :: l) 0%Z) with (last (d' :: l) 0%Z).
    rewrite minus_IZR, !mult_IZR, plus_IZR, !minus_IZR. unfold y. field. lra.
Qed.

Lemma forall2_max : forall l, Forall2 Z.le l (map (Z.max 0) l).
Proof. induction l; simpl; constructor; [lia | assumption]. Qed.

Lemma total_max : forall l, (total l <= total (map (Z.max 0) l))%Z.
Proof. induction l as [| m l IH]; [simpl; lia |]. cbn [map].
  change (m + total l <= Z.max 0 m + total (map (Z.max 0) l))%Z. pose proof (Z.le_max_r 0 m).
  generalize dependent (total (map (Z.max 0) l)). intros. lia. Qed.

Lemma forall_max : forall l, Forall (Z.le 0) (map (Z.max 0) l).
Proof. induction l; simpl; constructor; [lia | assumption]. Qed.

Definition node (k : Z) : R := exp (IZR k * step 0).

(** What is assumed of one use: at x^low, x^(low + 1), … its divergence is at most what the table says. *)
Definition tabled (k : Z) (l : list Z) (a : pair) : Prop :=
  nonneg a /\ stick 1 0 a <= 1 /\
  forall i, (i < length l)%nat -> stick 1 (node (k + Z.of_nat i)) a <= IZR (nth i l 0%Z) / u1.

Lemma node_increasing : forall j k, (j < k)%Z -> node j < node k.
Proof.
  intros j k H. unfold node. apply exp_increasing. pose proof (step_nonneg 0). apply IZR_lt in H. nra.
Qed.

Lemma node_monotone : forall j k, (j <= k)%Z -> node j <= node k.
Proof.
  intros j k H. destruct (Z.eq_dec j k) as [-> | N]; [lra |]. left. apply node_increasing. lia.
Qed.

(** The chain of nodes: what holds at each of them holds everywhere from the first one on. *)
Lemma chain : forall a k0 ws c, nonneg a -> Forall (Z.le 0) ws -> forall n k g, (k0 <= k)%Z -> node k <= g ->
  (forall i, (i <= n)%nat -> stick 1 (node (k + Z.of_nat i)) a <= c + gain (step 0) 1 (node (k + Z.of_nat i)) k0 ws) ->
  stick 1 (node (k + Z.of_nat n)) a <= c ->
  stick 1 g a <= c + gain (step 0) 1 g k0 ws.
Proof.
  intros a k0 ws c Ha Hws. induction n as [| n IH]; intros k g Hk Hg H Hlast.
  - pose proof (gain_nonneg (step 0) ws k0 1 g Hws). replace (k + Z.of_nat 0)%Z with k in Hlast by lia.
    pose proof (stick_decreasing a (node k) g Ha Hg). lra.
  - destruct (Rle_lt_dec g (node (k + 1))) as [L | G].
    + apply (chord_below a (step 0) ws k0 c (node k) (node (k + 1)) g); [left; apply exp_pos | apply node_increasing; lia | lra | | |].
      * intros j _. destruct (Z.le_gt_cases j k); [left; apply node_monotone; lia | right; apply node_monotone; lia].
      * specialize (H 0%nat ltac:(lia)). replace (k + Z.of_nat 0)%Z with k in H by lia. assumption.
      * specialize (H 1%nat ltac:(lia)). assumption.
    + apply (IH (k + 1)%Z g); [lia | lra | |].
      * intros i Hi. specialize (H (S i) ltac:(lia)). replace (k + 1 + Z.of_nat i)%Z with (k + Z.of_nat (S i))%Z by lia. assumption.
      * replace (k + 1 + Z.of_nat n)%Z with (k + Z.of_nat (S n))%Z by lia. assumption.
Qed.

Lemma bends_node : forall D ws k0 i l d, (0 < D)%Z -> exp (- step 0) = IZR D / (IZR D + 1) ->
  Forall2 Z.le (bends D d l) ws -> Forall (Z.le 0) ws -> (i <= length l)%nat ->
  IZR (nth i (d :: l) 0%Z) / u1 - IZR (last (d :: l) 0%Z) / u1 <= gain (step 0) 1 (node (k0 + Z.of_nat i)) (k0 + 1) ws.
Proof.
  intros D ws k0 i. revert ws k0. induction i as [| i IH]; intros ws k0 l d HD Y F W Hi.
  - rewrite Z.add_0_r. cbn [nth].
    assert (Y' : 0 < exp (- step 0) <= 1).
    { split; [apply exp_pos |]. rewrite <- exp_0. left. apply exp_increasing. pose proof (step_nonneg 0). lra. }
    rewrite (fall_gain (step 0) ws (k0 + 1) (node k0) (exp (- step 0))); [| lra | apply step_nonneg |].
    + destruct l as [| e l].
      * simpl. unfold Rdiv. rewrite Rminus_diag_eq by reflexivity.
        inversion F; subst. simpl. lra.
      * pose proof (fall_le (exp (- step 0)) _ _ F (exp (- step 0)) ltac:(lra) ltac:(lra)) as T.
        rewrite Y in T at 1 2. rewrite (fall_bends D HD l e d) in T.
        assert (0 < IZR D) by (apply IZR_lt; assumption).
        replace (IZR D / (IZR D + 1) / (IZR D / (IZR D + 1))) with 1 in T by (field; lra).
        change (last (d :: e :: l) 0%Z) with (last (e :: l) 0%Z).
        pose proof (Rinv_0_lt_compat _ u1_pos). unfold Rdiv in *. nra.
    + unfold node, weight. rewrite <- exp_plus. f_equal. rewrite plus_IZR. ring.
  - destruct l as [| e l]; [simpl in Hi; lia |].
    assert (exists m ws', ws = m :: ws' /\ (l = [] \/ Forall2 Z.le (bends D e l) ws')) as [m [ws' [-> F']]].
    { destruct l as [| e' l]; inversion F; subst; eauto. }
    inversion W; subst. cbn [gain].
    assert (0 <= IZR m / u1 * pos (1 - node (k0 + Z.of_nat (S i)) * weight (step 0) (k0 + 1))).
    { apply Rmult_le_pos; [apply share_nonneg; assumption | apply pos_nonneg]. }
    change (nth (S i) (d :: e :: l) 0%Z) with (nth i (e :: l) 0%Z).
    change (last (d :: e :: l) 0%Z) with (last (e :: l) 0%Z).
    replace (k0 + Z.of_nat (S i))%Z with (k0 + 1 + Z.of_nat i)%Z in * by lia.
    assert (IZR (nth i (e :: l) 0%Z) / u1 - IZR (last (e :: l) 0%Z) / u1
            <= gain (step 0) 1 (node (k0 + 1 + Z.of_nat i)) (k0 + 1 + 1) ws').
    { destruct F' as [-> | F']; [| apply IH; try assumption; simpl in Hi; lia].
      simpl in Hi. replace i with O by lia. cbn [nth last].
      pose proof (gain_nonneg (step 0) ws' (k0 + 1 + 1) 1 (node (k0 + 1 + Z.of_nat 0)) ltac:(assumption)). lra. }
    lra.
Qed.

Lemma chords_sound : forall k l a, tabled k l a ->
  valid (chords s k l) /\ below a (meaning (chords s k l)).
Proof.
  intros k l a [Ha [H1 Hl]]. pose proof u1_pos as U. pose proof (Rinv_0_lt_compat _ U) as I.
  assert (HD : (0 < 2 ^ grid s)%Z) by (apply Z.pow_pos_nonneg; lia).
  assert (PD : 0 < IZR (2 ^ grid s)) by (apply IZR_lt; assumption).
  assert (trivial : valid (Curve 0 k [] (one s)) /\ below a (meaning (Curve 0 k [] (one s)))).
  { split; [split; [constructor | simpl; pose proof one_pos; lia] |].
    intros u v Hu Hv. unfold meaning. cbn [stick leak mass outcomes]. fold u1.
    replace (u1 / u1) with 1 by (field; lra). rewrite Rmult_0_r, Rminus_0_r, Rmult_1_r, Rplus_0_r.
    pose proof (stick_le_total a u v Ha Hu Hv). unfold pos. eapply Rle_trans; [| apply Rmax_l]. nra. }
  destruct l as [| d0 [| d1 l]]; [exact trivial | exact trivial |]. clear trivial.
  unfold chords. set (D := (2 ^ grid s)%Z) in *. set (rest := d1 :: l) in *.
  set (m0 := (D * (d1 - d0) + (one s - d0))%Z). set (ws := map (Z.max 0) (m0 :: bends D d0 rest)).
  set (top := last rest 0%Z).
  assert (Y : exp (- step 0) = IZR D / (IZR D + 1)).
  { unfold step. simpl pow. rewrite Rmult_1_l, exp_Ropp, exp_ln; [unfold D in *; field; lra |].
    pose proof (Rinv_0_lt_compat _ PD). unfold D in *. lra. }
  assert (W : Forall (Z.le 0) ws) by apply forall_max.
  assert (Top : nth (length rest) (d0 :: rest) 0%Z = top).
  { unfold top, rest. clear. revert d0 d1. induction l as [| e l IH]; intros d f; [reflexivity |].
    change (nth (length (f :: e :: l)) (d :: f :: e :: l) 0%Z) with (nth (length (e :: l)) (f :: e :: l) 0%Z).
    rewrite IH. reflexivity. }
  assert (L0 : (0 <= top)%Z).
  { apply le_IZR. pose proof (Hl (length rest) ltac:(simpl; lia)) as T. fold rest in T. rewrite Top in T.
    pose proof (stick_nonneg 1 (node (k + Z.of_nat (length rest))) a) as N. unfold Rdiv in T. nra. }
  assert (V : valid (Curve 0 k ws top)) by (split; assumption).
  split; [assumption |].
  set (c := IZR top / u1).
  assert (Nodes : forall i, (i <= length rest)%nat ->
            stick 1 (node (k + Z.of_nat i)) a <= c + gain (step 0) 1 (node (k + Z.of_nat i)) k ws).
  { intros i Hi. pose proof (Hl i ltac:(simpl; simpl in Hi; lia)) as T. fold rest in T.
    unfold ws. cbn [map gain].
    pose proof (bends_node D (map (Z.max 0) (bends D d0 rest)) k i rest d0 HD Y (forall2_max _) (forall_max _) Hi) as B.
    fold top in B. change (last (d0 :: rest) 0%Z) with top in B.
    assert (0 <= IZR (Z.max 0 m0) / u1 * pos (1 - node (k + Z.of_nat i) * weight (step 0) k)).
    { apply Rmult_le_pos; [apply share_nonneg; lia | apply pos_nonneg]. }
    unfold c. lra. }
  assert (Zero : stick 1 0 a <= c + gain (step 0) 1 0 k ws).
  { rewrite gain_total by lra.
    pose proof (fall_bends D HD l d1 d0 0) as T. cbv zeta in T. fold rest in T.
    assert (E : forall y ms, fall y 0 ms = IZR (total ms)).
    { intros y ms. induction ms as [| m ms IH]; simpl; [reflexivity |]. rewrite Rmult_0_l, IH, plus_IZR. ring. }
    rewrite E in T. fold top in T. change (last rest 0%Z) with top in T.
    assert (M : (total (m0 :: bends D d0 rest) <= total ws)%Z).
    { apply total_max. }
    assert (S : IZR m0 + IZR (total (bends D d0 rest)) + IZR top = u1).
    { rewrite T. unfold m0. rewrite plus_IZR, mult_IZR, !minus_IZR. fold u1.
      unfold Rdiv. rewrite Rmult_0_l, Rminus_0_r. ring. }
    change (total (m0 :: bends D d0 rest)) with (m0 + total (bends D d0 rest))%Z in M.
    apply IZR_le in M. rewrite plus_IZR in M.
    assert (1 = (IZR m0 + IZR (total (bends D d0 rest)) + IZR top) / u1) by (rewrite S; field; lra).
    unfold c. unfold Rdiv in *. nra. }
  assert (All : forall g, 0 <= g -> stick 1 g a <= c + gain (step 0) 1 g k ws).
  { intros g Hg. destruct (Rle_lt_dec g (node k)) as [A | A].
    - apply (chord_below a (step 0) ws k c 0 (node k) g); [lra | apply exp_pos | lra | | assumption |].
      + intros j Hj. right. apply node_monotone; assumption.
      + specialize (Nodes O ltac:(lia)). rewrite Z.add_0_r in Nodes. assumption.
    - apply (chain a k ws c Ha W (length rest) k g); [lia | lra | assumption |].
      pose proof (Hl (length rest) ltac:(simpl; lia)) as T. fold rest in T. rewrite Top in T. exact T. }
  intros u v Hu Hv. rewrite (stick_meaning _ u v V Hu). cbn [level low mass leak]. fold c.
  destruct (Rle_lt_or_eq_dec 0 u Hu) as [Pu | <-].
  - specialize (All (v / u) ltac:(apply Rmult_le_pos; [assumption | left; apply Rinv_0_lt_compat; assumption])).
    replace u with (u * 1) at 1 by ring. replace v with (u * (v / u)) at 1 by (field; lra).
    rewrite stick_homogeneous by assumption.
    replace (gain (step 0) u v k ws) with (u * gain (step 0) 1 (v / u) k ws).
    + apply (Rmult_le_compat_l u) in All; [lra | assumption].
    + rewrite <- gain_homogeneous by assumption. f_equal; field; lra.
  - rewrite Rmult_0_l, Rplus_0_l. pose proof (stick_le_total a 0 v Ha ltac:(lra) Hv).
    pose proof (gain_nonneg (step 0) ws k 0 v W). lra.
Qed.

(** *** The bound of delta *)

Lemma tail_sound : forall l x, 0 <= l -> (0 < x)%Z -> exp l <= IZR x / u1 ->
  forall ws y k v t, Forall (Z.le 0) ws -> IZR y / u1 <= t -> t <= v * weight l k -> 0 <= v -> (0 <= y <= one s)%Z ->
  gain l 1 v k ws <= IZR (tail s x y ws) / u1 / u1.
Proof.
  intros l x Hl Hx Ex. pose proof u1_pos as U. pose proof (Rinv_0_lt_compat _ U) as I.
  assert (PX : 0 < IZR x) by (apply IZR_lt; assumption).
  induction ws as [| w ws IH]; intros y k v t H Hy Ht Hv By; simpl; [unfold Rdiv; rewrite !Rmult_0_l; lra |].
  inversion H as [| a b W Rest]; subst.
  assert (O : (one s <= x)%Z).
  { apply le_IZR. fold u1. assert (1 <= exp l).
    { rewrite <- exp_0. destruct (Rle_lt_or_eq_dec 0 l Hl) as [A | <-]; [left; apply exp_increasing; assumption | lra]. }
    assert (1 <= IZR x / u1) by lra. apply (Rmult_le_compat_r u1) in H1; [| lra].
    unfold Rdiv in H1. rewrite Rmult_assoc, Rinv_l, Rmult_1_r in H1 by lra. lra. }
  assert (A : gain l 1 v (k + 1) ws <= IZR (tail s x (y * one s / x) ws) / u1 / u1).
  { apply (IH _ _ v (t * weight l 1)); try assumption.
    - pose proof (div_le (y * one s) x Hx) as T. rewrite mult_IZR in T. fold u1 in T.
      assert (Wi : weight l 1 * exp l = 1).
      { unfold weight. rewrite <- exp_plus. replace (- (1 * l) + l) with 0 by ring. apply exp_0. }
      pose proof (weight_pos l 1) as Wp. pose proof (exp_pos l) as Ep.
      assert (Y0 : 0 <= IZR y / u1) by (apply share_nonneg; lia).
      assert (Q : / (IZR x / u1) <= weight l 1).
      { replace (weight l 1) with (/ exp l) by (apply (Rmult_eq_reg_r (exp l)); [rewrite Rinv_l; lra | lra]).
        apply Rinv_le_contravar; assumption. }
      apply Rle_trans with (IZR y / u1 * / (IZR x / u1)).
      + apply Rle_trans with (IZR y * u1 / IZR x / u1); [apply Rmult_le_compat_r; lra | right; field; lra].
      + assert (0 < / (IZR x / u1)) by (apply Rinv_0_lt_compat, Rmult_lt_0_compat; lra). nra.
    - rewrite weight_add, <- Rmult_assoc. apply Rmult_le_compat_r; [left; apply weight_pos | assumption].
    - split; [apply Z.div_pos; nia | apply Z.div_le_upper_bound; nia]. }
  assert (B : pos (1 - v * weight l k) <= (u1 - IZR y) / u1).
  { replace ((u1 - IZR y) / u1) with (1 - IZR y / u1) by (field; lra).
    assert (IZR y <= u1) by (unfold u1; apply IZR_le; lia).
    assert (0 <= 1 - IZR y / u1) by (assert (IZR y / u1 <= 1) by (apply Rmult_le_reg_r with u1; [lra |]; unfold Rdiv; rewrite Rmult_assoc, Rinv_l; lra); lra).
    unfold pos. apply Rmax_lub; lra. }
  rewrite plus_IZR, mult_IZR, minus_IZR. fold u1.
  pose proof (share_nonneg w W) as Wn.
  apply (Rmult_le_compat_l (IZR w / u1)) in B; [| assumption].
  unfold Rdiv in *. lra.
Qed.

Lemma gain_skip : forall l n ws k v, 0 < l -> exp (IZR (k + Z.of_nat n) * l) <= v ->
  Forall (Z.le 0) ws -> gain l 1 v k ws <= gain l 1 v (k + Z.of_nat n) (skipn n ws).
Proof.
  induction n as [| n IH]; intros ws k v Hl Hv H.
  - replace (k + Z.of_nat 0)%Z with k by lia. simpl. lra.
  - destruct ws as [| w ws]; [simpl; lra |]. inversion H; subst. cbn [gain skipn].
    replace (k + Z.of_nat (S n))%Z with (k + 1 + Z.of_nat n)%Z in * by lia.
    assert (E : pos (1 - v * weight l k) = 0).
    { apply pos_of_nonpos. assert (W : weight l k * exp (IZR k * l) = 1).
      { unfold weight. rewrite <- exp_plus. replace (- (IZR k * l) + IZR k * l) with 0 by ring. apply exp_0. }
      assert (exp (IZR k * l) <= exp (IZR (k + 1 + Z.of_nat n) * l)).
      { left. apply exp_increasing. assert (IZR k < IZR (k + 1 + Z.of_nat n)) by (apply IZR_lt; lia). nra. }
      pose proof (weight_pos l k). nra. }
    rewrite E. specialize (IH ws (k + 1)%Z v Hl Hv ltac:(assumption)). lra.
Qed.

Lemma iter_down : forall l x n, 0 <= l -> (0 < x)%Z -> exp l <= IZR x / u1 ->
  let y := Nat.iter n (fun y => y * one s / x)%Z (one s) in
  (0 <= y <= one s)%Z /\ IZR y / u1 <= weight l (Z.of_nat n).
Proof.
  intros l x n Hl Hx Ex. pose proof u1_pos as U. pose proof one_pos as P. pose proof (Rinv_0_lt_compat _ U) as I.
  assert (PX : 0 < IZR x) by (apply IZR_lt; assumption).
  assert (O : (one s <= x)%Z).
  { apply le_IZR. fold u1. assert (1 <= exp l).
    { rewrite <- exp_0. destruct (Rle_lt_or_eq_dec 0 l Hl) as [A | <-]; [left; apply exp_increasing; assumption | lra]. }
    assert (H1 : 1 <= IZR x / u1) by lra. apply (Rmult_le_compat_r u1) in H1; [| lra].
    unfold Rdiv in H1. rewrite Rmult_assoc, Rinv_l, Rmult_1_r in H1 by lra. lra. }
  induction n as [| n [IH1 IH2]]; simpl Nat.iter.
  - split; [lia |]. fold u1. unfold weight. simpl. rewrite Rmult_0_l, Ropp_0, exp_0. right. field. lra.
  - set (y := Nat.iter n (fun y => y * one s / x)%Z (one s)) in *. split.
    + split; [apply Z.div_pos; nia | apply Z.div_le_upper_bound; nia].
    + pose proof (div_le (y * one s) x Hx) as T. rewrite mult_IZR in T. fold u1 in T.
      replace (Z.of_nat (S n)) with (Z.of_nat n + 1)%Z by lia. rewrite weight_add.
      assert (Wi : weight l 1 * exp l = 1).
      { unfold weight. rewrite <- exp_plus. replace (- (1 * l) + l) with 0 by ring. apply exp_0. }
      pose proof (weight_pos l 1) as Wp. pose proof (exp_pos l) as Ep.
      assert (Y0 : 0 <= IZR y / u1) by (apply share_nonneg; lia).
      assert (Q : / (IZR x / u1) <= weight l 1).
      { replace (weight l 1) with (/ exp l) by (apply (Rmult_eq_reg_r (exp l)); [rewrite Rinv_l; lra | lra]).
        apply Rinv_le_contravar; assumption. }
      apply Rle_trans with (IZR y / u1 * / (IZR x / u1)).
      * apply Rle_trans with (IZR y * u1 / IZR x / u1); [apply Rmult_le_compat_r; lra | right; field; lra].
      * assert (0 < / (IZR x / u1)) by (apply Rinv_0_lt_compat, Rmult_lt_0_compat; lra). nra.
Qed.

Lemma delta_sound : forall c n v, valid c -> exp (INR n * step (level c)) <= v ->
  stick 1 v (meaning c) <= IZR (delta s c n) / u1.
Proof.
  intros c n v V Hv. pose proof V as [H K]. rewrite (stick_meaning c 1 v V) by lra.
  destruct (base_sound (level c)) as [_ [Bx [_ Ex]]]. unfold delta.
  set (x := snd (base s (level c))) in *. set (l := step (level c)) in *.
  assert (Hl : 0 < l) by apply step_nonneg.
  set (j := Z.to_nat (low c - Z.of_nat n)). set (m := Z.to_nat (Z.of_nat n - low c)).
  assert (V0 : 0 <= v) by (pose proof (exp_pos (INR n * l)); lra).
  destruct (iter_down l x j ltac:(lra) Bx Ex) as [Y1 Y2]. set (y := Nat.iter j (fun y => y * one s / x)%Z (one s)) in *.
  assert (S1 : gain l 1 v (low c) (mass c) <= gain l 1 v (low c + Z.of_nat m) (skipn m (mass c))).
  { destruct (Z.le_gt_cases (low c) (Z.of_nat n)) as [A | A].
    - apply gain_skip; [assumption | | assumption]. eapply Rle_trans; [| exact Hv]. right. f_equal. f_equal.
      rewrite INR_IZR_INZ. f_equal. unfold m. lia.
    - replace m with O by (unfold m; lia). replace (low c + Z.of_nat 0)%Z with (low c) by lia. simpl. lra. }
  assert (T : gain l 1 v (low c + Z.of_nat m) (skipn m (mass c)) <= IZR (tail s x y (skipn m (mass c))) / u1 / u1).
  { apply (tail_sound l x ltac:(lra) Bx Ex _ y _ v (weight l (Z.of_nat j))); try assumption.
    - apply Forall_forall. intros w Hw. rewrite Forall_forall in H. apply H.
      rewrite <- (firstn_skipn m (mass c)). apply in_or_app. right. assumption.
    - apply Rle_trans with (exp (INR n * l) * weight l (low c + Z.of_nat m)).
      + right. unfold weight. rewrite <- exp_plus. f_equal. rewrite INR_IZR_INZ.
        replace (Z.of_nat j) with (low c + Z.of_nat m - Z.of_nat n)%Z by (unfold j, m; lia).
        rewrite minus_IZR. ring.
      + apply Rmult_le_compat_r; [left; apply weight_pos | assumption]. }
  pose proof (up_ge (tail s x y (skipn m (mass c)))) as Up. pose proof (Rinv_0_lt_compat _ u1_pos).
  rewrite plus_IZR. unfold Rdiv in *. nra.
Qed.

Lemma reaches_sound : forall c n e, (0 <= e)%Z -> reaches s c n e = true ->
  exp (INR n * step (level c)) <= exp (IZR e / u1).
Proof.
  intros c n e He H. unfold reaches in H. apply Z.leb_le in H.
  destruct (base_sound (level c)) as [_ [Bx [_ Ex]]]. set (x := snd (base s (level c))) in *.
  pose proof u1_pos as U. pose proof (Rinv_0_lt_compat _ U) as I. pose proof one_pos as P.
  assert (A : exp (INR n * step (level c)) <= IZR (Nat.iter n (fun y => up s (y * x)) (one s)) / u1).
  { clear H. induction n as [| n IH].
    - simpl. fold u1. rewrite Rmult_0_l, exp_0. right. field. lra.
    - rewrite S_INR, Rmult_plus_distr_r, Rmult_1_l, exp_plus. simpl Nat.iter.
      set (y := Nat.iter n (fun y => up s (y * x)) (one s)) in *.
      pose proof (up_ge (y * x)) as T. rewrite mult_IZR in T.
      pose proof (exp_pos (INR n * step (level c))). pose proof (exp_pos (step (level c))).
      apply Rle_trans with (IZR y / u1 * (IZR x / u1)); [nra |]. unfold Rdiv in *. nra. }
  assert (B : forall k z r, (0 <= z)%Z -> 0 <= r -> IZR z / u1 <= exp r ->
    (0 <= Nat.iter k (fun z => down s (z * z)) z)%Z /\ IZR (Nat.iter k (fun z => down s (z * z)) z) / u1 <= exp (2 ^ k * r)).
  { induction k as [| k IH]; intros z r Hz Hr Hzr; [simpl; rewrite Rmult_1_l; split; assumption |].
    destruct (IH z r Hz Hr Hzr) as [I1 I2]. simpl Nat.iter.
    set (w := Nat.iter k (fun z => down s (z * z)) z) in *. rewrite down_is. split; [apply Z.div_pos; nia |].
    pose proof (div_le (w * w) (one s) P) as T. rewrite mult_IZR in T. fold u1 in T.
    assert (W : 0 <= IZR w / u1) by (apply share_nonneg; assumption).
    replace (2 ^ S k * r) with (2 ^ k * r + 2 ^ k * r) by (simpl; ring). rewrite exp_plus.
    apply Rle_trans with (IZR w / u1 * (IZR w / u1)); [unfold Rdiv in *; nra |].
    apply Rmult_le_compat; assumption. }
  assert (Q : (0 <= e / 2 ^ 40)%Z) by (apply Z.div_pos; lia).
  assert (R0 : 0 <= IZR e / u1 / 2 ^ 40).
  { apply Rmult_le_pos; [apply share_nonneg; assumption | left; apply Rinv_0_lt_compat, pow_lt; lra]. }
  destruct (B 40%nat (one s + e / 2 ^ 40)%Z (IZR e / u1 / 2 ^ 40) ltac:(lia) R0) as [_ C].
  { rewrite plus_IZR. fold u1. pose proof (div_le e (2 ^ 40) ltac:(lia)) as T.
    replace (IZR (2 ^ 40)) with (2 ^ 40) in T by (rewrite (pow_IZR 2 40); reflexivity).
    apply Rle_trans with (1 + IZR e / u1 / 2 ^ 40).
    - apply Rle_trans with ((u1 + IZR e / 2 ^ 40) / u1); [apply Rmult_le_compat_r; lra |].
      right. field. lra.
    - apply exp_ineq1_le. }
  replace (2 ^ 40 * (IZR e / u1 / 2 ^ 40)) with (IZR e / u1) in C by (field; lra).
  eapply Rle_trans; [exact A |]. eapply Rle_trans; [| exact C]. apply share_le. assumption.
Qed.

(** *** The theorem *)

Definition table (e : entry) : curve := chords s (fst (fst e)) (snd (fst e)).

(** For each step, the table of its entry. *)
Definition steps (all : list entry) : list (Z * list Z) := flat_map (fun e => repeat (fst e) (Pos.to_nat (snd e))) all.

Definition dominating (all : list entry) : list pair :=
  map (fun t => meaning (chords s (fst t) (snd t))) (steps all).

Definition proper (e : entry) : Prop := valid (table e).

Lemma dominating_app : forall e all, dominating (e :: all) = repeat (meaning (table e)) (Pos.to_nat (snd e)) ++ dominating all.
Proof.
  intros. unfold dominating, steps. simpl. rewrite map_app. f_equal.
  unfold table. induction (Pos.to_nat (snd e)) as [| n IH]; simpl; [reflexivity |]. rewrite IH. reflexivity.
Qed.

Lemma dominating_nonneg : forall all, Forall proper all -> Forall nonneg (dominating all).
Proof.
  induction all as [| e all IH]; intros H; [constructor |]. inversion H; subst. rewrite dominating_app.
  apply Forall_app. split; [| apply IH; assumption].
  apply Forall_forall. intros x Hx. apply repeat_spec in Hx. subst. apply meaning_nonneg. assumption.
Qed.

Lemma fold_sound : forall others c P, Forall proper others -> valid c -> nonneg P -> below P (meaning c) ->
  let f := fold_left (fun c e => product s c (used s e)) others c in
  valid f /\ below (prod P (prods (dominating others))) (meaning f).
Proof.
  induction others as [| e others IH]; intros c P H Vc NP B; cbn [fold_left].
  - split; [assumption |]. simpl. rewrite prod_unit_right. assumption.
  - inversion H as [| x y He Hrest]; subst. destruct (power_sound (table e) (snd e) He) as [U1 U2].
    fold (used s e) in U1, U2. change (power s (table e) (snd e)) with (used s e) in *.
    destruct (product_sound c (used s e) Vc U1) as [P1 P2].
    assert (N : nonneg (prods (repeat (meaning (table e)) (Pos.to_nat (snd e))))).
    { apply prods_nonneg, Forall_forall. intros x Hx. apply repeat_spec in Hx. subst. apply meaning_nonneg. assumption. }
    destruct (IH (product s c (used s e)) (prod P (prods (repeat (meaning (table e)) (Pos.to_nat (snd e))))) Hrest P1
      (prod_nonneg _ _ NP N)) as [F1 F2].
    { eapply below_trans; [| exact P2]. eapply below_trans; [apply prod_below_left; [exact N | exact B] |].
      apply prod_below_right; [apply meaning_nonneg; assumption | exact U2]. }
    split; [assumption |]. rewrite dominating_app, prods_app, <- prod_assoc. assumption.
Qed.

Lemma composed_sound : forall first others, Forall proper (first :: others) ->
  valid (composed s first others) /\
  below (prods (dominating (first :: others))) (meaning (composed s first others)).
Proof.
  intros first others H. inversion H as [| x y Hf Ho]; subst.
  destruct (power_sound (table first) (snd first) Hf) as [U1 U2].
  rewrite dominating_app, prods_app. unfold composed. apply fold_sound; try assumption.
  apply prods_nonneg, Forall_forall. intros x Hx. apply repeat_spec in Hx. subst. apply meaning_nonneg. assumption.
Qed.

(** Adaptive steps in any order of the entries: each, whatever came before, keeps to the table of its place. *)
Theorem private : forall first others n e d order mech,
  certified s first others n e d = true ->
  Permutation order (steps (first :: others)) ->
  (forall history, nonneg (mech history)) ->
  (forall history t, nth_error order (length history) = Some t -> tabled (fst t) (snd t) (mech history)) ->
  forall event,
    let all := joint (length order) mech [] in
    chance fst event all <= exp (IZR e / IZR (one s)) * chance snd event all + IZR d / IZR (one s).
Proof.
  intros first others n e d order mech Checked Perm Nn Tab event all. fold u1.
  unfold certified in Checked. cbv zeta in Checked.
  apply andb_prop in Checked. destruct Checked as [Checked D0]. apply andb_prop in Checked. destruct Checked as [E0 R].
  apply Z.leb_le in E0. apply Z.leb_le in D0.
  assert (Pr : Forall proper (first :: others)).
  { apply Forall_forall. intros x Hx. unfold proper, table.
    assert (I : In (fst x) order).
    { apply (Permutation_in _ (Permutation_sym Perm)). unfold steps. apply in_flat_map. exists x. split; [assumption |].
      pose proof (Pos2Nat.is_pos (snd x)). destruct (Pos.to_nat (snd x)); [lia | left; reflexivity]. }
    apply In_nth_error in I. destruct I as [i Hi]. specialize (Tab (repeat O i) (fst x)). rewrite repeat_length in Tab.
    apply (chords_sound _ _ _ (Tab Hi)). }
  set (doms := map (fun t => meaning (chords s (fst t) (snd t))) order).
  assert (PD : Permutation doms (dominating (first :: others))) by (apply Permutation_map; assumption).
  assert (ND : Forall nonneg doms) by (apply (Permutation_Forall (Permutation_sym PD)), dominating_nonneg; assumption).
  assert (J : below (map snd all) (prods doms)).
  { unfold all. replace (length order) with (length doms) by apply map_length.
    apply composition; [assumption | assumption |].
    intros h i Hlen Hi. simpl in Hlen. subst i. unfold doms in Hi. rewrite map_length in Hi.
    destruct (nth_error order (length h)) as [t |] eqn:Et; [| apply nth_error_None in Et; lia].
    specialize (Tab h t Et).
    unfold doms. rewrite (nth_indep _ _ (meaning (chords s (fst t) (snd t)))) by (rewrite map_length; lia).
    rewrite (map_nth (fun t => meaning (chords s (fst t) (snd t)))).
    rewrite (nth_error_nth _ _ _ Et). apply chords_sound; assumption. }
  destruct (composed_sound first others Pr) as [V B].
  set (v := exp (IZR e / u1)). assert (Hv : 0 <= v) by (left; apply exp_pos).
  pose proof (event_bound event all v) as Ev.
  pose proof (J 1 v ltac:(lra) Hv) as J1.
  rewrite (prods_permutation _ _ PD ND 1 v ltac:(lra) Hv) in J1.
  pose proof (B 1 v ltac:(lra) Hv) as B1.
  pose proof (delta_sound _ n v V (reaches_sound _ n e E0 R)) as D.
  pose proof (share_le _ _ D0). lra.
Qed.

End Meaning.
