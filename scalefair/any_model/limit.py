"""The distance of a frontier from the known optimum: the best predictor, centred and rescaled.

Where s is among the inputs, no predictor of a given share has less error than a multiple of h − c(E[h|s] − E h), h =
E[y|x], for some c in [0, 1]. The best available h takes the place of E[y|x]. Where s is hidden, give the prediction of
a model that sees it as `h`: then the gap is what hiding costs.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from scalefair._hash import hash_uniform
from scalefair._typing import Array, Chunk, DataFrame, Shaped, WithPath
from scalefair.data import frames
from scalefair.data.encoding import asked_before
from scalefair.estimators.ridge import RidgeBase
from scalefair.features.base_model import predictions
from scalefair.features.cross_fit import SUSPICIOUS
from scalefair.features.mixed import Units
from scalefair.measures import explained_share
from scalefair.moments import Moments
from scalefair.penalties import attribute_root
from scalefair.solve.limit import NotAttainableError

LIMITS = (0.0, 0.005, 0.01, 0.02, 0.035, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.5)
POINTS = 50
SHRINKAGES = (0.0, 0.2, 0.4, 0.5, 0.6, 0.7, 0.75, 0.8, 0.85, 0.9, 0.95, 1.0)


@dataclass(frozen=True, eq=False)
class Centring:
    """h − c(E[h|s] − E h), rescaled: means and covariances of ψ(s), h and y, with g = E[h|s].

    They are learnt on other rows than those it is judged on: learnt on the same rows, E[h|s] would
    leave them less dependence than new rows have.
    """

    means: tuple[Array, float, float]  # of ψ, h and y
    slope: Array  # g − E h = (ψ(s) − mean)ᵀ slope
    variances: tuple[float, float, float]  # Var h, Cov(h, g), Var g
    along: tuple[float, float]  # covariances of h and of g with y

    @classmethod
    def of_moments(cls, moments: Moments, features: tuple[str, ...], coef: Array, intercept: float = 0.0) -> Centring:
        """Learn it for h = Φ coef + intercept, from moments."""
        m, C = moments, moments.covariance
        C_psi_h, (_, root) = C("psi", features) @ coef, attribute_root(m, None)
        slope = np.asarray(root @ (root.T @ C_psi_h))
        g = float(slope @ C("psi", "psi") @ slope)
        variances = float(coef @ C(features, features) @ coef), float(slope @ C_psi_h), g
        along = float(C("y", features)[0] @ coef), float(slope @ C("psi", "y")[:, 0])
        mean_h = float(m.mean(*features) @ coef) + intercept
        return cls((m.mean("psi"), mean_h, m.mean("y")[0]), slope, variances, along)

    @classmethod
    def of_rows(cls, Psi: Array, h: Array, y: Array, units: Units = ()) -> Centring:
        """Learn it from rows; `units` say what the columns of ψ are."""
        known = {"psi": units} if units else {}
        rows = {"phi": h[:, None], "psi": Psi, "y": y[:, None]}
        return cls.of_moments(Moments.of_rows(rows, np.ones(len(h)), known), ("phi",), np.ones(1))

    def apply(self, Psi: Array, h: Array, c: float) -> Array:
        """Return the centred h at one c, at the scale of least error."""
        mean_psi, mean_h, mean_y = self.means
        around = (h - mean_h) - c * ((Psi - mean_psi) @ self.slope)
        hh, hg, gg = self.variances
        variance = hh - 2 * c * hg + c**2 * gg
        scale = (self.along[0] - c * self.along[1]) / variance if variance > 0 else 0.0
        return np.asarray(mean_y + scale * around)


class CurvePoint(NamedTuple):
    """Predictions of one point of a curve, and the rows that are judged apart from each other."""

    curve: str
    parameter: float
    f: Array
    apart: tuple[NDArray[np.intp], ...] = ()


@dataclass(frozen=True, eq=False)
class LimitGap:
    """Result of :func:`scalefair.limit_gap`.

    Parameters
    ----------
    table : DataFrame
        Columns curve ("model" or "limit"), parameter (the limit u on the share, or the shrinkage
        c), share and rmse, on the rows judged.
    gap : float
        Mean of rmse / limit's rmse − 1 over the shares that both curves cover: 0.02 is two per cent
        more error than the limit.
    best : str
        The predictor h that defines the optimum: "base_estimator", "eta=0" or "given".
    """

    table: DataFrame
    gap: float
    best: str

    def rmse(self, share: float, curve: str = "model") -> float:
        """Return the error at a share, interpolated along a curve ("model" or "limit")."""
        return float(_along(self.table, curve, np.array([share]))[0])

    def plot(self, ax: Any = None) -> Any:
        """Draw both curves; return the display."""
        from scalefair.plots import LimitGapDisplay

        return LimitGapDisplay(self.table, self.gap).plot(ax=ax)


def limit_gap(estimator: Any, X: Any, y: Any, *, sensitive_features: Any = None, h: Any = None) -> LimitGap:
    """Compare the frontier of a fitted estimator with the known optimum, on held-out rows.

    Parameters
    ----------
    estimator : FairRidge, FairKernelRidge or FairKernelRidgeCV
        Fitted, with one target.
    X, y : array or frame of shape (n, d), array of shape (n,)
        Rows that neither the estimator nor its base model has seen, in memory.
    sensitive_features : array, Series or frame, optional
        As in `fit`; not needed if the estimator has `sensitive_columns`.
    h : array of shape (n,), optional
        Another prediction of y on these rows; the best of it, the base model and the estimator at
        eta = 0 defines the optimum.

    Returns
    -------
    LimitGap

    Warns
    -----
    UserWarning
        If the error of the base model on these rows is less than half that on rows it has not seen.
    """
    _check_estimator(estimator, y)
    y, rows = np.asarray(y, dtype=np.float64), X if isinstance(X, Shaped) else np.asarray(X)
    chunk = estimator._design.preparation.split(Chunk(rows, sensitive_features))
    candidates = _candidates(estimator, X, chunk, h)
    _warn_of_seen(estimator, candidates.get("base_estimator"), y)
    best = min(candidates, key=lambda name: float(np.mean((candidates[name] - y) ** 2)))
    points = [*_fair_points(estimator, X), *_limit_points(estimator, chunk.s, best, candidates, y)]
    table = frames.make_frame(
        {
            "curve": [point.curve for point in points],
            "parameter": [point.parameter for point in points],
            "share": [_share_of(point, chunk.s) for point in points],
            "rmse": [float(np.sqrt(np.mean((point.f - y) ** 2))) for point in points],
        }
    )
    spans = table.groupby("curve")["share"].agg(["min", "max"])
    low, high = float(spans["min"].max()), float(spans["max"].min())
    shares = np.linspace(low, max(high, low), POINTS)
    model, limit = (_along(table, curve, shares) for curve in ("model", "limit"))
    return LimitGap(table, float(np.mean(model / limit - 1.0)), best)


def _check_estimator(estimator: Any, y: Any) -> None:
    has_path = isinstance(estimator, WithPath | RidgeBase)
    if not has_path or "moments_" not in vars(estimator):
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
        raise ValueError("X and y are the rows of fit: their number and the mean of y are the same; give other rows")


def _warn_of_seen(estimator: Any, h: Array | None, y: Array) -> None:
    """Warn of rows on which the base model errs far less than out of its folds."""
    if h is None:
        return
    m, apart = estimator.moments_, np.array([1.0, -1.0])  # y − h
    C = m.covariance(("y", "base"), ("y", "base"))[:2, :2]
    expected = float(apart @ C @ apart + (m.mean("y")[0] - m.mean("base")[0]) ** 2)
    error = float(np.mean((h - y) ** 2))
    if error < SUSPICIOUS * expected:
        warnings.warn(
            "the base model was most likely fitted on some of these rows: its squared error on them is "
            f"{error / expected:.2g} times that out of its folds; give other rows",
            stacklevel=3,
        )


def _candidates(estimator: Any, X: Any, chunk: Chunk, h: Any) -> dict[str, Array]:
    plain = estimator.path().at(eta=0.0).predict(X)
    candidates = {"eta=0": plain}
    if estimator.base_estimator_ is not None:
        base = predictions(estimator.base_estimator_, chunk.x, "probability")
        candidates["base_estimator"] = base[:, 0]
    if h is not None:
        candidates["given"] = given = np.asarray(h, dtype=np.float64)
        if given.shape != plain.shape:
            raise ValueError(f"h has shape {given.shape}; give one prediction for each of the {len(plain)} rows of X")
    return candidates


def _fair_points(estimator: Any, X: Any) -> list[CurvePoint]:
    path = estimator.path_ if isinstance(estimator, WithPath) else estimator.path()
    points = []
    for limit in LIMITS:
        try:
            with warnings.catch_warnings():
                warnings.filterwarnings("ignore", "unfairness=.* constant", UserWarning)
                model = path.at(unfairness=limit)
        except NotAttainableError:
            continue
        if not np.any(model.coef_):  # a constant has no share
            continue
        points.append(CurvePoint("model", limit, np.asarray(model.predict(X))))
        if model.eta_ == 0:  # larger limits do not bind
            break
    return points


def _limit_points(estimator: Any, s: Any, best: str, candidates: dict[str, Array], y: Array) -> list[CurvePoint]:
    """h − c(E[h|s] − E h) for several c; a given h is centred by halves, each by the other."""
    encoded = np.asarray(estimator._design.preparation.sensitive_encoder.transform(s))
    Psi = np.asarray(estimator.psi_.transform(encoded), dtype=np.float64)
    h = candidates[best]
    if best != "given":
        moments, plain = estimator.moments_, estimator.path().at(eta=0.0)
        if best == "base_estimator":
            learnt = Centring.of_moments(moments, ("base",), np.eye(moments.blocks["base"])[0])
        else:
            of_plain = plain._design.features, plain.coef_, plain.intercept_
            learnt = Centring.of_moments(moments, *of_plain)
        return [CurvePoint("limit", c, learnt.apply(Psi, h, c)) for c in SHRINKAGES]
    half = hash_uniform(0, np.arange(len(h))) < 0.5
    halves = np.flatnonzero(half), np.flatnonzero(~half)
    units = estimator.moments_.units.get("psi", ())
    centrings = [Centring.of_rows(Psi[rows], h[rows], y[rows], units) for rows in halves[::-1]]
    points = []
    for c in SHRINKAGES:
        f = np.empty_like(h)
        for rows, centring in zip(halves, centrings, strict=True):
            f[rows] = centring.apply(Psi[rows], h[rows], c)
        points.append(CurvePoint("limit", c, f, halves))
    return points


def _share_of(point: CurvePoint, s: Any) -> float:
    parts = [(point.f[rows], frames.take_rows(s, rows)) for rows in point.apart]
    with asked_before():
        return float(np.mean([explained_share(f, s) for f, s in parts or [(point.f, s)]]))


def _along(table: DataFrame, curve: str, shares: Array) -> Array:
    """Least error so far, from small shares to large ones, interpolated."""
    rows = table[table["curve"] == curve].sort_values("share")
    return np.interp(shares, rows["share"], np.minimum.accumulate(rows["rmse"]))
