"""The questions that can be asked of what ran; a mechanism answers them as a run of one."""

from __future__ import annotations

import importlib
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast, overload

from privcalc import errors
from privcalc.enclosure import Enclosure, Enclosures
from privcalc.errors import suggests
from privcalc.notebook import Card
from privcalc.relation import ADD_OR_REMOVE_ONE, Relation

if TYPE_CHECKING:  # a description is read, and compared, without the engine
    from matplotlib.figure import Figure
    from numpy.typing import ArrayLike, NDArray

    from privcalc.composition.ask import Answers
    from privcalc.numerics.floats import Floats

    Many = Sequence[Any] | NDArray[Any]
    """Where a number stands: an array, or a list, of some."""

__all__ = ["Questions"]


class Questions(Card, ABC):
    """The questions of a run; a mechanism answers them as a run of one."""

    @abstractmethod
    def _answers(self, relation: Relation, group_size: int = 1) -> Answers:
        """For several questions about one relation, which share what is built."""

    def _card(self) -> tuple[str, dict[str, object]]:
        entries: tuple[tuple[object, int], ...] = self.run.entries  # type: ignore[attr-defined]
        return "a run of", {f"{mechanism}": f"{count} ×" for mechanism, count in entries}

    @overload
    def epsilon(
        self, delta: float, *, relation: Relation = ..., group_size: int = ..., records: int | None = ...
    ) -> Enclosure: ...
    @overload
    def epsilon(
        self, delta: Many, *, relation: Relation = ..., group_size: int = ..., records: int | None = ...
    ) -> Enclosures: ...
    @suggests
    def epsilon(
        self,
        delta: float | Many,
        *,
        relation: Relation = ADD_OR_REMOVE_ONE,
        group_size: int = 1,
        records: int | None = None,
    ) -> Enclosure | Enclosures:
        """The smallest ε ≥ 0 for which the run is (ε, δ)-DP.

        Args:
            delta: δ in [0, 1), or an array of some; 0 asks for pure DP, ∞ where the run is not pure.
            relation: the neighbouring relation.
            group_size: how many records are protected together: neighbours are up to so many steps of the relation
                apart.
            records: the old name of ``group_size``, read up to 32, with a warning.

        Returns:
            An enclosure whose safe end is the upper one; of an array, enclosures, each of which is what is answered
            alone.

        Raises:
            PrivcalcError: if a δ is out of range, or a mechanism has no guarantee under the relation.

        Example:
            >>> import privcalc as pc
            >>> print(f"{(pc.Gaussian(noise_multiplier=20.0) * 206).epsilon(delta=1e-5):.9f}")
            2.992982864
        """
        answers = self._answers(relation, errors.group_size(group_size, records))
        if errors.is_array(delta):
            return answers.epsilons(errors.each("delta", delta, errors.delta))
        return answers.epsilon(errors.delta("delta", cast(float, delta)))

    @overload
    def delta(
        self, epsilon: float, *, relation: Relation = ..., group_size: int = ..., records: int | None = ...
    ) -> Enclosure: ...
    @overload
    def delta(
        self, epsilon: Many, *, relation: Relation = ..., group_size: int = ..., records: int | None = ...
    ) -> Enclosures: ...
    @suggests
    def delta(
        self,
        epsilon: float | Many,
        *,
        relation: Relation = ADD_OR_REMOVE_ONE,
        group_size: int = 1,
        records: int | None = None,
    ) -> Enclosure | Enclosures:
        """The smallest δ for which the run is (ε, δ)-DP.

        Args:
            epsilon: ε ≥ 0, finite, or an array of some.
            relation: the neighbouring relation.
            group_size: how many records are protected together.
            records: its old name.

        Returns:
            An enclosure whose safe end is the upper one; of an array, enclosures.

        Example:
            >>> import privcalc as pc
            >>> print(pc.Gaussian(noise_multiplier=1.0).delta(epsilon=1.0))
            0.126936737507
        """
        answers = self._answers(relation, errors.group_size(group_size, records))
        if errors.is_array(epsilon):
            return answers.deltas(errors.each("epsilon", epsilon, errors.epsilon))
        return answers.delta(errors.epsilon("epsilon", cast(float, epsilon)))

    @suggests
    def advantage(self, *, relation: Relation = ADD_OR_REMOVE_ONE) -> Enclosure:
        """Total variation distance δ(0): the largest true positive rate minus false positive rate of any attack.

        Source: Wasserman, Zhou 2010; Kaissis et al. 2024. Both directions have the same one.

        Example:
            >>> import privcalc as pc
            >>> print(pc.Gaussian(noise_multiplier=1.0).advantage())
            0.382924922549
        """
        return replace(self.delta(epsilon=0.0, relation=relation), asked=("advantage", ""))

    @suggests
    def beta(self, alpha: float, *, relation: Relation = ADD_OR_REMOVE_ONE) -> Enclosure:
        """Trade-off curve: the smallest false negative rate of any attack with false positive rate ≤ α.

        Args:
            alpha: false positive rate in [0, 1].
            relation: the neighbouring relation.

        Returns:
            An enclosure whose safe end is the lower one. It is the minimum over both orders of the neighbours
            (Dong, Roth, Su 2022, Section 2).

        Example:
            >>> import privcalc as pc
            >>> print(f"{pc.Gaussian(noise_multiplier=1.0).beta(alpha=0.05):.6f}")
            0.740488
        """
        value = errors.real("alpha", alpha, "a probability in [0, 1]", low=0.0, high=1.0)
        return self._answers(relation).beta(value)

    @suggests
    def bayes_risk(self, *, prior: float = 0.5, relation: Relation = ADD_OR_REMOVE_ONE) -> Enclosure:
        """The smallest error of any attack that guesses whether the record is there, which it is with this probability.

        Args:
            prior: probability in (0, 1) that the record is there.
            relation: the neighbouring relation.

        Returns:
            min(π, 1 − π)·(1 − δ(|log(π/(1 − π))|)), for the worse of the two orders; the safe end is the lower one.
            Guessing without the output errs with min(π, 1 − π).

        Source: ``proofs/risk.md``, §1.

        Example:
            >>> import privcalc as pc
            >>> print(f"{pc.Gaussian(noise_multiplier=1.0).bayes_risk():.6f}")
            0.308537
        """
        share = errors.real("prior", prior, "a probability in (0, 1)", low=0.0, high=1.0, open_low=True, open_high=True)
        return self._answers(relation).bayes_risk(share)

    @suggests
    def reconstruction(self, baseline: float, *, relation: Relation = ADD_OR_REMOVE_ONE) -> Enclosure:
        """The largest probability that any attack reconstructs the record, or guesses an attribute: 1 − β(κ).

        Args:
            baseline: κ in [0, 1], the probability of success of the best guess that does not see the output: with a
                uniform prior over n records, 1/n; of the likeliest value of an attribute; of a reconstruction near
                enough to count.
            relation: the neighbouring relation.

        Returns:
            An upper bound for every attack, every prior with this κ and every mechanism with this trade-off curve, one
            of which attains it if κ is 1/n; both ends are about that number. The safe end is the upper one.

        Source: Hayes, Mahloujifar, Balle 2023 (*Bounding Training Data Reconstruction in DP-SGD*), Theorem 2; Kulynych
        et al. 2025 (*Unifying Re-Identification, Attribute Inference, and Data Reconstruction Risks in Differential
        Privacy*); ``proofs/risk.md``, §2.

        Example:
            >>> import privcalc as pc
            >>> print(f"{pc.Gaussian(noise_multiplier=1.0).reconstruction(baseline=0.01):.6f}")
            0.092363
        """
        rate = errors.real("baseline", baseline, "a probability in [0, 1]", low=0.0, high=1.0)
        return self._answers(relation).reconstruction(rate)

    @suggests
    def gdp_mu(self, *, delta: float = 0.0, relation: Relation = ADD_OR_REMOVE_ONE) -> Enclosure:
        """The smallest μ with δ_run(ε) ≤ δ₀ + (1 − δ₀)·δ_μ(ε) for all real ε: μ-GDP except with probability δ₀.

        Args:
            delta: δ₀ in [0, 1); at 0 a Poisson-sampled Gaussian needs the μ of the unsampled one, because its far tail
                does.
            relation: the neighbouring relation.

        Example:
            >>> import privcalc as pc
            >>> print((pc.Gaussian(noise_multiplier=2.0) * 16).gdp_mu())
            2
        """
        value = errors.delta("delta", delta)
        return self._answers(relation).gdp_mu(value)

    @suggests
    def rdp(self, orders: ArrayLike, *, relation: Relation = ADD_OR_REMOVE_ONE) -> Floats:
        """Rényi divergences: for each order α an ε(α) such that D_α ≤ ε(α) in both directions. Upper bounds.

        Args:
            orders: orders α > 1, any shape; ∞ asks for pure DP.
            relation: the neighbouring relation.

        Returns:
            An array of the shape of ``orders``; ∞ where no finite bound is known.

        Source: Mironov 2017; D_α = K(α − 1)/(α − 1), from the transform, where the pair has one.

        Example:
            >>> import privcalc as pc
            >>> print(pc.Gaussian(noise_multiplier=1.0).rdp([2.0, 8.0]).round(9))
            [1. 4.]
        """
        return self._answers(relation).rdp(errors.orders("orders", orders))

    @suggests
    def zcdp(self, *, relation: Relation = ADD_OR_REMOVE_ONE) -> tuple[float, float]:
        """(ρ, ξ) such that the run is (ξ, ρ)-zCDP: D_α ≤ ξ + ρα for every α > 1. Upper bounds.

        Source: Bun, Steinke 2016, Definition 1.1 and Lemma 1.7 (composition adds). ξ is 0 unless a part was given with
        one.

        Example:
            >>> import privcalc as pc
            >>> (pc.Gaussian(noise_multiplier=1.0) * 3).zcdp()[0] - 1.5 < 1e-14
            True
        """
        return self._answers(relation).zcdp()

    def plot(self, *, relation: Relation = ADD_OR_REMOVE_ONE) -> Figure:
        """The trade-off curve; needs matplotlib. Several runs in one picture: ``privcalc.pictures.tradeoff([a, b])``.

        Args:
            relation: the neighbouring relation.

        Example:
            >>> import privcalc as pc
            >>> [axes.get_xlabel() for axes in pc.Gaussian(noise_multiplier=1.0).plot().axes]
            ['false positive rate α', 'false positive rate α']
        """
        drawn: Figure = importlib.import_module("privcalc.pictures").tradeoff(self, relation=relation)
        return drawn  # by name: pictures are made of runs
