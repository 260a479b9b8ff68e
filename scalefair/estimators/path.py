"""Accuracy–fairness frontiers: a closed form has one in its moments, a general loss in fits."""

from __future__ import annotations

from abc import ABC, abstractmethod
from base64 import b64encode
from collections.abc import Sequence
from copy import copy
from functools import cached_property
from typing import Any

import numpy as np

from scalefair import held_out, penalties
from scalefair._typing import Array, DataFrame
from scalefair.data import frames
from scalefair.errors import MISSING_SENSITIVE, check_number
from scalefair.solve.limit import NotAttainableError
from scalefair.solve.ridge.path import GridScores, Spectrum, choose, grid, side_by_side, squared_errors
from scalefair.solve.ridge.search import warn_of_constant
from scalefair.solve.ridge.system import System

MAX_NOTEBOOK_ROWS = 12
BOUND = f"held-out share with {held_out.MARGIN:g} standard errors"


class PathBase(ABC):
    """What every path has: a table of fits, its front, estimators and a picture."""

    @cached_property
    @abstractmethod
    def table(self) -> DataFrame:
        """The fits as a data frame, one row each."""

    def __getstate__(self) -> dict[str, Any]:
        # skops has no type for data frames; the table can be made again.
        return {name: value for name, value in vars(self).items() if name != "table"}

    @property
    @abstractmethod
    def _criteria(self) -> tuple[str, str]:
        """Columns of the share and of the error that fits are compared by."""

    def front(self) -> DataFrame:
        """Return the rows that no other row beats in both error and share, by increasing share.

        Held-out numbers are compared where there are any. They come first, then the other columns.
        """
        share, error = self._criteria
        rows = self.table.sort_values([share, error], kind="stable")
        best = rows[error].cummin().shift(fill_value=np.inf)
        first = [share, error, *(["r2"] if error == "mse" else [])]
        order = [*first, *(name for name in rows if name not in first)]
        return rows.loc[rows[error] < best, order].reset_index(drop=True)

    def at(self, *, unfairness: float | None = None, alpha: float | None = None, eta: float | None = None) -> Any:
        """Return a fitted estimator of the path: under a limit on the share, or at a weight.

        Parameters
        ----------
        unfairness : float in [0, 1], optional
            Largest explained share.
        alpha : float, optional
            Ridge, beside `eta`; not needed where the path has but one.
        eta : float, optional
            Weight of the penalty.
        """
        if (unfairness is None) == (eta is None) or (alpha is not None and eta is None):
            raise ValueError(
                f"at(unfairness={unfairness!r}, alpha={alpha!r}, eta={eta!r}): give either "
                "unfairness=, a limit on the share, or eta=, a weight, with alpha="
            )
        if eta is not None:
            return self._at_weight(alpha, eta)
        return self._at_limit(check_number("unfairness", unfairness, 0.0, 1.0))

    @abstractmethod
    def _at_weight(self, alpha: float | None, eta: float) -> Any: ...

    @abstractmethod
    def _at_limit(self, unfairness: float) -> Any: ...

    def plot(self, ax: Any = None) -> Any:
        """Draw the path; return its display."""
        from scalefair.plots import FairPathDisplay

        return FairPathDisplay(self.table, self.front()).plot(ax=ax)

    def _repr_html_(self) -> str:
        """A picture if matplotlib is installed, and the front as a table."""
        front = self.front()
        title = f"<b>{type(self).__name__}</b>: {len(self.table):,} fits, {len(front):,} on the front"
        rows = front.to_html(index=False, max_rows=MAX_NOTEBOOK_ROWS, float_format="{:.4g}".format)
        picture = _picture(self) if front["explained_share"].notna().any() else ""
        return f"<div><p>{title}</p>{picture}{rows}</div>"


