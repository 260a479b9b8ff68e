"""Accuracy–fairness frontiers, of moments or of fits; and which of several models errs least."""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from base64 import b64encode
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from scalefair import held_out
from scalefair._typing import Array, DataFrame
from scalefair.data import frames
from scalefair.errors import MISSING_SENSITIVE, InputError, check_number
from scalefair.solve.limit import NotAttainableError
from scalefair.solve.ridge.path import GridScores, choose
from scalefair.solve.ridge.search import training_columns, warn_of_constant

MAX_NOTEBOOK_ROWS = 12
BOUND = f"held-out share plus {held_out.MARGIN:g} standard errors"


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
        """Return the rows for which no other has less error and a smaller share, by increasing share.

        Held-out numbers are compared if there are any. They come first, then the other columns.
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
            Ridge, with `eta`; not needed if the path has only one.
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
    the fit of least held-out error whose held-out share, plus ¾ of its standard error, is at most
    u (scores between the etas of the grid are interpolated), or a constant, with a warning, if that
    has less error; it has `explained_share_cv_` and its error. Under a limit the predictions are rescaled to the
    least error on the training rows, which does not change the share.
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
        f"{least:.4g}; raise the limit, or use a finer or longer grid of etas"
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


# The held-out error of a model with a base model is slightly too large: the base predictions of
# the training rows come from copies that were fitted on the held-out fold, and the fit corrects
# for that. Kernels are chosen only if they are better by more than this part (from ACSIncome).
BASE_CREDIT = 0.01


@dataclass(frozen=True, eq=False)
class ModelChoice:
    """The model of least held-out error, and the error of each that was tried."""

    name: str
    model: Any
    errors: dict[str, float]  # 1 − R², or the mean loss
    failed: dict[str, str]  # what could not be fitted, and why

    @property
    def summary(self) -> str:
        """Which model it is and by how much, in a sentence."""
        unit = "log loss" if "loss_cv" in self.model.path_.table else "1 − R²"
        first, *others = sorted(self.errors.items(), key=lambda pair: (pair[0] != self.name, pair[1]))
        compared = ", ".join(f"{name} {error:.4f}" for name, error in others)
        failed = "".join(f"; {name} failed: {why}" for name, why in self.failed.items())
        tied = f" (within {BASE_CREDIT:.0%} of the least)" if first[1] > min(self.errors.values()) else ""
        best = f"chosen by held-out error ({unit}): {first[0]} {first[1]:.4f}{tied}"
        return f"{best}{f', others: {compared}' if compared else ''}{failed}"


def choose_model(
    candidates: Mapping[str, Any], fit: Callable[[Any], Any], progress: Callable[[str], None] = lambda _: None
) -> ModelChoice:
    """Fit estimators, take the least held-out error; one that fails is left out unless the data are at fault."""
    fitted: dict[str, tuple[Any, list[Any]]] = {}
    failed: dict[str, ValueError] = {}
    for name, estimator in candidates.items():
        progress(f"fitting: {name}")
        with warnings.catch_warnings(record=True, action="default") as caught:
            try:
                fitted[name] = fit(estimator), caught
            except InputError:
                raise
            except ValueError as error:
                failed[name] = error
    if not fitted:
        raise next(iter(failed.values()))
    alone = len(candidates) == 1
    errors = {} if alone else {name: held_out_error(one) for name, (one, _) in fitted.items()}
    stacked = {name for name in errors if fitted[name][0].base_estimator is not None}
    best = min(fitted, key=lambda name: errors.get(name, 0.0) * (1 - BASE_CREDIT * (name in stacked)))
    for warned in fitted[best][1]:
        warnings.warn_explicit(warned.message, warned.category, warned.filename, warned.lineno)
    reasons = {name: str(error) for name, error in failed.items()}
    return ModelChoice(best, fitted[best][0], errors, reasons)


def held_out_error(model: Any) -> float:
    """Return the held-out error at the point that was chosen; of a constant that of the mean."""
    table = model.path_.table
    column = next(name for name in ("mse_cv", "loss_cv") if name in table)
    squared = column == "mse_cv"
    scale = float(np.trace(model.moments_.covariance("y", "y"))) if squared else 1.0
    if squared and not np.any(model.coef_):
        return 1.0
    same = np.isclose(table["alpha"], model.alpha_, rtol=1e-9, atol=0.0)
    same &= np.isclose(table["eta"], model.eta_, rtol=1e-9, atol=0.0)
    found = table[column][same]
    return float(found.iloc[0]) / scale if len(found) and scale > 0 else float("inf")
