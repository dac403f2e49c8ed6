"""Private tuning: a random number of trials of a learner, of which the best is released and all are paid for.

Papernot, Steinke 2022, in the version that is proved in ``proofs/tuning.md``, §8.
"""

from __future__ import annotations

import copy
import dataclasses
import os
import random
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

import privcalc as pc
from learners.frame.learner import Learner, digests
from learners.frame.plan import Plan
from learners.frame.protocol import Parameters, alone
from learners.frame.records import is_ours, is_private
from privcalc import errors
from privcalc.ledger.assumptions import STATED, Provenance, asked_by

__all__ = ["PrivateSearch"]

FIXED = ("classes", "delta", "relation", "device", "ledger", "seed", "progress", "start")
"""Arguments of a learner that are no hyperparameters: the search has them, or they say what is certified."""


@dataclass(kw_only=True, eq=False)
class PrivateSearch(Parameters):
    """Choose a learner's arguments: draw K, fit K learners with arguments drawn at random, release the best one alone.

    Fixed in advance, without looking at private data: the learner, the lists, the distribution of K and its mean, the
    score's noise, and the share of records that are held out. A trial is the learner's run on the records whose coin
    says so, and its score: the number of right predictions on the others, plus noise, both charged; or, without noise,
    the share of right predictions on public records. A score without noise on private records would be a release that
    no trial covers.

    Released are the attributes below. Whoever sees how long ``fit`` takes, or what it uses, learns K, which must not be
    released.

    Args:
        estimator: the learner; its plan bounds every trial's. So give it the noise multiplier, and the most steps of
            any setting.
        params: for each argument to choose a list of values, all as likely.
        mean: E[K].
        distribution: of K: "poisson" (may be 0), "geometric" or "logarithmic", or η > −1 (see ``RandomTrials``).
        score_noise: of the number of right predictions on held-out records, which one record changes by 1 at most:
            ``Gaussian`` or ``Laplace``; None: ``fit`` has public records to score by.
        holdout: probability with which a record is held out, where there is such noise.
        ledger: file of the ledger; None keeps it in memory.
        seed: reproducible noise, without any privacy.

    Attributes, after ``fit``:
        trials_: the ``RandomTrials`` that was charged.
        certificate_, ledger_: of all that was released.
        best_estimator_, best_params_, best_score_: of the best trial, its score with its noise; None if K was 0.

    Example:
        >>> import numpy as np
        >>> from learners import NoisyGD
        >>> X, y = np.eye(2).repeat(500, axis=0), [0] * 500 + [1] * 500
        >>> one = NoisyGD(classes=[0, 1], delta=1e-5, noise_multiplier=20.0, steps=20, records=800)
        >>> rates = {"learning_rate": [0.1, 1.0, 10.0]}
        >>> tries = {"params": rates, "mean": 5, "distribution": "geometric"}
        >>> search = PrivateSearch(estimator=one, score_noise=pc.Gaussian(20.0), **tries)
        >>> search.fit(X, y).score(X, y) > 0.9, bool(1 < search.certificate_.guarantee.epsilon < 2)
        (True, True)
    """

    estimator: Learner
    params: Mapping[str, Any]
    mean: float
    distribution: str | float
    score_noise: pc.Gaussian | pc.Laplace | None = None
    holdout: float = 0.2
    ledger: str | os.PathLike[str] | None = None
    seed: int | None = None

    _spent: bool = field(default=False, init=False, repr=False)
    best_estimator_: Learner | None = field(init=False, repr=False)
    best_params_: dict[str, Any] | None = field(init=False, repr=False)
    best_score_: float | None = field(init=False, repr=False)

    def __post_init__(self) -> None:
        if not isinstance(self.estimator, Learner):
            raise pc.PrivcalcError(f"estimator = {self.estimator!r}: must be a learner")
        wrong = {
            "have no seed, by which all trials would have one noise": self.estimator.seed is not None,
            "have no ledger: the search has one of all trials": self.estimator.ledger is not None,
            "not be fitted: make a new one, or sklearn.base.clone it": self.estimator._spent,
        }
        if any(wrong.values()):
            raise pc.PrivcalcError(f"estimator: must {'; and '.join(text for text, is_so in wrong.items() if is_so)}")
        own = self.estimator.get_params(deep=False)
        for name, values in self.params.items() if isinstance(self.params, Mapping) else [("params", None)]:
            if name not in own or name in FIXED:
                raise pc.PrivcalcError(
                    f"params: {name!r} must be an argument of the estimator that may be tuned, not of {FIXED}"
                )
            if isinstance(values, (str, bytes)) or not hasattr(values, "__getitem__") or not len(values):
                raise pc.PrivcalcError(f"params: {name!r} must have a list of at least one value")
        if self.score_noise is not None and not isinstance(self.score_noise, (pc.Gaussian, pc.Laplace)):
            raise pc.PrivcalcError(
                f"score_noise = {self.score_noise!r}: must be Gaussian or Laplace, or None for a public score"
            )
        errors.real("holdout", self.holdout, "a probability in (0, 1)", low=0, high=1, open_low=True, open_high=True)
        self.plan()

    def plan(self) -> pc.RandomTrials:
        """What is charged."""
        base = self.estimator.plan().run
        noise = pc.Run() if self.score_noise is None else self.score_noise.run
        return pc.RandomTrials(base + noise, mean=self.mean, distribution=self.distribution)

    @alone
    def fit(
        self,
        X: ArrayLike | Tensor,
        y: ArrayLike,
        X_public: ArrayLike | Tensor | None = None,
        y_public: ArrayLike | None = None,
        *,
        X_score: ArrayLike | Tensor | None = None,
        y_score: ArrayLike | None = None,
    ) -> Self:
        """Make the trials. What was charged stays charged, whatever happens then.

        Args:
            X: private features, shape (n, …).
            y: their labels.
            X_public: public features for the learner, as in its own ``fit``.
            y_public: their labels.
            X_score: public features to score by, where there is no ``score_noise``.
            y_score: their labels.

        Raises:
            PrivcalcError: before anything is charged, if arguments do not fit, a setting's plan is not part of the
                estimator's, or this was fitted.
        """
        if self._spent:
            raise pc.PrivcalcError(
                "fit: this search was fitted, and its next certificate would not count that; make another"
            )
        if (X_score is None) == (self.score_noise is None) or (X_score is None) != (y_score is None):
            raise pc.PrivcalcError(
                "X_score, y_score: must be public records to score by, or else score_noise be given, not both"
            )
        if X_score is not None and is_private(X_score, X):
            raise pc.PrivcalcError("X_score: is X, or shares its memory; public records must not be private ones")
        shape, trials = self.estimator._shape_of(X, y), self.plan()
        rows = X if isinstance(X, Tensor) else errors.array("X", X)
        labels = errors.array("y", y).ravel()
        if shape.users or len(labels) != len(rows):
            raise pc.PrivcalcError("X, y: must have as many records, each with one label, and no users with several")
        start = self.estimator._first()
        said, earlier = self.estimator._said(start, shape.unit, public=X_public is not None or X_score is not None)
        if earlier is not None:
            raise pc.PrivcalcError(
                "estimator: must not start from a private model, whose certificate the search's would not count"
            )
        rng = random.SystemRandom() if self.seed is None else random.Random(self.seed)
        number = trials.draw() if self.seed is None else trials.law.simulate(np.random.default_rng(self.seed))
        settings = [self._setting(rng) for _ in range(number)]
        for one in settings:
            self._check(self._made(one, rng).plan().run)
        terms = self.estimator._terms(self.estimator.plan(), shape, dataclasses.replace(said, trials="drawn"))
        missing = "what else was chosen by looking at private data, if anything was: arguments, lists, the learner"
        terms |= {"plan": trials, "seed": self.seed, "not_accounted": [missing]}
        terms["public"] |= digests(X_public, y_public, start)
        held = _coins(rng, len(rows), 0.0 if self.score_noise is None else self.holdout)
        best: tuple[float, dict[str, Any], Learner] | None = None
        with pc.Ledger(self.ledger, **terms) as ledger:
            with asked_by(self._told()):
                ledger.record(trials)
            self._spent = True
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # one for each trial would tell how many there are
                for one in settings:
                    model = self._made(one, rng).fit(_taken(rows, ~held), labels[~held], X_public, y_public)
                    if X_score is not None and y_score is not None:
                        found = model.score(X_score, y_score)
                    else:
                        found = self._noisy(_right(model, _taken(rows, held), labels[held]), rng)
                    if best is None or found > best[0]:
                        best = found, one, model
        self.trials_, self.ledger_ = trials, ledger
        self.certificate_ = pc.certify(ledger, delta=self.estimator.delta)
        self.best_score_: float | None
        self.best_params_: dict[str, Any] | None
        self.best_estimator_: Learner | None
        self.best_score_, self.best_params_, self.best_estimator_ = (None, None, None) if best is None else best
        if self.best_estimator_ is not None:
            self._restated(self.best_estimator_)
        return self

    def _told(self) -> Provenance:
        """Who did what: our code draws all trials, and their noise and batches, in ledgers that are not kept."""
        return self.estimator._told() if is_ours(type(self.estimator)) else STATED

    def _setting(self, rng: random.Random) -> dict[str, Any]:
        """Values drawn independently of each other, of other trials and of the data."""
        found = {name: values[rng.randrange(len(values))] for name, values in self.params.items()}
        return {name: value.item() if isinstance(value, np.generic) else value for name, value in found.items()}

    def _made(self, setting: Mapping[str, Any], rng: random.Random) -> Learner:
        """A learner for one trial, silent: a bar would show how many there are."""
        seed = None if self.seed is None else rng.getrandbits(32)
        own = copy.deepcopy(
            self.estimator.get_params(deep=False) | dict(setting)
        )  # no trial goes on with another one's network
        return type(self.estimator)(**(own | {"seed": seed, "progress": False}))

    def _check(self, run: pc.Run) -> None:
        """A trial is charged as the estimator's plan, of which it must be a part."""
        most = dict(self.estimator.plan().run.entries)
        if any(count > most.get(mechanism, 0) for mechanism, count in run.entries):
            raise pc.PrivcalcError(
                f"params: a setting with the plan {run} is not part of the estimator's, {self.estimator.plan().run}, "
                "which bounds all trials: give the estimator noise_multiplier, not epsilon, "
                "and the most steps of any setting"
            )

    def _noisy(self, right: int, rng: random.Random) -> float:
        """The score of a trial, as its plan says."""
        assert self.score_noise is not None
        seed = None if self.seed is None else rng.getrandbits(32)
        with pc.Ledger(None, plan=self.score_noise, relation=self.estimator.relation, seed=seed) as ledger:
            draw: Any = ledger.laplace if isinstance(self.score_noise, pc.Laplace) else ledger.gaussian
            return float(draw(np.array([float(right)]), self.score_noise, clip_norm=1.0, error=0.0)[0])

    def _restated(self, model: Learner) -> None:
        """The best model says what the search cost, not what its own trial would have cost alone."""
        guarantee = self.certificate_.guarantee
        model.certificate_, model.ledger_, model.losses_ = self.certificate_, self.ledger_, None
        model.plan_ = Plan(self.trials_.run, model.noise_multiplier_, guarantee, self.estimator.relation)
        model.epsilon_ = guarantee.epsilon

    def predict(self, X: ArrayLike | Tensor) -> NDArray[Any]:
        """The classes that the best model predicts."""
        return self._best().predict(X)

    def predict_proba(self, X: ArrayLike | Tensor) -> NDArray[np.float64]:
        """As the best model's."""
        return self._best().predict_proba(X)

    def score(self, X: ArrayLike | Tensor, y: ArrayLike) -> float:
        """The share of right predictions; on private records it is itself private."""
        return self._best().score(X, y)

    def _best(self) -> Learner:
        if not hasattr(self, "best_estimator_"):
            raise pc.PrivcalcError("PrivateSearch: must be fitted before it predicts")
        if self.best_estimator_ is None:
            raise pc.PrivcalcError(
                "PrivateSearch: made no trial, as may happen with a Poisson number; there is no model"
            )
        return self.best_estimator_


def _coins(rng: random.Random, size: int, rate: float) -> NDArray[np.bool_]:
    """Who is held out: the coin of a record is its own."""
    return np.array([rng.random() < rate for _ in range(size)], dtype=np.bool_)


def _taken(rows: Any, mask: NDArray[np.bool_]) -> Any:
    return rows[torch.from_numpy(mask).to(rows.device)] if isinstance(rows, Tensor) else rows[mask]


def _right(model: Learner, rows: Any, labels: NDArray[Any]) -> int:
    """The number of right predictions, each record by itself.

    The last bits of a record's scores must not depend on others.
    """
    return sum(bool(model.predict(rows[i : i + 1])[0] == label) for i, label in enumerate(labels))
