"""How far a frontier is from the known limit: the best predictor, centred and rescaled.

Where s is among the inputs, no predictor of a given share has less error than a multiple of
h − c(E[h|s] − E h), h = E[y|x], for some c in [0, 1] (METHOD.md section 9). The best h at hand
takes the place of E[y|x]. Where s is hidden, give the prediction of a model that sees it as `h`:
then the gap is what hiding costs.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from scalefair import _frames
from scalefair._hash import hash_uniform
from scalefair._typing import Array, Chunk
from scalefair.any_model.centring import SHRINKAGES, Centring
from scalefair.encoding import asked_before
from scalefair.estimators._base_model import predictions
from scalefair.estimators._cross_fit import SUSPICIOUS
from scalefair.measures import explained_share

if TYPE_CHECKING:
    import pandas as pd

LIMITS = (0.0, 0.005, 0.01, 0.02, 0.035, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.5)
POINTS = 50


@dataclass(frozen=True, eq=False)
class Point:
    """Predictions of one point of a curve, and the rows that are judged apart from each other."""

    curve: str
    parameter: float
    f: Array
    apart: tuple[Any, ...] = (slice(None),)


@dataclass(frozen=True, eq=False)
class LimitGap:
    """What :func:`scalefair.limit_gap` returns.

    Parameters
    ----------
    table : DataFrame
        Columns curve ("model" or "limit"), parameter (the limit u on the share, or the shrinkage
        c), share and rmse, on the rows judged.
    gap : float
        Mean of rmse / limit's rmse − 1 over the shares that both curves cover: 0.02 is two per cent
        more error than the limit.
    best : str
        The predictor h that the limit is made of: "base_estimator", "eta=0" or "given".
    """

    table: pd.DataFrame
    gap: float
    best: str

    def rmse(self, share: float, curve: str = "model") -> float:
        """Return the error at a share, interpolated along a curve ("model" or "limit")."""
        return float(_along(self.table, curve, np.array([share]))[0])

    def plot(self, ax: Any = None) -> Any:
        """Draw both curves; return the display."""
        from scalefair.plots import LimitGapDisplay

        return LimitGapDisplay(self.table, self.gap).plot(ax=ax)


def limit_gap(
    estimator: Any, X: Any, y: Any, *, sensitive_features: Any = None, h: Any = None
) -> LimitGap:
    """Compare the frontier of a fitted estimator with the known limit, on held-out rows.

    Parameters
    ----------
    estimator : FairRidge, FairKernelRidge or FairKernelRidgeCV
        Fitted, with one target.
    X, y : array or frame of shape (n, d), array of shape (n,)
        Rows that neither the estimator nor its base model has seen, in memory.
    sensitive_features : array, Series or frame, optional
        As in `fit`; not needed where the estimator has `sensitive_columns`.
    h : array of shape (n,), optional
        Another prediction of y on these rows; the best of it, the base model and the estimator at
        eta = 0 makes the limit.

    Returns
    -------
    LimitGap

    Warns
    -----
    UserWarning
        Where the base model errs on these rows less than half as much as on rows that it has not
        seen.
    """
    _check(estimator, y)
    y = np.asarray(y, dtype=np.float64)
    chunk = estimator._preparation.split(Chunk(_plain(X), sensitive_features))
    candidates = _candidates(estimator, X, chunk, h)
    _warn_of_seen(estimator, candidates.get("base_estimator"), y)
    best = min(candidates, key=lambda name: float(np.mean((candidates[name] - y) ** 2)))
    points = [*_fair_points(estimator, X), *_limit_points(estimator, chunk.s, best, candidates, y)]
    table = _frames.make_frame(
        {
            "curve": [point.curve for point in points],
            "parameter": [point.parameter for point in points],
            "share": [_share(point, chunk.s) for point in points],
            "rmse": [float(np.sqrt(np.mean((point.f - y) ** 2))) for point in points],
        }
    )
    return LimitGap(table, _mean_excess(table), best)


def _plain(X: Any) -> Any:
    return X if hasattr(X, "shape") else np.asarray(X)


def _check(estimator: Any, y: Any) -> None:
    if not hasattr(estimator, "moments_") or not hasattr(estimator, "path"):
        raise TypeError(
            f"estimator is a {type(estimator).__name__}; give a fitted FairRidge, FairKernelRidge "
            "or FairKernelRidgeCV with explicit features"
        )
    if estimator.psi_ is None or not estimator._one_target:
        raise ValueError(
            "the limit is for one target and sensitive attributes that the estimator was fitted "
            "with; fit it with sensitive_features or sensitive_columns, and a y of one dimension"
        )
    moments = estimator.moments_
    mean = float(np.mean(np.asarray(y, dtype=np.float64)))
    same = len(y) == moments.n_rows and np.isclose(mean, moments.mean("y")[0], rtol=1e-13, atol=0)
    if same:
        raise ValueError(
            "X and y are the rows of fit: their number and the mean of y are the same; give rows "
            "that the estimator has not seen"
        )


def _warn_of_seen(estimator: Any, h: Array | None, y: Array) -> None:
    """Warn of rows on which the base model errs far less than out of its folds."""
    if h is None:
        return
    moments, first = estimator.moments_, np.eye(estimator.moments_.blocks["base"])[0]
    C_y, C_hy, C_h = (
        moments.covariance("y", "y")[0, 0],
        first @ moments.covariance("base", "y")[:, 0],
        first @ moments.covariance("base", "base") @ first,
    )
    bias = float(moments.mean("y")[0] - moments.mean("base")[0])
    expected = float(C_y - 2 * C_hy + C_h) + bias**2
    found = float(np.mean((h - y) ** 2))
    if found < SUSPICIOUS * expected:
        warnings.warn(
            "the base model has seen some of these rows, most likely: its squared error on them is "
            f"{found / expected:.2g} times that out of its folds; give rows that it has not seen",
            stacklevel=3,
        )


def _candidates(estimator: Any, X: Any, chunk: Chunk, h: Any) -> dict[str, Array]:
    found = {"eta=0": estimator.path().at(eta=0.0).predict(X)}
    if estimator.base_estimator_ is not None:
        found["base_estimator"] = predictions(estimator.base_estimator_, chunk.x, "probability")[
            :, 0
        ]
    if h is not None:
        found["given"] = np.asarray(h, dtype=np.float64)
        if found["given"].shape != found["eta=0"].shape:
            raise ValueError(
                f"h has shape {found['given'].shape}; give one prediction for each of the "
                f"{len(found['eta=0'])} rows of X"
            )
    return found


def _fair_points(estimator: Any, X: Any) -> list[Point]:
    path = getattr(estimator, "path_", None) or estimator.path()
    made = []
    for limit in LIMITS:
        try:
            model = path.at(unfairness=limit)
        except ValueError:  # below what these features can reach
            continue
        made.append(Point("model", limit, np.asarray(model.predict(X))))
        if model.eta_ == 0:  # larger limits do not bind
            break
    return made


def _limit_points(
    estimator: Any, s: Any, best: str, candidates: dict[str, Array], y: Array
) -> list[Point]:
    """h − c(E[h|s] − E h) for several c; a given h is centred by halves, each by the other."""
    encoded = np.asarray(estimator._preparation.sensitive_encoder.transform(s))
    Psi = np.asarray(estimator.psi_.transform(encoded), dtype=np.float64)
    h = candidates[best]
    if best != "given":
        learnt = _learnt(estimator, best)
        return [Point("limit", c, learnt.apply(Psi, h, c)) for c in SHRINKAGES]
    half = hash_uniform(0, np.arange(len(h))) < 0.5
    halves = np.flatnonzero(half), np.flatnonzero(~half)
    units = estimator.moments_.units.get("psi", ())
    centrings = [Centring.of_rows(Psi[rows], h[rows], y[rows], units) for rows in halves[::-1]]
    points = []
    for c in SHRINKAGES:
        f = np.empty_like(h)
        for rows, centring in zip(halves, centrings, strict=True):
            f[rows] = centring.apply(Psi[rows], h[rows], c)
        points.append(Point("limit", c, f, halves))
    return points


def _learnt(estimator: Any, best: str) -> Centring:
    """The centring of the base model or of the fit at η = 0, from the moments of the fit."""
    moments = estimator.moments_
    if best == "base_estimator":
        first = np.eye(moments.blocks["base"])[0]
        return Centring.of_moments(moments, ("base",), first)
    plain = estimator.path().at(eta=0.0)
    found = Centring.of_moments(moments, plain._features, plain.coef_)
    mean_psi, mean_h, mean_y = found.means
    return replace(found, means=(mean_psi, mean_h + plain.intercept_, mean_y))


def _share(point: Point, s: Any) -> float:
    shares = []
    for rows in point.apart:
        some = s if isinstance(rows, slice) else _frames.take_rows(s, rows)
        with asked_before():
            shares.append(explained_share(point.f[rows], some))
    return float(np.mean(shares))


def _along(table: pd.DataFrame, curve: str, shares: Array) -> Array:
    """Least error so far, from small shares to large ones, interpolated."""
    rows = table[table["curve"] == curve].sort_values("share")
    return np.interp(shares, rows["share"], np.minimum.accumulate(rows["rmse"]))


def _mean_excess(table: pd.DataFrame) -> float:
    spans = table.groupby("curve")["share"].agg(["min", "max"])
    low, high = float(spans["min"].max()), float(spans["max"].min())
    shares = np.linspace(low, max(high, low), POINTS)
    model, limit = (_along(table, curve, shares) for curve in ("model", "limit"))
    return float(np.mean(model / limit - 1.0))
