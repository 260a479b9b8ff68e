"""Proxies: how much of each sensitive attribute the columns of X give away."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.special import ndtri

from scalefair._typing import Array, Chunk
from scalefair.data import frames
from scalefair.errors import check_number
from scalefair.features.base import n_features
from scalefair.features.design import Design
from scalefair.features.exact import Identity, OneHot
from scalefair.features.mixed import Units
from scalefair.features.nystroem import Nystroem
from scalefair.features.product import ConcatMap
from scalefair.features.training import Training, open_inputs
from scalefair.measures.explanation import Split, View, standard_errors
from scalefair.moments import Moments, accumulate
from scalefair.penalties import corrected, degrees_of_freedom

if TYPE_CHECKING:
    import pandas as pd

ALL = "(all columns)"
CURVE_COMPONENTS = 16
"""Landmarks of the functions of one column: they are smooth."""


def proxies(
    X: Any, *, sensitive_features: Any, sample_weight: Any = None, confidence: float = 0.95
) -> pd.DataFrame:
    """Measure how much of each sensitive attribute every column of X, and all, give away.

    Parameters
    ----------
    X : array, frame, dask collection, Scan or BatchSource of shape (n, d)
        Columns: numbers, categories or both; a missing value is told apart from others.
    sensitive_features : the same, of shape (n,) or (n, p)
        Attributes; None with a BatchSource, which brings them.
    sample_weight : array-like of shape (n,), optional
        Relative: a common factor changes nothing.
    confidence : float
        Level of the intervals.

    Returns
    -------
    data frame with the columns
        attribute : a sensitive attribute
        column : a column of X, or "(all columns)"
        linear, linear_low, linear_high : share of the variance of the attribute that the best
            linear function of the column explains, and its interval
        nonlinear, nonlinear_low, nonlinear_high : the same for the best smooth function; of all
            columns, the best sum of smooth functions of each

    Notes
    -----
    For a number the share is R², for categories that of their indicators together (Goodman and
    Kruskal's τ where the column is a category, too; all functions of a category are linear). It is
    corrected for chance as held-out shares are, (r − t)/(1 − t) with t the degrees of freedom over
    n − 1, and not below 0. The interval is ± z standard errors, by the influence of the rows. Rows
    are read three times (survey, shares, errors), and memory does not grow with them.

    Examples
    --------
    >>> import numpy as np
    >>> from scalefair import proxies
    >>> rng = np.random.default_rng(0)
    >>> sex = rng.choice(["f", "m"], 2000)
    >>> X = rng.normal(size=(2000, 2)) + np.outer(sex == "m", [1.0, 0.0])
    >>> proxies(X, sensitive_features=sex)[["column", "linear", "nonlinear"]].round(2)
              column  linear  nonlinear
    0             x0    0.19       0.19
    1             x1    0.00       0.00
    2  (all columns)    0.19       0.19
    """
    z = float(ndtri(0.5 + check_number("confidence", confidence, 0.0, 1.0) / 2))
    training = open_inputs(Chunk(X, sensitive_features, None, sample_weight), {})
    columns = _Columns(training)
    design = Design(
        columns.phi, _targets(training), 0, whiten_rows=True, preparation=training.preparation
    )
    (moments,) = accumulate(training.source, design)
    cells = [
        (name, W, view)
        for name, W in _attributes(training, design, moments)
        for view in columns.views(moments)
    ]
    splits = [Split.of(moments, W, view) for _, W, view in cells]
    errors = standard_errors(training.source, design, moments, splits)
    rows: dict[tuple[str, str], list[float]] = {}
    for (name, _, view), split, (error,) in zip(cells, splits, errors, strict=True):
        share = corrected(split.values[0], split.freedom[0] / degrees_of_freedom(moments))
        ends = np.clip([share, share - z * error, share + z * error], 0.0, 1.0)
        rows.setdefault((name, view.name), []).extend(ends)
    heads = ["linear", "linear_low", "linear_high"]
    heads += [head.replace("linear", "nonlinear") for head in heads]
    table: dict[str, Any] = {"attribute": [a for a, _ in rows], "column": [c for _, c in rows]}
    # All functions of a category are linear: what was measured once holds for both.
    numbers = np.array([(values * 2)[:6] for values in rows.values()])
    return frames.make_frame(table | dict(zip(heads, numbers.T, strict=True)))


class _Columns:
    """The columns of X: inputs as they are encoded, and smooth functions of those with numbers."""

    def __init__(self, training: Training) -> None:
        sample = training.sample
        statistics = training.survey.parts["x"].columns
        named = training.preparation.input_columns(statistics.names)
        kinds = [column.kind for column in statistics.columns]
        self.names = [name for name, _ in named]
        self.linear = [np.arange(at.start, at.stop) for _, at in named]
        self.is_number = [kind in ("numeric", "datetime") for kind in kinds]
        parts: list[Any] = [(Identity(), np.arange(sample.x.shape[1]))]
        curved = [
            number and bool(np.ptp(sample.x[:, at], axis=0).any())
            for number, at in zip(self.is_number, self.linear, strict=True)
        ]
        curve = Nystroem(
            length_scale="standardized", n_components=CURVE_COMPONENTS, random_state=0
        )
        parts += [(curve, at) for at, own in zip(self.linear, curved, strict=True) if own]
        self.phi = ConcatMap(parts).fit(sample.x, sample_weight=sample.weight)
        stops = np.cumsum([n_features(part) for part, _ in self.phi.parts_])
        spans = iter(np.arange(a, b) for a, b in zip(stops[:-1], stops[1:], strict=True))
        self.curves = [next(spans) if own else None for own in curved]

    def views(self, moments: Moments) -> list[View]:
        """Return what linear and, where they differ, smooth functions of each column see."""
        unit, both = np.eye(len(moments.shift)), zip(self.linear, self.curves, strict=True)
        ways: list[tuple[str, list[tuple[str, Array]]]] = []
        linear, smooth = [], []
        for name, number, (at, curve) in zip(self.names, self.is_number, both, strict=True):
            linear.append(("columns" if number else "groups", at))
            smooth.append(linear[-1] if curve is None else ("kernel", curve))
            ways += [(name, linear[-1:])] + [(name, smooth[-1:])] * (curve is not None)
        ways += [(ALL, linear), (ALL, smooth)]
        return [View(name, {"psi": unit[:, _at(way)]}, {"psi": _units(way)}) for name, way in ways]


def _at(way: list[tuple[str, Array]]) -> Array:
    return np.concatenate([at for _, at in way])


def _units(way: list[tuple[str, Array]]) -> Units:
    """Return the units of columns of several kinds, put side by side."""
    stops = np.cumsum([len(at) for _, at in way])
    return tuple(
        (kind, np.arange(b - len(at), b)) for (kind, at), b in zip(way, stops, strict=True)
    )


def _targets(training: Training) -> ConcatMap:
    """Return the map of attributes to numbers and indicators, one part each."""
    encoder: Any = training.preparation.sensitive_encoder
    levels = [len(encoder.levels_.get(name, ())) for name in encoder.names_]
    rows = np.repeat(training.sample.s[:1], max(2, *levels), axis=0)
    for j, count in enumerate(levels):
        if count:
            rows[:, j] = np.arange(len(rows)) % count
    parts = [(OneHot() if count else Identity(), [j]) for j, count in enumerate(levels)]
    return ConcatMap(parts).fit(rows)


def _attributes(
    training: Training, design: Design, moments: Moments
) -> list[tuple[str, Array]]:
    """Return the names of the attributes, and W that takes each from the rows."""
    encoder: Any = training.preparation.sensitive_encoder
    psi: Any = design.psi
    stops = np.cumsum([n_features(part) for part, _ in psi.parts_])[:-1]
    unit = np.eye(len(moments.shift))
    spans = np.split(moments.span("psi"), stops)
    return [(name, unit[:, None, at]) for name, at in zip(encoder.names_, spans, strict=True)]
