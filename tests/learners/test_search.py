"""Private tuning: K has its law, all that is released costs what the certificate says, and scikit-learn's protocol."""

from __future__ import annotations

import copy
import math
import pickle
import warnings
from dataclasses import dataclass

import numpy as np
import pytest
from scipy import stats

import privcalc as pc
from privcalc.noise.bits import SeededBits
from privcalc.noise.source import Noise

torch = pytest.importorskip("torch")
import learners.search  # noqa: E402
from learners import DPSGD, NoisyGD, PrivateSearch  # noqa: E402
from learners.frame.learner import Learner  # noqa: E402
from learners.frame.plan import Plan  # noqa: E402

STEP = pc.Gaussian(1.0)
ALARM = 1e-7
X, Y = np.eye(2).repeat(30, axis=0), np.repeat([0, 1], 30)
COMMON = {"classes": [0, 1], "delta": 1e-3}


@dataclass(kw_only=True, eq=False)
class Tiny(Learner):
    """Releases the sum of one column plus noise; predicts 1 where that is above a threshold. As quick as can be."""

    above: float = 0.0
    source: object = None

    def plan(self):
        return Plan(STEP.run, 1.0, pc.Guarantee(mu=1.0), self.relation)

    def _train(self, private, plan, count, public):
        raise NotImplementedError

    def fit(self, x, y, *_):
        self.found = float(np.asarray(x)[:, 0].sum() + self.source.standard_normal())
        self.shape_, self.noise_multiplier_ = (1,), 1.0
        return self

    def __deepcopy__(self, memo):
        return self

    def _scores(self, features):
        return torch.tensor([[0.0, self.found - self.above]]).repeat(len(features), 1)


class Shared(np.random.Generator):
    """One stream of noise for all trials."""

    def __deepcopy__(self, memo):
        return self


@pytest.mark.parametrize(
    ("distribution", "mean"), [("poisson", 0.3), ("poisson", 4.75), ("geometric", 6.0), ("logarithmic", 3.0)]
)
def test_the_number_of_trials_has_its_law(distribution, mean):
    trials, noise = pc.RandomTrials(STEP, mean=mean, distribution=distribution), Noise(SeededBits(5, 0))
    found = np.bincount([trials.draw(noise) for _ in range(2500)], minlength=40)[:40]
    gamma = trials.gamma
    law = {
        "poisson": stats.poisson(mean),
        "geometric": stats.geom(gamma or 0.5),
        "logarithmic": stats.logser(1 - (gamma or 0.5)),
    }
    expected = 2500 * law[distribution].pmf(np.arange(40))
    few = expected < 8
    observed, wanted = (
        np.append(found[~few], 2500 - found[~few].sum()),
        np.append(expected[~few], 2500 - expected[~few].sum()),
    )
    assert stats.chisquare(observed[wanted > 0], wanted[wanted > 0]).pvalue > ALARM
    assert trials.draw() >= (distribution != "poisson")


def outcomes(column, times, rng):
    """In how many searches the best trial is above the threshold."""
    tiny, seen = Tiny(**COMMON, above=2.0, source=Shared(rng.bit_generator)), 0
    for _ in range(times):
        search = PrivateSearch(estimator=tiny, params={"above": [2.0]}, mean=8, distribution="geometric")
        search.fit(column, [0] * len(column), X_score=np.full((1, 1), 7.0), y_score=[1])
        seen += search.best_score_ == 1.0
    return seen


def test_the_best_trial_has_the_law_that_is_bounded_and_of_a_fixed_number_it_has_not(monkeypatch, uncertified):
    """A trial is a noisy number; the best of K passes the threshold with 1 − f(1 − a), without and with a record."""
    monkeypatch.setattr(PrivateSearch, "_restated", lambda *_: None)
    rng, claim, times = np.random.default_rng(1), pc.RandomTrials(STEP, mean=8, distribution="geometric"), 150
    chances = claim.law.better(stats.norm.sf([2.0, 1.0]))
    allowed = claim.epsilon(delta=1e-9).upper
    assert chances[1] <= math.exp(allowed) * chances[0] + 1e-9
    for column, chance in zip((np.zeros((1, 1)), np.ones((1, 1))), chances, strict=True):
        low, high = stats.binomtest(outcomes(column, times, rng), times).proportion_ci(1 - ALARM, "exact")
        assert low <= chance <= high
    monkeypatch.setattr(pc.RandomTrials, "draw", lambda *_: 8)  # planted
    low, _ = stats.binomtest(outcomes(np.ones((1, 1)), 700, rng), 700).proportion_ci(1 - ALARM, "exact")
    assert low > chances[1]


