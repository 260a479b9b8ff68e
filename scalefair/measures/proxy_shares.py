"""Proxies: how much the columns of X reveal about each sensitive attribute."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
from scipy.sparse import eye_array
from scipy.special import ndtri
from sklearn.base import clone

from scalefair._typing import Array, Chunk, DataFrame
from scalefair.data import frames
from scalefair.errors import check_number
from scalefair.features.base import n_features
from scalefair.features.design import Design
from scalefair.features.exact import Identity, OneHot
from scalefair.features.nystroem import Nystroem
from scalefair.features.product import ConcatMap, ProductMap
from scalefair.features.training import Training, open_inputs
from scalefair.measures.split import Split, View, standard_errors
from scalefair.moments import accumulate
from scalefair.penalties import corrected, degrees_of_freedom

ALL = "(all columns)"
CURVE = Nystroem(length_scale="standardized", landmarks="kmeans++", random_state=0)
"""Smooth functions of one column; landmarks reach into long tails."""

CURVE_COMPONENTS, MAX_CURVES = 16, 2000
"""Functions of one column, and of all together: fewer of each where columns are many."""


def proxies(X: Any, *, sensitive_features: Any, sample_weight: Any = None, confidence: float = 0.95) -> DataFrame:
    """Measure how much each column of X, and all together, reveal about each sensitive attribute.

    Parameters
    ----------
    X : array, frame, dask collection, Scan or BatchSource of shape (n, d)
        Columns: numbers, categories or both; missing values count as a level.
    sensitive_features : the same, of shape (n,) or (n, p)
        Attributes; None with a BatchSource, which has its own.
    sample_weight : array-like of shape (n,), optional
        Relative: a common factor changes nothing.
    confidence : float
        Level of the intervals.

    Returns
    -------
    data frame
        Columns `attribute` and `column`, of X or "(all columns)". `linear`, `linear_low`,
        `linear_high`: share of the variance of the attribute that the best linear function of the
        column explains, and its interval. `nonlinear`, `nonlinear_low`, `nonlinear_high`: the same
        for the best smooth function; of all columns, the best sum of smooth functions of each.

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
    0             x0    0.21       0.21
    1             x1    0.00       0.00
    2  (all columns)    0.21       0.21
    """
    z = float(ndtri(0.5 + check_number("confidence", confidence, 0.0, 1.0) / 2))
    training = open_inputs(Chunk(X, sensitive_features, None, sample_weight), {})
    phi, ways = _columns(training)
    names, psi = _attributes(training)
    design = Design(phi, psi, 0, whiten_rows=True, preparation=training.preparation)
    (moments,) = accumulate(training.source, design)
    unit = eye_array(len(moments.shift), format="csc")
    stops = np.cumsum([n_features(part) for part, _ in psi.parts_])[:-1]
    targets = [unit[:, at] for at in np.split(moments.span("psi"), stops)]
    views = [_column_view(name, way, unit) for name, way in ways]
    splits = [Split.of(moments, W, W.shape[1], view) for W in targets for view in views]
    errors = standard_errors(training.source, design, moments, splits)
    rows: dict[tuple[str, str], list[float]] = {}
    cells = [(name, view.name) for name in names for view in views]
    for cell, split, (error,) in zip(cells, splits, errors, strict=True):
        share = corrected(split.values[0], split.freedom / degrees_of_freedom(moments))
        ends = np.clip([share, share - z * error, share + z * error], 0.0, 1.0)
        rows.setdefault(cell, []).extend(ends)
    heads = [f"{way}{end}" for way in ("linear", "nonlinear") for end in ("", "_low", "_high")]
    # All functions of a category are linear: what was measured once holds for both.
    numbers = np.array([(values * 2)[:6] for values in rows.values()])
    labels = dict(zip(("attribute", "column"), np.array(list(rows), dtype=object).T, strict=True))
    return frames.make_frame(labels | dict(zip(heads, numbers.T, strict=True)))


Way = list[tuple[str, Array]]
"""Kinds (see `features.mixed.units_of`) and columns of φ(x) whose functions are meant."""


def _columns(training: Training) -> tuple[ConcatMap, list[tuple[str, Way]]]:
    """Return φ(x) = [x, curves of numbers], and linear and smooth ways to use each column."""
    sample, statistics = training.sample, training.survey.parts["x"].columns
    columns = training.preparation.input_columns([column.name for column in statistics.columns])
    parts: list[Any] = [(Identity(), slice(None))]
    numbers = [column.kind in ("numeric", "datetime") for column in statistics.columns]
    curved = [number and bool(np.ptp(sample.x[:, at])) for number, (_, at) in zip(numbers, columns, strict=True)]
    size = int(np.clip(MAX_CURVES // max(sum(curved), 1), 4, CURVE_COMPONENTS))
    curve = clone(CURVE).set_params(n_components=size)
    # Each is whitened by itself: a product with one matrix for all would take most of the time.
    whitened = ProductMap([(curve, [0])], whiten="rows")
    parts += [(whitened, at) for (_, at), own in zip(columns, curved, strict=True) if own]
    phi = ConcatMap(parts).fit(sample.x, sample_weight=sample.weight)
    stops = pairwise(np.cumsum([n_features(part) for part, _ in phi.parts_]))
    ways: list[tuple[str, Way]] = []
    linear, smooth = [], []
    for (name, at), number, own in zip(columns, numbers, curved, strict=True):
        linear.append(("columns" if number else "groups", np.arange(at.start, at.stop)))
        smooth.append(("kernel", np.arange(*next(stops))) if own else linear[-1])
        ways += [(name, linear[-1:])] + [(name, smooth[-1:])] * own
    return phi, [*ways, (ALL, linear), (ALL, smooth)]


def _column_view(name: str, way: Way, unit: Any) -> View:
    """Return the columns of a way as the attributes that explain."""
    stops = np.cumsum([len(at) for _, at in way])
    units = tuple((kind, np.arange(b - len(at), b)) for (kind, at), b in zip(way, stops, strict=True))
    return View(name, {"psi": unit[:, np.concatenate([at for _, at in way])]}, {"psi": units})


def _attributes(training: Training) -> tuple[list[str], ConcatMap]:
    """Return the names of the attributes and their map to numbers and indicators, a part each."""
    encoder: Any = training.preparation.sensitive_encoder
    levels = [len(encoder.levels_.get(name, ())) for name in encoder.names_]
    rows = np.repeat(training.sample.s[:1], max(levels) + 1, axis=0)
    for j, count in enumerate(levels):
        rows[:, j] = np.arange(len(rows)) % max(count, 1)
    parts = [(OneHot() if count else Identity(), [j]) for j, count in enumerate(levels)]
    return encoder.names_, ConcatMap(parts).fit(rows)
