"""What all data sets share: the shipped files, the checks of arguments, the containers."""

from __future__ import annotations

import gzip
import math
from importlib.resources import files
from numbers import Real
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd
    from sklearn.utils import Bunch


def read_shipped(name: str) -> str:
    """Return the text of the shipped file `name`, given without its .gz."""
    return gzip.decompress((files(__package__) / "data" / f"{name}.gz").read_bytes()).decode()


def make_bunch(**items: Any) -> Bunch:
    """Return a `sklearn.utils.Bunch`; imported here because scikit-learn imports pandas."""
    from sklearn.utils import Bunch

    return Bunch(**items)


def as_container(frame: pd.DataFrame, as_frame: bool) -> Any:
    """Return the frame, or its values: float64 when all columns are numbers, else objects."""
    return frame if as_frame else frame.to_numpy()


def check_finite(name: str, value: object, *, kind: str = "any") -> float:
    """Return a finite number as float; its kind is "any", "at least 0" or "above 0"."""
    if isinstance(value, bool) or not isinstance(value, Real):
        raise TypeError(f"{name}={value!r} is a {type(value).__name__}; give a finite number.")
    number = float(value)
    fits = {"any": True, "at least 0": number >= 0, "above 0": number > 0}[kind]
    if not (math.isfinite(number) and fits):
        wanted = "" if kind == "any" else f" {kind}"
        raise ValueError(f"{name}={value!r} is out of range; give a finite number{wanted}.")
    return number


def check_seed(random_state: object) -> np.random.RandomState:
    """Return a RandomState: its streams are frozen, so a seed means one table for ever."""
    from sklearn.utils import check_random_state

    try:
        rng: np.random.RandomState = check_random_state(random_state)
    except ValueError as error:
        raise ValueError(
            f"random_state={random_state!r} is no seed; give None, a whole number from 0 to "
            "2**32 - 1 or a numpy.random.RandomState."
        ) from error
    return rng