def test_a_score_without_its_noise_tells_a_record(monkeypatch, uncertified):
    """Planted: right predictions of held-out records released as they are; with noise the same attack finds nothing."""
    monkeypatch.setattr(PrivateSearch, "_restated", lambda *_: None)
    monkeypatch.setattr(learners.search, "_coins", lambda rng, size, rate: np.ones(size, dtype=bool))
    tiny = Tiny(**COMMON, above=-99.0, source=Shared(np.random.default_rng(0).bit_generator))
    noise = pc.Gaussian(2.0)

    def told(size):
        found = PrivateSearch(estimator=tiny, params={}, mean=2, distribution="logarithmic", score_noise=noise)
        return found.fit(np.zeros((size, 1)), [1] * size).best_score_ > 40.5

    assert 0 < np.mean([told(40) for _ in range(30)]) < 1
    with monkeypatch.context() as patch:
        patch.setattr(PrivateSearch, "_noisy", lambda self, right, _: float(right))
        assert {told(40) for _ in range(5)} == {False}
        assert {told(41) for _ in range(5)} == {True}


class Loud(Tiny):
    """Warns in every trial; and of a batch it predicts by what else is in it, as last bits of sums may."""

    def fit(self, x, y, *_):
        warnings.warn(f"loud: {len(x)}", pc.PrivcalcWarning, stacklevel=1)
        return super().fit(x, y)

    def predict(self, x):
        return np.full(len(x), len(x) % 2)


def test_warnings_do_not_tell_how_many_trials_there_are(monkeypatch, uncertified):
    monkeypatch.setattr(PrivateSearch, "_restated", lambda *_: None)
    loud = Loud(**COMMON, source=Shared(np.random.default_rng(0).bit_generator))
    told = []
    for number in (1, 5):
        monkeypatch.setattr(pc.RandomTrials, "draw", lambda *_, number=number: number)
        search = PrivateSearch(estimator=loud, params={}, mean=2, distribution="geometric")
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            search.fit(np.zeros((9, 1)), [0] * 9, X_score=np.zeros((1, 1)), y_score=[0])
        told.append([str(warning.message) for warning in seen])
    assert told[0] == told[1]


def test_one_record_more_moves_the_score_by_one():
    model = Loud(**COMMON)
    counts = [learners.search._right(model, np.zeros((size, 1)), np.ones(size)) for size in range(9)]
    assert set(np.diff(counts)) <= {0, 1}


def searched(**options):
    one = NoisyGD(**COMMON, noise_multiplier=3.0, steps=4, records=40)
    given = {"params": {"learning_rate": [0.5, 2.0], "steps": [2, 4]}, "mean": 3, "distribution": "geometric"}
    return PrivateSearch(**({"estimator": one} | given | {"score_noise": pc.Laplace(2.0)} | options))


def test_what_is_released_says_what_all_of_it_cost():
    search = searched()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert search.fit(X, Y) is search
    run = pc.Gaussian(3.0) * 4 + pc.Laplace(2.0)
    assert search.certificate_.run == search.trials_.run == pc.RandomTrials(run, mean=3, distribution="geometric").run
    best = search.best_estimator_
    assert best.certificate_ is search.certificate_
    assert best.epsilon_ == search.certificate_.guarantee.epsilon > run.epsilon(delta=1e-3)
    assert best.plan_.run == search.certificate_.run
    assert best.get_params()["learning_rate"] == search.best_params_["learning_rate"]
    entries = {entry["name"]: entry["by"] for entry in search.certificate_.document["assumptions"]["needed"]}
    assert entries["trials"] == "code"
    assert search.predict(X).shape == (60,)
    assert search.predict_proba(X).sum(axis=1) == pytest.approx(np.ones(60))
    with pytest.raises(pc.PrivcalcError, match="was fitted"):
        search.fit(X, Y)
    assert "cv_results_" not in vars(search)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"params": {"steps": [4, 5]}, "mean": 400}, "is not part of the estimator's"),
        ({"params": {"noise_multiplier": [1.0]}}, "is not part of the estimator's"),
        ({"params": {"delta": [1e-3]}}, "'delta' must be an argument of the estimator that may be tuned"),
        ({"params": {"rate": [1.0]}}, "'rate' must be an argument"),
        ({"params": {"steps": []}}, "a list of at least one value"),
        ({"params": {"steps": 4}}, "a list of at least one value"),
        ({"score_noise": 3.0}, "score_noise = 3.0: must be Gaussian or Laplace"),
        ({"holdout": 1.0}, "holdout"),
        ({"estimator": 3}, "must be a learner"),
        ({"estimator": NoisyGD(**COMMON, noise_multiplier=3.0, steps=4, records=40, seed=1)}, "have no seed"),
        ({"score_noise": None}, "X_score, y_score"),
        ({"distribution": "fixed"}, "distribution"),
    ],
    ids=[
        "steps",
        "noise",
        "delta",
        "unknown",
        "empty",
        "number",
        "score",
        "holdout",
        "estimator",
        "seed",
        "public",
        "law",
    ],
)
def test_refused_before_anything_is_charged(options, said):
    with pytest.raises(pc.PrivcalcError, match=said):
        searched(**options).fit(X, Y)


