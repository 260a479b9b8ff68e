"""Every check of a parameter or of data, once; errors have attributes for their subject.

Callers need not parse the text.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from copy import copy
from numbers import Integral, Real
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from scalefair._typing import LARGEST, Array


class InputError(ValueError):
    """Data, a file or a parameter that cannot be used; the message is "what; remedy".

    Parameters
    ----------
    what, remedy : str
        What is wrong, and what to do about it.
    column, where : str, optional
        The column, and the file, argument or attribute it is about.
    """

    def __init__(self, what: str, remedy: str = "", *, column: str = "", where: str = "") -> None:
        super().__init__(f"{what}; {remedy}" if remedy else what)
        self.what, self.remedy, self.column, self.where = what, remedy, column, where

    def at(self, where: str) -> Self:
        """Return the same error about a place, which its message then begins with."""
        error = copy(self)
        error.where, error.what, error.args = where, f"{where}: {self.what}", (f"{where}: {self}",)
        return error


class UselessColumnError(InputError):
    """A column that no model can use: without values, constant, or different in every row."""


class CellError(InputError):
    """A cell of a csv file that is not of the type of its column."""


class CsvOptionError(InputError):
    """A csv file that can be read with another `value` of an `option`, or `otherwise`."""

    def __init__(self, what: str, option: str, value: str, otherwise: str = "", **about: str) -> None:
        super().__init__(what, f"give {option}={value!r}{otherwise}", **about)
        self.option, self.value, self.otherwise = option, value, otherwise


class UnsavableError(InputError):
    """An object, at `where`, that cannot be stored without storing code."""


class CannotJudgeError(InputError):
    """Predictions or attributes that an audit cannot judge, such as constant ones."""


class NotCertifiedError(InputError):
    """A limit that could not be certified with the rows given.

    Attributes
    ----------
    limit, confidence : float
        What was requested.
    least_limit : float
        The least limit that would have been certified.
    rows : float
        Approximate number of calibration rows that the limit would need; infinite if more rows would
        not help, because the estimate itself is beyond the limit.
    """

    def __init__(self, what: str, limit: float, confidence: float, least: float, rows: float):
        needs = (
            "the estimate itself is beyond the limit, so more rows would not help"
            if np.isinf(rows)
            else f"the limit would need about {float(f'{rows:.2g}'):,.0f} rows to calibrate with"
        )
        super().__init__(
            f"{what} is not certified to be at most {limit:g} with confidence {confidence:g}: {needs}",
            f"allow {least:.3g} or more, give more rows, or fit a fairer model",
        )
        self.limit, self.confidence, self.least_limit, self.rows = limit, confidence, least, rows


class LostWorkersError(RuntimeError):
    """Work that a dask cluster gave up, because its workers were lost."""


@contextmanager
def located(where: str) -> Iterator[None]:
    """Add a place to errors about input, such as a file or the argument of a column; "": none."""
    try:
        yield
    except ValueError as error:
        if not where:
            raise
        if isinstance(error, InputError):
            raise error.at(where) from error
        raise InputError(f"{where}: {error}", where=where) from error


FINITE = float(np.finfo(np.float64).max)
TINY = float(np.finfo(np.float64).tiny)

CLASSES_REMEDY = "convert it; classes are for a classifier, such as FairKernelClassifier"

LARGEST_WEIGHT = 1e30  # Beyond it products with the penalty lose all digits of the other terms, or overflow
JOINED_RIDGE = 1e-3
"""Ridge of the blocks that join φ (s itself, a base prediction), relative to that of φ.

