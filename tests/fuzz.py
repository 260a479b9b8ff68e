"""Fuzzing: strategies for data, and what counts as an honest answer.

An honest answer is a result that meets its invariants, or an error that somebody wrote: a
ValueError or TypeError from a `raise` of scalefair or of scikit-learn's validation. An error that
comes out of numpy, scipy or Python itself is a finding, and so is a warning nobody wrote.

``SCALEFAIR_FUZZ=50 pytest tests/fuzzing`` tries 50 times as many cases, other
ones in each run.
"""

from __future__ import annotations

import linecache
import os
import traceback
import warnings
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from scipy.linalg import LinAlgWarning

FACTOR = int(os.environ.get("SCALEFAIR_FUZZ", "1"))
WRITTEN_IN = ("scalefair", "sklearn")


def cases(count):
    """Return hypothesis settings: so many cases, more at night (which ones: see conftest.py)."""
    return settings(max_examples=count * FACTOR, suppress_health_check=list(HealthCheck))


class Refused(NamedTuple):
    """An honest refusal."""

    message: str


def honest(call, *arguments, **options):
    """Return what a call returns, or `Refused`; raise whatever nobody has written."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for kind in (UserWarning, LinAlgWarning):  # those that somebody wrote
            warnings.simplefilter("ignore", kind)
        try:
            return call(*arguments, **options)
        except (ValueError, TypeError) as error:
            if not is_written(error):
                raise
            return Refused(str(error))


def is_written(error):
    """Say whether an error comes from a `raise` of scalefair or scikit-learn, with a message."""
    last = traceback.extract_tb(error.__traceback__)[-1]
    line = linecache.getline(last.filename, last.lineno).strip()
    home = set(WRITTEN_IN) & set(Path(last.filename).parts)
    return bool(home) and line.startswith("raise") and len(str(error)) > 15


class Data(NamedTuple):
    """A data set in some container."""

    X: object
    y: object
    s: object
    weight: object


EXPONENTS = st.sampled_from([0] * 8 + [-3, 3, 6, -6, 12, -12, -30, 30, 100, -100, 155, -155, 300])
"""Scales, as powers of ten: most of them ordinary."""

SEEDS = st.integers(0, 2**32 - 1)


@st.composite
def columns(draw, n):
    """One numeric column: ordinary, tied, constant, one value, heavy-tailed, far from 0."""
    rng = np.random.default_rng(draw(SEEDS))
    kind = draw(st.sampled_from(["normal", "normal", "ties", "constant", "one", "heavy", "far"]))
    values = rng.normal(size=n)
    if kind == "ties":
        values = rng.integers(0, 3, n).astype(float)
    elif kind == "constant":
        values = np.full(n, values[0] if n else 0.0)
    elif kind == "one":
        values = (np.arange(n) == n // 2).astype(float)
    elif kind == "heavy":
        values = np.clip(rng.standard_cauchy(n), -1e8, 1e8)
    elif kind == "far":
        values = values + 10.0 ** draw(st.integers(1, 9))
    with np.errstate(over="ignore", under="ignore"):
        return values * 10.0 ** draw(EXPONENTS)


@st.composite
def matrices(draw, n, least=1, most=4):
    """Columns side by side, then: rows doubled, or not finite, other dtypes and memory layouts."""
    d = draw(st.integers(least, most))
    X = np.stack([draw(columns(n)) for _ in range(d)], axis=1)
    if draw(st.booleans()) and n > 1:
        rng = np.random.default_rng(draw(SEEDS))
        X = X[rng.integers(0, max(1, n // draw(st.integers(1, 4))), n)]
    if draw(st.integers(0, 19)) == 7 and X.size:
        X.flat[draw(st.integers(0, X.size - 1))] = draw(st.sampled_from([np.nan, np.inf, -np.inf]))
    return laid_out(draw, X)


def laid_out(draw, X):
    """Return the same numbers in another dtype, order or stride, perhaps read-only."""
    kind = draw(st.sampled_from(["f8"] * 6 + ["f4", "f4", "i8", "?", "f2", "O", ">f8"]))
    most = {"f4": 1e38, "i8": 1e18, "f2": 6e4}.get(kind, np.inf)
    if kind in ("f8", "O", ">f8", "?") or np.abs(X).max(initial=0) < most:
        X = X.astype(kind)
    layout = draw(st.sampled_from(["C", "F", "strided", "backwards"]))
    if layout == "F":
        X = np.asfortranarray(X)
    elif layout == "strided":
        wide = np.repeat(np.repeat(X, 2, axis=0), 3, axis=-1)
        X = wide[::2, ::3] if X.ndim == 2 else np.repeat(X, 2)[::2]
    elif layout == "backwards":
        X = X[::-1].copy()[::-1]
    if draw(st.booleans()):
        X.flags.writeable = False
    return X


@st.composite
def texts(draw, n, missing=True):
    """A column of text, categories, booleans, nullable integers or dates, some values missing."""
    rng = np.random.default_rng(draw(SEEDS))
    levels = draw(st.lists(st.text(max_size=5), min_size=1, max_size=5, unique=True))
    kind = draw(st.sampled_from(["object", "category", "string", "bool", "Int64", "date"]))
    codes = rng.integers(0, len(levels), n)
    if kind == "bool":
        return pd.Series(codes > 0)
    if kind == "Int64":
        values = pd.Series(codes * 10 ** draw(st.integers(0, 15)), dtype="Int64")
    elif kind == "date":
        values = pd.Series(pd.Timestamp("2000-01-01") + pd.to_timedelta(codes, unit="D"))
    else:
        values = pd.Series([levels[code] for code in codes], dtype=kind)
    if missing and draw(st.booleans()):
        values[rng.random(n) < 0.3] = None
    return values


@st.composite
def frames(draw, n, missing=True):
    """A data frame of numbers and categories."""
    d = draw(st.integers(1, 4))
    made = {}
    for i in range(d):
        if draw(st.booleans()):
            column = pd.Series(draw(columns(n)))
            if missing and draw(st.booleans()):
                column[np.random.default_rng(draw(SEEDS)).random(n) < 0.3] = np.nan
        else:
            column = draw(texts(n, missing))
        made[draw(st.sampled_from([f"c{i}", f"é {i}", str(i)]))] = column
    return pd.DataFrame(made)


def sensitive(n):
    """Sensitive attributes: one or two columns, numbers or categories."""
    codes = SEEDS.map(lambda seed: np.random.default_rng(seed).integers(0, 3, n))
    words = codes.map(lambda code: np.array(["a", "b", "ü"], dtype=object)[code])
    return st.one_of(
        codes,
        words,
        columns(n),
        matrices(n, most=2),
        frames(n, missing=False),
        words.map(lambda w: pd.Series(w, dtype="category")),
    )


def sizes(most=30):
    """Numbers of rows: few more often than many."""
    return st.one_of(st.integers(1, 6), st.integers(2, most))


@st.composite
def weights(draw, n):
    """No weights, equal ones, integers with zeros, or of very different sizes."""
    rng = np.random.default_rng(draw(SEEDS))
    kind = draw(st.sampled_from(["none", "none", "one", "counts", "wide", "huge", "zero"]))
    choices = {
        "none": None,
        "one": np.ones(n),
        "counts": rng.integers(0, 4, n),
        "wide": 10.0 ** rng.uniform(-8, 8, n),
        "huge": np.full(n, 1e200),
        "zero": np.zeros(n),
    }
    return choices[kind]


@st.composite
def data_sets(draw, classes=False, most=30):
    """Rows to fit on."""
    n = draw(sizes(most))
    X = draw(st.one_of(matrices(n), matrices(n), frames(n)))
    if classes:
        rng = np.random.default_rng(draw(SEEDS))
        y = rng.integers(0, draw(st.integers(1, 4)), n)
        y = draw(st.sampled_from([y, y.astype(str), y > 0, y.astype(float) * 1e6]))
    elif draw(st.booleans()):
        y = draw(columns(n))
    else:
        y = np.ravel(draw(matrices(n, most=1)))
        y = y if draw(st.booleans()) else np.stack([y, y[::-1]], axis=1)
    s = draw(sensitive(n)) if draw(st.integers(0, 9)) else None
    return Data(X, y, s, draw(weights(n)))


def answered(value):
    """Assert that predictions are finite."""
    value = np.asarray(value)
    if value.dtype.kind == "f":
        assert np.isfinite(value).all(), f"predictions are not finite: {value[:5]}"
    return value