def test_no_trial_and_a_public_score(uncertified):
    public = np.eye(2), [0, 1]
    search = searched(score_noise=None, distribution="poisson", mean=1e-9).fit(
        X, Y, X_score=public[0], y_score=public[1]
    )
    assert search.best_estimator_ is None
    with pytest.raises(pc.PrivcalcError, match="no trial"):
        search.predict(X)
    with pytest.raises(pc.PrivcalcError, match="must be fitted"):
        searched().predict(X)
    with pytest.raises(pc.PrivcalcError, match="X_score: is X"):
        searched(score_noise=None).fit(X, Y, X_score=X, y_score=Y)


# --- scikit-learn's protocol ---


def test_copies_have_the_arguments_and_pickles_no_ledger():
    sklearn = pytest.importorskip("sklearn.base")
    model = DPSGD(**COMMON, noise_multiplier=3.0, steps=4, records=60, sample_rate=0.5)
    assert sklearn.clone(model).get_params() == model.get_params() == model.get_params(deep=False)
    model.set_params(steps=3, learning_rate=0.5)
    assert (model.steps, model.learning_rate) == (3, 0.5)
    with pytest.raises(pc.PrivcalcError, match="stepz: must be an argument of DPSGD: "):
        model.set_params(stepz=3)
    with pytest.raises(pc.PrivcalcError):
        model.set_params(steps=5, schedule="no", sample_rate=7.0, sampler="no")
    assert model.steps == 3
    assert not hasattr(model, "classes_")
    with pytest.raises(pc.PrivcalcError, match="must be fitted before it predicts"):
        model.predict_proba(X)
    model.fit(X, Y, norms_every=1)
    assert model.classes_.tolist() == [0, 1]
    assert model.n_features_in_ == 2
    proba = model.predict_proba(X)
    assert proba.sum(axis=1) == pytest.approx(np.ones(60))
    assert (model.classes_[proba.argmax(axis=1)] == model.predict(X)).all()
    with pytest.raises(pc.PrivcalcError, match=r"records must have shape \(2,\) as in fit, not \(3,\)"):
        model.predict(np.ones((4, 3)))
    with pytest.raises(pc.PrivcalcError, match="was fitted as it is"):
        model.set_params(steps=4)
    for other in (pickle.loads(pickle.dumps(model)), copy.deepcopy(model)):
        assert not {"ledger_", "losses_"} & set(vars(other))
        assert (other.predict(X) == model.predict(X)).all()
        assert other.certificate_.document == model.certificate_.document
        with pytest.raises(pc.PrivcalcError, match="was fitted"):
            other.fit(X, Y)
    assert not hasattr(sklearn.clone(model), "certificate_")
    search = searched()
    assert search.get_params()["estimator__steps"] == 4
    assert sklearn.clone(search).get_params(deep=False).keys() == search.get_params(deep=False).keys()


@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_what_fits_many_times_is_refused_and_nothing_is_fitted(monkeypatch):
    """Clones of a learner were each fitted, and the certificate of the best one knew of none of the others."""
    selection = pytest.importorskip("sklearn.model_selection")
    monkeypatch.setattr(NoisyGD, "fit", lambda *_: pytest.fail("was fitted"))
    model = NoisyGD(**COMMON, noise_multiplier=3.0, steps=4, records=40)
    grid = {"learning_rate": [0.1, 1.0]}
    for call in (
        lambda: selection.GridSearchCV(model, grid).fit(X, Y),
        lambda: selection.RandomizedSearchCV(model, grid, n_iter=1, scoring="accuracy").fit(X, Y),
        lambda: selection.cross_val_score(model, X, Y),
        lambda: selection.cross_validate(model, X, Y, cv=2),
        lambda: selection.cross_val_predict(model, X, Y),
        lambda: selection.learning_curve(model, X, Y),
        lambda: selection.validation_curve(model, X, Y, param_name="learning_rate", param_range=[1.0]),
    ):
        with pytest.raises(
            pc.PrivcalcError, match=r"learners\.PrivateSearch makes a random number of trials.*pc\.RandomTrials"
        ):
            call()
