"""Parameters of the estimators: what is allowed, and errors that name value and remedy."""

from __future__ import annotations

from numbers import Integral, Real
from typing import Any

import numpy as np

from scalefair._typing import Array

PENALTIES = ("normalized", "hsic", "nocco", "nocco_output")

MISSING_SENSITIVE = (
    "the sensitive attributes are missing, so the fit would be silently unfair; pass them to fit "
    "as fit(X, y, sensitive_features=s), or name columns of X in the constructor as "
    "sensitive_columns=['sex', 'race'], or ask for an ordinary fit with eta=0"
)


def check_number(name: str, value: Any, low: float, high: float = np.inf) -> float:
    """Return `value` as a float in [low, high], or raise an error that says what is expected."""
    if isinstance(value, bool | np.bool_) or not isinstance(value, Real):
        raise TypeError(f"{name}={value!r} is a {type(value).__name__}; give a number")
    if not low <= float(value) <= high:
        allowed = f"at least {low:g}" if high == np.inf else f"between {low:g} and {high:g}"
        raise ValueError(f"{name}={value!r} is out of range; it must be {allowed}")
    return float(value)


def check_count(name: str, value: Any) -> int:
    """Return `value` as an int of at least 1, or raise an error that says what is expected."""
    if isinstance(value, bool) or not isinstance(value, Integral):
        raise TypeError(f"{name}={value!r} is a {type(value).__name__}; give a positive integer")
    if value < 1:
        raise ValueError(f"{name}={value!r} must be at least 1; give a positive integer")
    return int(value)


def check_choice(name: str, value: Any, choices: tuple[str, ...]) -> None:
    """Raise ValueError unless `value` is one of the choices."""
    if not isinstance(value, str) or value not in choices:
        raise ValueError(f"{name}={value!r} is unknown; choose one of {', '.join(choices)}")


LARGEST_WEIGHT = 1e30
"""Beyond it products with the penalty lose all digits of the other terms, or overflow."""


def check_weight_or_limit(eta: Any, unfairness: Any) -> tuple[float, float | None]:
    """Return (eta, None) or (inf, unfairness); neither given means eta = 1."""
    if eta is not None and unfairness is not None:
        raise ValueError(
            f"eta={eta!r} and unfairness={unfairness!r} are both given; eta is a weight, "
            "unfairness a limit that finds eta itself: give one of them"
        )
    if unfairness is not None:
        return np.inf, check_number("unfairness", unfairness, 0.0, 1.0)
    weight = check_number("eta", 1.0 if eta is None else eta, 0.0)
    if LARGEST_WEIGHT < weight < np.inf:
        raise ValueError(
            f"eta={eta!r} is too large to compute with; use at most {LARGEST_WEIGHT:g}, or inf for "
            "the limit itself"
        )
    return weight, None


JOINED_RIDGE = 1e-3
"""Ridge of the blocks that join φ (s itself, a base prediction), relative to that of φ.

They need next to no ridge: they are few, and not smooth functions to be shrunk.
"""


def check_alpha(alpha: Any) -> dict[str, float]:
    """Return α as "phi" and the relative ridge of the other blocks.

    `alpha` is a number, or a dict with one ridge per block.
    """
    if not isinstance(alpha, dict):
        return {"phi": _finite("alpha", alpha), "psi": JOINED_RIDGE, "base": JOINED_RIDGE}
    unknown = set(alpha) - {"phi", "psi", "base"}
    if unknown or "phi" not in alpha:
        raise ValueError(
            f"alpha={alpha!r} must have the block 'phi' and may have 'psi' and 'base'; "
            f"remove {unknown or '{}'}"
        )
    ridges = {name: _finite(f"alpha[{name!r}]", value) for name, value in alpha.items()}
    if min(ridges.values()) <= 0:
        raise ValueError(f"alpha={alpha!r}: the ridges of blocks must be positive")
    relative = {name: ridge / ridges["phi"] for name, ridge in ridges.items() if name != "phi"}
    return {"psi": JOINED_RIDGE, "base": JOINED_RIDGE, **relative, "phi": ridges["phi"]}


def check_flag(name: str, value: Any) -> None:
    """Raise TypeError unless `value` is True or False: any text, even "no", is true."""
    if not isinstance(value, bool | np.bool_):
        raise TypeError(f"{name}={value!r} is a {type(value).__name__}; give True or False")


def check_grid(name: str, values: Any, low: float = 0.0, high: float = np.inf) -> Array:
    """Return the values of a grid, numbers in [low, high], as an array."""
    try:
        grid = np.atleast_1d(np.asarray(values, dtype=np.float64))
    except (TypeError, ValueError):
        grid = np.empty(0)
    if grid.ndim != 1 or grid.size == 0 or not ((low <= grid) & (grid <= high)).all():
        kind = ("finite " if high < np.inf else "") + ("positive" if low > 0 else "non-negative")
        raise ValueError(f"{name}={values!r} must be a list of {kind} numbers, at least one")
    return grid


FINITE = float(np.finfo(np.float64).max)
TINY = float(np.finfo(np.float64).tiny)


def _finite(name: str, value: Any) -> float:
    return check_number(name, value, 0.0, FINITE)


def check_penalty(penalty: Any, eps: Any) -> None:
    """Check the penalty's name and its ε, None being the default."""
    check_choice("penalty", penalty, PENALTIES)
    if eps is not None:
        _finite("eps", eps)


def check_closed_form(penalty: str, what: str) -> None:
    """Raise ValueError where a path or a limit is asked of a penalty that has no closed form."""
    if penalty == "nocco_output":
        raise ValueError(
            f"penalty='nocco_output' has no closed form, which {what} needs; use 'normalized', "
            "whose path goes through the same predictors"
        )