class FairPath(PathBase):
    """Fits at every (alpha, eta) of a grid, from the moments, without reading the data again.

    Parameters
    ----------
    estimator : fitted estimator
        Whose moments to solve for.
    alphas, etas : arrays of shape (A,) and (E,)
        The grid.
    scores : GridScores or None
        Held-out scores of the same grid, if it was cross-validated.

    Attributes
    ----------
    table : DataFrame
        One row per (alpha, eta) with mse, r2, explained_share and hsic on the training rows, and
        with cross-validation mse_cv, mse_cv_error, explained_share_cv, explained_share_cv_error:
        means over the folds and their standard errors.

    Notes
    -----
    ``at(alpha=, eta=)`` takes any numbers, on the grid or not. ``at(unfairness=u)`` is the fit
    whose share on the training rows is u, or less without a penalty. After cross-validation it is
    the fit of least held-out error whose held-out share, with ¾ of its standard error, is at most
    u (scores between the etas of the grid are interpolated), or a constant, with a warning, where
    that errs less; it has `explained_share_cv_` and its error. Under a limit the predictions are rescaled to the least
    error on the training rows, which changes no share.
    """

    def __init__(self, estimator: Any, alphas: Array, etas: Array, scores: GridScores | None = None) -> None:
        # A copy, which shares the arrays: the path stays what it is when the estimator is refitted.
        self._estimator = copy(estimator)
        self.alphas, self.etas = np.asarray(alphas, float), np.asarray(etas, float)
        self._scores = scores

    @cached_property
    def table(self) -> DataFrame:
        """The grid as a data frame."""
        system = self._estimator._system(self._estimator._design, self._estimator.moments_)
        columns = {
            "alpha": np.repeat(self.alphas, len(self.etas)),
            "eta": np.tile(self.etas, len(self.alphas)),
            **training_columns(system, self.alphas, self.etas),
        }
        if self._scores is not None:
            columns |= held_out_columns(self._scores)
        return frames.make_frame(columns)

    @property
    def _criteria(self) -> tuple[str, str]:
        held_out = self._scores is not None
        return ("explained_share_cv", "mse_cv") if held_out else ("explained_share", "mse")

    def _at_weight(self, alpha: float | None, eta: float) -> Any:
        if alpha is None:
            if len(self.alphas) > 1:
                raise ValueError(
                    f"alpha is missing, and the path has {len(self.alphas)}; give one, such as "
                    f"at(alpha={self.alphas[0]:.4g}, eta={eta!r})"
                )
            alpha = float(self.alphas[0])
        return self._estimator._at(alpha, eta=eta)

    def _at_limit(self, unfairness: float) -> Any:
        if self._estimator.psi_ is None:
            raise ValueError(MISSING_SENSITIVE)
        if self._scores is not None:
            return self._held_out_limit(self._scores, unfairness)
        return self._estimator._at(self._best_alpha(unfairness), unfairness=unfairness)

    def _held_out_limit(self, scores: GridScores, unfairness: float) -> Any:
        """The fit that cross-validation under the limit takes of this grid."""
        scores, etas = scores.finer(self.etas)
        choice = choose(scores, etas, unfairness)
        if choice is None and scores.constant is None:
            raise not_within(unfairness, scores.bounds(etas, unfairness), BOUND)
        if choice is None:
            warn_of_constant(scores, etas, unfairness)
            return with_held_out(self._estimator._constant())
        alpha, eta = float(self.alphas[choice.alpha]), float(etas[choice.eta])
        if unfairness == 0:
            fit = self._estimator._at(alpha, unfairness=0.0)
        else:
            fit = self._estimator._at(alpha, eta=eta)
            fit = fit if eta == 0 else fit._rescaled()
        return with_held_out(fit, scores.estimate[choice])

    def _best_alpha(self, unfairness: float) -> float:
        """α of least error at a share, along the curve of each: their etas meet other shares."""
        shape = len(self.alphas), len(self.etas)
        shares, errors = (self.table[name].to_numpy().reshape(shape) for name in self._criteria)
        at_limit = [_error_at(*curve, unfairness) for curve in zip(shares, errors, strict=True)]
        if not np.isfinite(at_limit).any():
            return float(self.alphas[int(np.argmin(np.nanmin(shares, axis=1)))])
        return float(self.alphas[int(np.nanargmin(at_limit))])

    def __repr__(self) -> str:
        return f"<FairPath: {len(self.alphas)} alphas × {len(self.etas)} etas>"


class LossPath(PathBase):
    """Fits of one model at increasing weights of the penalty.

    Parameters
    ----------
    estimators : list of fitted estimators
        One for each eta, in increasing order.

    Attributes
    ----------
    table : DataFrame
        One row per eta with the mean loss, the explained share of the scores, and the passes over
        the rows that the fit took.

    Notes
    -----
    ``at`` returns one of these fits: the one at ``eta=``, or the one of least loss whose share is
    at most ``unfairness=``. All have the same alpha.
    """

    etas: Array

    def __init__(self, estimators: Sequence[Any]) -> None:
        self._estimators = list(estimators)
        self.etas = np.array([estimator.eta_ for estimator in estimators])

    @cached_property
    def table(self) -> DataFrame:
        """The path as a data frame."""
        names = {"loss": "mean_loss_", "explained_share": "explained_share_", "passes": "n_passes_"}
        columns = {name: [vars(fit)[of] for fit in self._estimators] for name, of in names.items()}
        return frames.make_frame({"eta": self.etas, **columns})

    @property
    def _criteria(self) -> tuple[str, str]:
        return "explained_share", "loss"

    def _at_weight(self, alpha: float | None, eta: float) -> Any:
        if alpha is not None:
            raise ValueError(f"alpha={alpha!r}: all fits of this path have the same; give eta alone")
        same = np.flatnonzero(self.etas == eta)
        if not len(same):
            raise ValueError(f"eta={eta!r} is not on the path; its etas are {self.etas.tolist()}")
        return self._estimators[int(same[0])]

    def _at_limit(self, unfairness: float) -> Any:
        share = self.table["explained_share"].to_numpy()
        allowed = np.flatnonzero(share <= unfairness)
        if not len(allowed):
            raise not_within(unfairness, share)
        loss = self.table["loss"].to_numpy()[allowed]
        return self._estimators[int(allowed[np.argmin(loss)])]

    def __repr__(self) -> str:
        return f"<LossPath: {len(self.etas)} etas>"


