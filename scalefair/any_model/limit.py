"""How far a frontier is from the known limit: the best predictor, centred and rescaled.

Where s is among the inputs, no predictor of a given share has less error than a multiple of
h − c(E[h|s] − E h), h = E[y|x], for some c in [0, 1] (METHOD.md section 9). The best h at hand
takes the place of E[y|x]. A model that may not see s cannot reach the limit: the gap is what hiding
costs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from scalefair import _frames
from scalefair._hash import balanced_fold
from scalefair._linalg import inverse_root
from scalefair._typing import Array, Chunk
from scalefair.estimators._base_model import predictions
from scalefair.measures import explained_share

if TYPE_CHECKING:
    import pandas as pd

LIMITS = (0.0, 0.005, 0.01, 0.02, 0.035, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.5)
SHRINKAGES = (0.0, 0.2, 0.4, 0.5, 0.6, 0.7, 0.75, 0.8, 0.85, 0.9, 0.95, 1.0)
FOLDS = 5
POINTS = 50


@dataclass(frozen=True, eq=False)
class LimitGap:
    """What :func:`limit_gap` returns.

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
    """
    _check(estimator, y)
    y = np.asarray(y, dtype=np.float64)
    chunk = estimator._preparation.split(Chunk(_plain(X), sensitive_features))
    candidates = _candidates(estimator, X, chunk, h)
    best = min(candidates, key=lambda name: float(np.mean((candidates[name] - y) ** 2)))
    rows = [
        *(("model", u, f) for u, f in _fair_predictions(estimator, X)),
        *(("limit", c, f) for c, f in centred(estimator, chunk.s, candidates[best])),
    ]
    # The scale is free: both curves are judged at their best one.
    errors = [_rmse(_rescaled(f, y) if curve == "limit" else f, y) for curve, _, f in rows]
    table = _frames.make_frame(
        {
            "curve": [curve for curve, _, _ in rows],
            "parameter": [value for _, value, _ in rows],
            "share": [explained_share(f, chunk.s) for _, _, f in rows],
            "rmse": errors,
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


def _candidates(estimator: Any, X: Any, chunk: Chunk, h: Any) -> dict[str, Array]:
    found = {"eta=0": estimator.path().estimator(estimator._ridges()["phi"], 0.0).predict(X)}
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


def _fair_predictions(estimator: Any, X: Any) -> list[tuple[float, Array]]:
    path = getattr(estimator, "path_", None) or estimator.path()
    made = []
    for limit in LIMITS:
        try:
            model = path.limited(limit)
        except ValueError:  # below what these features can reach
            continue
        made.append((limit, np.asarray(model.predict(X))))
        if model.eta_ == 0:  # larger limits do not bind
            break
    return made


def centred(estimator: Any, s: Any, h: Array) -> list[tuple[float, Array]]:
    """Return (c, h − c(E[h|s] − E h)) for several c; E[h|s] is learnt out of fold, on ψ(s)."""
    encoded = np.asarray(estimator._preparation.sensitive_encoder.transform(s))
    Psi = np.asarray(estimator.psi_.transform(encoded), dtype=np.float64)
    eps = float(getattr(estimator, "eps_", estimator.eps))
    fold = balanced_fold(FOLDS, 0, np.arange(len(h)))
    expected = np.empty_like(h)
    for k in range(FOLDS):
        train, held = fold != k, fold == k
        mean, level = Psi[train].mean(axis=0), h[train].mean()
        centred_rows = Psi[train] - mean
        root = inverse_root(centred_rows.T @ centred_rows / train.sum(), eps)
        slope = root @ (root.T @ (centred_rows.T @ (h[train] - level))) / train.sum()
        expected[held] = level + (Psi[held] - mean) @ slope
    return [(c, h - c * (expected - h.mean())) for c in SHRINKAGES]


def _rescaled(f: Array, y: Array) -> Array:
    around = f - f.mean()
    return np.asarray(y.mean() + around * (around @ (y - y.mean())) / (around @ around))


def _rmse(f: Array, y: Array) -> float:
    return float(np.sqrt(np.mean((f - y) ** 2)))


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