They need almost no ridge: they are few, and not smooth functions to be shrunk.
"""

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


def check_weight_or_limit(eta: Any, unfairness: Any) -> tuple[float, float | None]:
    """Return (eta, None) or (inf, unfairness); neither given means eta = 1."""
    if eta is not None and unfairness is not None:
        raise ValueError(
            f"eta={eta!r} and unfairness={unfairness!r} are both given; eta is a weight, "
            "unfairness a limit that determines eta: give one of them"
        )
    if unfairness is not None:
        return np.inf, check_number("unfairness", unfairness, 0.0, 1.0)
    weight = check_number("eta", 1.0 if eta is None else eta, 0.0)
    if LARGEST_WEIGHT < weight < np.inf:
        raise ValueError(
            f"eta={eta!r} is too large to compute with; use at most {LARGEST_WEIGHT:g}, or inf for the limit itself"
        )
    return weight, None


AUTO_ALPHAS = (1e-7, 1e-3)  # alpha="auto" is between these: few rows need more than 1/n at times, many none at all


def check_alpha(alpha: Any, n_rows: float = np.inf, curvature: float = 2.0) -> dict[str, float]:
    """Return α, a number, "auto" or one ridge per block, as "phi" and the relative ridge of other blocks.

    "auto" is ½κ/n, a ridge as strong as one row of a loss with mean curvature κ, within bounds of 1/n.
    """
    alpha = curvature / 2 * float(np.clip(1 / max(n_rows, 1), *AUTO_ALPHAS)) if isinstance(alpha, str) else alpha
    if not isinstance(alpha, dict):
        ridge = check_number("alpha", alpha, 0.0, FINITE)
        return {"phi": ridge, "psi": JOINED_RIDGE, "base": JOINED_RIDGE}
    unknown = set(alpha) - {"phi", "psi", "base"}
    if unknown or "phi" not in alpha:
        remedy = f"remove {', '.join(map(repr, unknown))}" if unknown else "add 'phi'"
        raise ValueError(f"alpha={alpha!r} must have the block 'phi' and may have 'psi' and 'base'; {remedy}")
    ridges = {name: check_number(f"alpha[{name!r}]", value, 0.0, FINITE) for name, value in alpha.items()}
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


def check_closed_form(penalty: str, what: str) -> None:
    """Raise ValueError where a path or a limit needs a closed form that the penalty does not have."""
    if penalty == "nocco_output":
        raise ValueError(
            f"penalty='nocco_output' has no closed form, which {what} needs; use 'normalized', "
            "whose path goes through the same predictors"
        )


def check_finite(name: str, values: NDArray[Any], largest: float = LARGEST, names: Sequence[str] | None = None) -> None:
    """Raise an InputError that names the first column with NaN, infinity or a huge number."""
    if values.size == 0 or values.dtype.kind not in "fiu":
        return
    # As floats, which are wider than float32; neither holds of NaN.
    if float(values.max()) <= largest and float(values.min()) >= -largest:
        return
    values = values.reshape(len(values), -1).astype(np.float64)
    good = np.abs(values) <= largest
    column = int(np.flatnonzero(~good.all(axis=0))[0])
    wrong = "NaN or infinite" if not np.isfinite(values[:, column]).all() else f"beyond {largest:g}"
    which = str(column) if names is None else names[column]
    raise InputError(
        f"{name} has {int((~good[:, column]).sum())} value(s) in column "
        f"{column if names is None else repr(which)} that are {wrong}",
        "fill them in or rescale them, or leave those rows out",
        column=which,
        where=name,
    )


def resolve_columns(chosen: str | int | Iterable[str | int], names: Sequence[str] | None, width: int) -> list[int]:
    """Return the positions of columns among `names` (None: only positions will do)."""
    wanted = [chosen] if isinstance(chosen, str | int | np.integer) else list(chosen)
    return [_position(column, names, width) for column in wanted]


def _position(column: Any, names: Sequence[str] | None, width: int) -> int:
    if isinstance(column, str):
        if names is not None and column in names:
            return names.index(column)
        raise InputError(_unknown_name(column, names), column=column)
    if isinstance(column, bool) or not isinstance(column, int | np.integer):
        raise TypeError(f"column {column!r}: expected a name or a position, got {type(column).__name__}")
    if not 0 <= column < width:
        what = f"column {column}: expected a position from 0 to {width - 1}"
        raise InputError(what, column=str(column))
    return int(column)


def _unknown_name(name: str, names: Sequence[str] | None) -> str:
    if names is None:
        return f"column {name!r}: the table has no column names; give positions or a data frame"
    near = difflib.get_close_matches(name, names, n=3)
    hint = f"; did you mean {' or '.join(map(repr, near))}?" if near else "."
    more = ", ..." if len(names) > 20 else ""
    return f"column {name!r} is not in the table{hint} Available: {', '.join(names[:20])}{more}"
