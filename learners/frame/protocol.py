"""What scikit-learn expects of an estimator, as far as a certificate allows it."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any, NoReturn, Self, TypeVar, cast

import privcalc as pc
from privcalc.errors import Suggesting

__all__ = ["Parameters", "alone"]

Method = TypeVar("Method", bound=Callable[..., Any])


def alone(fit: Method) -> Method:
    """A method that fits, by one thread at a time: of two fits at once the certificate would be of one."""

    @functools.wraps(fit)
    def fitted(self: Any, *args: Any, **kwargs: Any) -> Any:
        mine = object()
        if self.__dict__.setdefault("_fitting", mine) is not mine:
            raise pc.PrivcalcError(
                f"fit: this {type(self).__name__} is being fitted by another thread; make one for each"
            )
        try:
            return fit(self, *args, **kwargs)
        finally:
            del self._fitting

    return cast(Method, fitted)


class Parameters(metaclass=Suggesting):
    """The arguments of a learner, by name; and what is kept of one that is copied or pickled.

    ``sklearn.base.clone`` makes an unfitted learner with the same arguments. What fits many times (``GridSearchCV``,
    ``cross_val_score``, ensembles) is refused: no certificate would count it.
    """

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """The arguments it was made with.

        Args:
            deep: whether those of a learner among them are listed, too, as ``name__argument``.
        """
        found = {name: getattr(self, name) for name in inspect.signature(type(self)).parameters}
        for name, value in list(found.items()) if deep else ():
            if isinstance(value, Parameters):
                found |= {f"{name}__{inner}": each for inner, each in value.get_params().items()}
        return found

    def set_params(self, **params: Any) -> Self:
        """Change arguments, before ``fit``.

        Raises:
            PrivcalcError: if it was fitted, which its certificate is about; or for an unknown or wrong one: then none
                is changed.
        """
        own = self.get_params(deep=False)
        if getattr(self, "_spent", False) or hasattr(self, "certificate_"):
            raise pc.PrivcalcError(
                f"set_params: this {type(self).__name__} was fitted as it is; make another, and set those"
            )
        if unknown := sorted(set(params) - set(own)):
            raise pc.PrivcalcError(f"{unknown[0]}: must be an argument of {type(self).__name__}: {', '.join(own)}")
        type(self)(**{**own, **params})  # checks them
        for name, value in params.items():
            setattr(self, name, value)
        return self

    def __sklearn_tags__(self) -> NoReturn:
        """Asked for by whatever of scikit-learn takes estimators to fit them.

        Raises:
            PrivcalcError: always.
        """
        raise pc.PrivcalcError(
            f"{type(self).__name__}: must not be given to scikit-learn's searches, cross-validation, ensembles or "
            "pipelines: they fit many times, on records that are not sampled as planned, and no certificate would "
            "count it. learners.PrivateSearch makes a random number of trials and is charged for them "
            "(pc.RandomTrials, proofs/tuning.md)"
        )

    def __getstate__(self) -> dict[str, Any]:
        """What a copy or a pickle has: everything but the ledger, and the sensitive losses of single records."""
        return {name: value for name, value in vars(self).items() if name not in ("ledger_", "losses_", "_fitting")}
