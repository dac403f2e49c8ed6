"""What all learners share: their settings, the plan, the ledger, the certificate, and prediction."""

from __future__ import annotations

import dataclasses
import math
import os
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, Self

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

import privcalc as pc
from learners.device import torch_seed
from learners.frame.plan import Plan
from learners.frame.protocol import Parameters, alone
from learners.frame.records import (
    PrivateRecords,
    Shape,
    as_features,
    as_labels,
    is_ours,
    is_private,
    positions,
    shape_of,
)
from learners.frame.student import ENOUGH, Student, taught
from privcalc import errors
from privcalc.attacks.replay import look_first
from privcalc.ledger import constants
from privcalc.ledger.assumptions import Provenance

__all__ = ["Learner"]


DIVIDED: dict[str | None, Literal["nothing", "public number", "noisy number"]] = {
    None: "nothing",
    "public": "public number",
    "released": "noisy number",
}
"""What a learner divides by, as a certificate says it."""


@dataclass(kw_only=True, eq=False)
class Learner(Parameters, ABC):
    """A classifier that trains through a ledger, and carries the certificate of what it released.

    It has scikit-learn's methods, but for what fits many times: see :class:`learners.PrivateSearch`. A copy, or a
    pickle, has no ledger.

    Args:
        classes: the public list of classes.
        delta: δ of the certificate, in (0, 1).
        relation: the neighbouring relation.
        device: torch device.
        ledger: file of the ledger; None keeps it in memory.
        seed: reproducible noise, without any privacy.
        progress: show a bar with the ε spent.

    Attributes, after ``fit``:
        plan_: what was asked of the accountant, and its answers.
        noise_multiplier_, steps_, epsilon_: the ones that were not given, and those that were.
        certificate_: the certificate of the model; composed with that of a model it started from.
        ledger_: the closed ledger it was made from.
        losses_: what each record really cost, if ``norms_every`` was given; sensitive.
        weights_: the model; everything else that is public follows from it.
        shape_: of the features of one record.
        student_: of a learner with ``self_training`` what it learnt from public records after the fit, or None.
        classes_: the classes, in the order of the columns of ``predict_proba``.
        n_features_in_: how many numbers a record has.
    """

    classes: Sequence[Any]
    delta: float
    relation: pc.Relation = pc.ADD_OR_REMOVE_ONE
    device: str = "cpu"
    ledger: str | os.PathLike[str] | None = None
    seed: int | None = None
    progress: bool = False

    _spent: bool = field(default=False, init=False, repr=False)
    weights_: Tensor = field(init=False, repr=False)
    shape_: tuple[int, ...] = field(init=False, repr=False)
    student_: Student | None = field(default=None, init=False, repr=False)
    page: ClassVar[str]
    """The page that proves what one record can change; certificates cite it."""
    needs_labels: ClassVar[bool] = True
    """Whether public records, if there are any, must be labelled."""
    assumptions: ClassVar[pc.Assumptions] = pc.Assumptions(normaliser="public")
    """What the code sees to, and the ledger cannot."""
    gives_logits: ClassVar[bool] = True
    """Whether scores are logarithms of probabilities, up to a constant for each record."""
    handle: ClassVar[type[PrivateRecords]] = PrivateRecords
    """How private records are reached."""

    @abstractmethod
    def plan(self) -> Plan:
        """What will run; asks the accountant for what was not given."""

    @abstractmethod
    def _train(self, private: PrivateRecords, plan: Plan, count: int, public: tuple[Tensor, Tensor] | None) -> Tensor:
        """Learn, and return the weights; ``count`` is the public number of records."""

    @alone
    def fit(
        self,
        X: ArrayLike | Tensor,
        y: ArrayLike,
        X_public: ArrayLike | Tensor | None = None,
        y_public: ArrayLike | None = None,
        *,
        persons: ArrayLike | None = None,
        norms_every: int | None = None,
        budget: pc.Budget | None = None,
        look: bool = False,
    ) -> Self:
        """Train on private records, and public ones if there are any.

        If it raises after a step was charged, the ledger file stays open, its certificate is the whole plan's, and
        another fit needs another file: nothing of this one can be gone on with. If nothing was charged yet, the same
        file will do.

        Args:
            X: private features, shape (n, …).
            y: n labels from ``classes``.
            X_public: public features. Giving them declares that they are: they are used without noise. The certificate
                has a digest of them, as of ``y_public`` and of first weights:
                ``certificate_.verify(public={"X_public": X_public})``.
            y_public: their labels.
            persons: whose each row of X is, a number or a text, where the sampler is for persons with several rows
                (``pc.UserSampled``): the certificate is then for persons.
            norms_every: measure what each record really costs, in ``losses_`` (:class:`privcalc.RealisedLosses`), as
                sensitive as the records: exact for full batches; where steps are sampled, with a pass over all records
                every so many steps, and in between only of the batch, the others charged the worst case.
                Add-or-remove-one.
            budget: of the data set (:class:`privcalc.Budget`): the plan is reserved there before anything is drawn.
            look: first run the first step with and without one record (:func:`privcalc.attacks.replay.replay`), and
                show on the screen what was found. It depends on the records, and is kept nowhere.

        Raises:
            PrivcalcError: if shapes or labels do not fit, or the budget allows no step; if ``X_public`` is X; or if
                this learner has released something already, which one certificate would not count.
        """
        if self._spent:
            raise pc.PrivcalcError(
                f"fit: this {type(self).__name__} was fitted, and its next certificate would not count that. Fit "
                "another, type(model)(**model.get_params()), and compose: pc.certify([one.certificate_, "
                "other.certificate_], delta=...)"
            )
        positions(self.classes)
        if (clip_norm := getattr(self, "clip_norm", None)) is not None:
            errors.scale("clip_norm", clip_norm)
        plan = self.plan()
        whose = None if persons is None else errors.array("persons", persons)
        shape = dataclasses.replace(self._shape_of(X, y), persons=whose is not None)
        if errors.flag("look", look):
            self._show_first_step(plan, (X, y) if whose is None else (X, y, whose), (X_public, y_public))
        losses = None if norms_every is None else self._losses(plan, shape.size, norms_every)
        public = self._checked_public(X_public, y_public, X, shape.record)
        with torch_seed(self.seed):
            start = self._first()
            said, earlier = self._said(start, shape.unit, public=public is not None)
            terms = self._terms(plan, shape, said)
            terms["public"] |= digests(X_public, y_public, start)
            with pc.Ledger(self.ledger, budget=budget, **terms) as ledger:
                ledger.say(start=earlier)
                if ledger.would_exceed(plan.run):
                    raise pc.PrivcalcError(
                        f"ledger = {os.fspath(self.ledger or '')!r}: a fit that stopped has used some of the plan "
                        f"{plan.run}; give another ledger, and compose the certificates of both"
                    )
                private = self.handle(
                    X,
                    y,
                    ledger=ledger,
                    classes=self.classes,
                    device=self.device,
                    users=shape.users,
                    persons=whose,
                    losses=losses,
                    norms_every=norms_every or 1,
                    told=self._told(),
                )
                try:
                    self.weights_ = self._train(private, plan, shape.count, public)
                finally:
                    self._spent = bool(ledger.spent.entries)
        self.plan_, self.losses_, self.shape_ = plan, losses, shape.record
        if getattr(self, "self_training", False) and public is not None and self._strength(plan, shape.count) <= ENOUGH:
            features = public[0].double()
            self.student_ = taught(features, self._scores(features), logits=self.gives_logits)
        self.classes_, self.n_features_in_ = np.asarray(self.classes), math.prod(shape.record)
        self.noise_multiplier_, self.steps_, self.epsilon_ = plan.noise_multiplier, plan.steps, plan.guarantee.epsilon
        self.ledger_, own = ledger, pc.certify(ledger, delta=self.delta)
        self.certificate_ = own if earlier is None else pc.certify([earlier, own], delta=self.delta)
        return self

    def _shape_of(self, X: ArrayLike | Tensor, y: ArrayLike) -> Shape:
        """Their shape, and what they are."""
        size, *shape_of_one = shape_of("X", X) or (0,)
        if not size and self.relation is pc.REPLACE_ONE:
            raise pc.PrivcalcError(
                f"X: must have at least one record under {self.relation}, where there is one to replace"
            )
        users = self._are_users((size, *shape_of_one), shape_of("y", y))
        record = tuple(shape_of_one[1:] if users else shape_of_one)
        if not record or 0 in record or (self._flat and len(record) != 1):
            one = "features" if self._flat else "…"
            raise pc.PrivcalcError(
                f"X: must have shape (n, {one}), at least one number each, not {(size, *shape_of_one)}"
            )
        return Shape(size, self._count(size), users, record)

    def _show_first_step(self, plan: Plan, data: tuple[Any, ...], public: tuple[Any, Any]) -> None:
        """Replay it, by a learner of its own with a ledger in memory, and show what was found."""

        def process(records: tuple[Any, ...]) -> None:
            twin = type(self)(**self.get_params(deep=False) | {"ledger": None, "progress": False})
            vars(twin)["plan"] = lambda: plan
            features, labels, *whose = records
            twin.fit(features, labels, *public, persons=whose[0] if whose else None)

        process.__qualname__ = f"{type(self).__name__}.fit, first step"
        look_first((process, data), pc.Ledger, relation=self.relation, finite=False, additive=False)

    def _terms(self, plan: Plan, shape: Shape, said: pc.Assumptions) -> dict[str, Any]:
        """What the ledger is told, apart from its file."""
        declared: dict[str, Any] = {"records": shape.count} if shape.count else {}
        return {
            "relation": self.relation,
            "unit": shape.unit,
            "plan": plan.run,
            "public": declared | {"classes": [str(label) for label in self.classes], "learner": type(self).__name__},
            "not_accounted": ["hyper-parameters, if any were chosen by looking at private data"],
            "seed": self.seed,
            "assumptions": said,
        }

    def scores(self, X: ArrayLike | Tensor) -> Tensor:
        """One number per record and class; the largest wins.

        Args:
            X: features, shape (n, …), each record's as in ``fit``.

        Raises:
            PrivcalcError: before ``fit``, and for other shapes.
        """
        if not hasattr(self, "shape_"):
            raise pc.PrivcalcError(f"{type(self).__name__}: must be fitted before it predicts")
        features = as_features(X, self.device)
        if (found := tuple(features.shape[1:])) != self.shape_:
            raise pc.PrivcalcError(f"X: records must have shape {self.shape_} as in fit, not {found}")
        scores = self._scores(features)
        return scores if self.student_ is None else self.student_(features, scores)

    def _scores(self, features: Tensor) -> Tensor:
        """A score per class, of features whose shape was checked."""
        return features @ self.weights_

    def predict(self, X: ArrayLike | Tensor) -> NDArray[Any]:
        """The predicted classes."""
        found: NDArray[Any] = np.asarray(self.classes)[self.scores(X).argmax(dim=1).cpu().numpy()]
        return found

    def predict_proba(self, X: ArrayLike | Tensor) -> NDArray[np.float64]:
        """The softmax of the scores, shape (records, classes); a softmax regression's are its probabilities."""
        found: NDArray[np.float64] = torch.softmax(self.scores(X).double(), dim=1).cpu().numpy()
        return found

    def score(self, X: ArrayLike | Tensor, y: ArrayLike) -> float:
        """The share of right predictions; on private records it is itself private."""
        predicted, labels = self.predict(X), errors.array("y", y).ravel()
        if len(labels) != len(predicted) or not len(labels):
            raise pc.PrivcalcError(
                f"y: must have a label for each of the {len(predicted)} rows of X, at least one; has {len(labels)}"
            )
        return float(np.mean(predicted == labels))

    def _losses(self, plan: Plan, size: int, norms_every: int) -> pc.RealisedLosses:
        """An empty account of what each record costs."""
        errors.count("norms_every", norms_every, least=1)
        if self.relation is not pc.ADD_OR_REMOVE_ONE:
            raise pc.PrivcalcError(f"norms_every: must be None under {self.relation}: losses depend on the replacement")
        (step, _), *more = plan.run.entries
        # Its noise need not be the plan's, where a sampler describes the whole step.
        inner, rate = (step.mechanism, step.rate) if type(step) is pc.PoissonSampled else (step, 1.0)
        if more or type(inner) is not pc.Gaussian:
            raise pc.PrivcalcError(
                f"norms_every: must be None for {plan.run}: only Gaussian noise on full or Poisson batches is measured"
            )
        return pc.RealisedLosses(size, inner.noise_multiplier, rate, clip_norm=1.0)  # of shares of it

    def _checked_public(
        self,
        X_public: ArrayLike | Tensor | None,
        y_public: ArrayLike | None,
        X: ArrayLike | Tensor,
        shape: tuple[int, ...],
    ) -> tuple[Tensor, Tensor] | None:
        """Public features and labels as tensors, if there are any and they are used."""
        if X_public is None:
            return None
        if y_public is None and self.needs_labels:
            raise pc.PrivcalcError("y_public: must be given with X_public")
        shared = self._public(X_public)
        given = [self.classes[0]] * len(shared) if y_public is None else y_public
        labels = as_labels(given, self.classes, self.device, name="y_public")
        if len(shared) != len(labels) or not len(labels):
            raise pc.PrivcalcError("X_public, y_public: must have the same number of records, at least one")
        if (found := tuple(shared.shape[1:])) != shape:
            raise pc.PrivcalcError(f"X_public: records must have shape {shape} as in X, not {found}")
        if is_private(X_public, X):
            raise pc.PrivcalcError("X_public: is X, or shares its memory; public records must not be private ones")
        return shared, labels

    def _said(self, start: object, unit: str, *, public: bool) -> tuple[pc.Assumptions, pc.Certificate | None]:
        """The assumptions that the code and the caller answer for; and the certificate of a first model, if any."""
        earlier = getattr(start, "certificate_", None) if isinstance(start, Learner) else None
        if isinstance(start, Learner) and earlier is None:
            raise pc.PrivcalcError(f"start = {start}: must be fitted, to have weights")
        if earlier is not None and (earlier.relation, earlier.document["unit"]) != (self.relation, unit):
            raise pc.PrivcalcError(
                f"start: must be certified under {self.relation} for {unit}, to be composed with this fit"
            )
        trained = self.assumptions.start or ("public" if public or start is not None else "random")
        said = dataclasses.replace(
            self.assumptions,
            # a number that is given is the caller's, who says nothing of where it comes from
            clip_norm=self.assumptions.clip_norm if getattr(self, "clip_norm", None) is None else None,
            public_records="public" if public else None,
            start="certificate" if earlier is not None else trained,
            other_releases=None if earlier is None else "composed",
        )
        return said, earlier

    def _told(self) -> Provenance:
        """Who did what of its releases: our code; for somebody else's class our page vouches for nothing."""
        page = self.page if is_ours(type(self)) else None
        return Provenance("clipped", divided=DIVIDED[self.assumptions.normaliser], by="learner", page=page)

    def _first(self) -> object:
        """What first weights were given, or the network that brings them; None if none were."""
        return None

    def _count(self, size: int) -> int:
        """The public number of records; 0 where nothing is divided by it."""
        return 0

    def _strength(self, plan: Plan, count: int) -> float:
        """See :meth:`Plan.strength`; 0 where it is not known."""
        return 0.0

    def _are_users(self, shape: tuple[int, ...], labels: tuple[int, ...]) -> bool:
        """Whether what is protected is a user, with a row of records each, from the shapes of X and y."""
        return False

    def _public(self, values: ArrayLike | Tensor) -> Tensor:
        """Public features."""
        return as_features(values, self.device, name="X_public")

    @property
    def _flat(self) -> bool:
        """Whether a record must be one row of numbers."""
        return True

    def _zeros(self, features: int) -> Tensor:
        return torch.zeros((features, len(self.classes)), device=self.device, dtype=torch.float64)


def digests(X_public: Any, y_public: Any, start: Any) -> dict[str, Any]:
    """The digests of public records, and of first weights, also released ones, for a certificate.

    Of private records there are none.
    """
    found = {"X_public": _kept(X_public)} if X_public is not None else {}
    if X_public is not None and y_public is not None:
        labels = _kept(y_public)
        found["y_public"] = labels if isinstance(labels, Tensor) or labels.dtype.kind in "biufU" else labels.astype(str)
    if start is not None:
        released = start.weights_ if isinstance(start, Learner) else start
        plain = isinstance(released, (Tensor, torch.nn.Module))
        found["start"] = released if plain else errors.numbers("start", released)
    named: dict[str, Any] = constants(found)
    return named


def _kept(values: ArrayLike | Tensor) -> Any:
    return values if isinstance(values, Tensor) else np.asarray(values)