def with_held_out(fit: Any, share: held_out.ShareEstimate = held_out.NO_SHARE) -> Any:
    """Return a copy of a fit with its held-out share; NaN for a constant."""
    made = copy(fit)
    made.__dict__.update(explained_share_cv_=float(share.value), explained_share_cv_error_=float(share.error))
    return made


def not_within(unfairness: float, shares: Array, what: str = "share") -> NotAttainableError:
    """Return the error of a limit that no fit of a path is within."""
    least = np.nanmin(shares, initial=np.inf)
    return NotAttainableError(
        f"unfairness={unfairness!r}: no fit of the path is within the limit, the least {what} is "
        f"{least:.4g}; allow more, or use a finer or longer grid of etas"
    )


def _picture(path: PathBase) -> str:
    try:
        from scalefair.plots import make_figure, to_svg

        figure, ax = make_figure(5.0, 3.6)
        path.plot(ax)
        svg = to_svg(figure)
    except ImportError:  # no matplotlib
        return ""
    # An image of its own, on white: dark notebooks do not lend it their colours.
    source = "data:image/svg+xml;base64," + b64encode(svg.encode()).decode()
    alt = "Accuracy against the explained share; the table below has the numbers of the front"
    style = "background:#fff;max-width:100%;width:30rem"
    return f'<img alt="{alt}" style="{style}" src="{source}">'


def _error_at(shares: Array, errors: Array, limit: float) -> float:
    """Error where a curve meets the limit; ∞ where it stays above, its least where it is below."""
    order = np.argsort(shares)
    order = order[np.isfinite(shares[order])]
    if not len(order) or shares[order[0]] > limit:
        return float("inf")
    least = np.minimum.accumulate(errors[order])
    return float(np.interp(limit, shares[order], least))


def training_columns(system: System, alphas: Array, etas: Array) -> dict[str, Array]:
    """Error and dependence on the training rows, for each point of the grid."""
    coef = grid(Spectrum.of(system), alphas, etas)
    B, t = side_by_side(system, coef, etas, rescaled=False), coef.shape[3]
    moments = system.moments
    variance = penalties.variance_of(moments, system.features, B).reshape(-1, t)
    errors = squared_errors(system, B, variance, moments)
    spread = np.diagonal(moments.covariance("y", "y"))
    explained = np.sum((system.share_factor.T @ B) ** 2, axis=0).reshape(-1, t).sum(axis=1)
    if "psi" in moments.blocks:  # |C_ψf|²: HSIC with a linear kernel on f
        hsic = np.sum((penalties.hsic(moments, 0.0, system.features).T @ B) ** 2, axis=0)
    else:
        explained, hsic = np.full_like(explained, np.nan), np.full(B.shape[1], np.nan)
    with np.errstate(invalid="ignore", divide="ignore"):
        r2 = (1 - errors / spread).mean(axis=1)
    return {
        "mse": errors.mean(axis=1),
        "r2": r2,
        "explained_share": penalties.share_of_variance(
            explained,
            penalties.variance_of(moments.judged, system.features, B).reshape(-1, t).sum(axis=1),
            penalties.size_of_block(moments, "y"),
        ),
        "hsic": hsic.reshape(-1, t).sum(axis=1),
    }


def held_out_columns(scores: GridScores, error: str = "mse") -> dict[str, Array]:
    """Means over the folds and their standard errors; the share is floored at 0."""
    mse, mse_error = held_out.mean_and_error(scores.mse)
    share = scores.estimate
    return {
        f"{error}_cv": mse.ravel(),
        f"{error}_cv_error": mse_error.ravel(),
        "explained_share_cv": share.value.ravel(),
        "explained_share_cv_error": share.error.ravel(),
    }
