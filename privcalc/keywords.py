"""Keywords as other libraries name them, or misspelt: which of ours was meant."""

from __future__ import annotations

import difflib
import inspect
import typing
from collections.abc import Callable, Iterable
from typing import Any

SYNONYMS = (
    ("epsilon", "eps", "target_epsilon", "target_eps"),
    ("delta", "target_delta"),
    ("noise_multiplier", "sigma", "z"),
    ("sample_rate", "rate", "q", "sampling_rate", "sampling_prob", "sampling_probability", "sample_probability"),
    ("steps", "count", "t", "num_steps", "n_steps", "iterations", "num_iterations", "max_iter", "num_compositions"),
    ("epochs", "num_epochs", "n_epochs", "passes"),
    ("batch_size", "expected_batch_size", "lot_size"),
    ("dataset_size", "n", "num_examples", "number_of_examples", "num_records", "sample_size", "records"),
    ("clip_norm", "sensitivity", "max_grad_norm", "l2_norm_clip", "clipping_norm", "clipping_threshold", "c"),
    ("edges", "bins"),
    ("params", "param_grid", "param_distributions"),
    ("mean", "n_iter"),
    ("lower", "low", "lower_bound"),
    ("upper", "high", "upper_bound"),
    ("scale", "b"),
    ("relation", "adjacency", "neighboring_relation", "neighbouring_relation"),
    ("alpha", "fpr"),
    ("beta", "fnr"),
    ("orders", "alphas"),
    ("groups", "keys", "categories", "partitions"),
    ("person", "user", "user_id", "privacy_unit"),
    ("rows_per_person", "max_contributions", "contribution_bound"),
)
"""Words for one thing, ours and those of Opacus, TensorFlow Privacy, dp-accounting, NumPy and papers."""


def meant(name: str, known: Iterable[str]) -> str | None:
    """The argument that a name stands for: a synonym, or one that is spelled nearly so.

    Example:
        >>> meant("sigma", ["noise_multiplier", "delta"]), meant("delat", ["epsilon", "delta"]), meant("x", ["delta"])
        ('noise_multiplier', 'delta', None)
    """
    word, names = name.lower(), list(known)
    same = {other for words in SYNONYMS if word in words for other in words}
    near = difflib.get_close_matches(word, names, n=1, cutoff=0.75)
    return next((one for one in names if one in same), near[0] if near else None)


def arguments(function: Callable[..., Any]) -> list[str]:
    """The keywords that a function takes, those of an unpacked dictionary among them.

    Raises:
        LookupError: if it takes any.
    """
    found = []
    for parameter in inspect.signature(function).parameters.values():
        if parameter.kind is parameter.VAR_KEYWORD:
            hints = typing.get_type_hints(function)
            (packed,) = typing.get_args(hints.get(parameter.name)) or (None,)
            if not typing.is_typeddict(packed):
                raise LookupError(parameter.name)
            found += list(packed.__annotations__)
        elif parameter.kind in (parameter.KEYWORD_ONLY, parameter.POSITIONAL_OR_KEYWORD) and parameter.name != "self":
            found.append(parameter.name)
    return found
