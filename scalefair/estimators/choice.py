"""Folds of the rows, and which of several models has the least error on them under its limit."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from numbers import Integral
from operator import add
from typing import Any

import numpy as np

from scalefair.data.folds import Folds, make_folds
from scalefair.data.sources import ArraySource, StackedSource
from scalefair.errors import InputError
from scalefair.estimators.base import FairEstimator, check_control
from scalefair.features.design import Design
from scalefair.features.training import Training, group_names
from scalefair.held_out import ChanceRatio
from scalefair.moments import Moments
from scalefair.moments.accumulate import Rows
from scalefair.penalties import attribute, check_known
from scalefair.solve.ridge.path import FoldedMoments
from scalefair.solve.ridge.search import check_folds


class OnFolds(FairEstimator):
    """A fair estimator that is judged on folds of its rows: `cv` says which."""

    def _folds(self, training: Training) -> tuple[Folds, bool]:
        source, X, y = training.given, range(training.survey.n_rows), range(training.survey.n_rows)
        if isinstance(source, ArraySource):
            X, y = source.x, source.y
        if isinstance(training.source, StackedSource) and not isinstance(self.cv, Integral):
            raise InputError(
                f"cv={self.cv!r} splits the rows of X only, not those of sensitive_data",
                "give a number of folds",
                where="cv",
            )
        # Not the seed of the sample: landmarks must not gather in one fold.
        return make_folds(self.cv, X, y, training.seed + 1)

    def _fold_moments(self, rows: Rows, training: Training, **options: Any) -> tuple[Folds, FoldedMoments]:
        """Return the folds and their moments, by one pass."""
        folds, some_always_train = self._folds(training)
        parts = rows.moments(folds, **options)
        tested, always = (parts[:-1], parts[-1]) if some_always_train else (parts, None)
        if not all(fold.weight for fold in tested):
            raise ValueError(
                f"cv={self.cv!r} makes a fold in which sample_weight is zero for every row; use "
                "fewer folds, or leave those rows out"
            )
        moments = FoldedMoments(tested, always, reduce(add, parts))
        if "xi" in moments.total.blocks:
            check_control(moments.total)
        if rows.design.partial:
            check_known(moments.total)
        if rows.design.psi is not None and self.unfairness is not None:
            judged = [fold.judged for fold in moments.folds]
            check_folds(judged, group_names(rows.design))
        return folds, replace(moments, ratios=_chance_ratios(training, rows.design, folds, tested))


def _chance_ratios(training: Training, design: Design, folds: Folds, tested: Sequence[Moments]) -> list[ChanceRatio]:
    """Return how chance depends on where f varies, from a sample of the rows that have s."""
    two_tables = isinstance(training.source, StackedSource)
    if attribute(tested[0]) is None or two_tables or tested[0].is_expected:
        return []
    sample, base = training.sample, training.base
    if base is not None and isinstance(training.given, ArraySource):  # ĥ of rows not seen
        sample = training.source.sample(sample.n_rows, training.seed)
    elif base is not None:
        sample = replace(sample, h=base.join(training.split_sample).h)
    rows, fold, ratios = design.block_rows(sample), folds.of_rows(training.survey.sample.rows), []
    for k, moments in enumerate(tested):
        at = np.flatnonzero((fold == k) & ~np.isnan(rows["psi"]).any(axis=1))
        own = {name: part[at] for name, part in rows.items()}
        ratios.append(ChanceRatio.of(moments.judged, design.features, own, sample.weights[at]))
    return ratios


# The held-out error of a model with another one inside is a little too large: what the copies
# predict of the training rows has seen the targets of the held-out fold, and the fit learns to
# undo it. Kernels must be better by more than this part. Seen with ACSIncome.
BASE_CREDIT = 0.01


@dataclass(frozen=True, eq=False)
class ModelChoice:
    """The model of least held-out error, and the error of each that was tried."""

    name: str
    model: Any
    errors: dict[str, float]  # the share of the variance of y that is left, or the mean loss
    failed: dict[str, str]  # what could not be fitted, and why

    @property
    def summary(self) -> str:
        """Which model it is and by how much, in a sentence."""
        unit = "log loss" if "loss_cv" in self.model.path_.table else "share of variance left"
        first, *others = sorted(self.errors.items(), key=lambda pair: (pair[0] != self.name, pair[1]))
        compared = ", ".join(f"{name} {error:.4f}" for name, error in others)
        failed = "".join(f"; {name} failed: {why}" for name, why in self.failed.items())
        tied = f" (within {BASE_CREDIT:.0%})" if first[1] > min(self.errors.values()) else ""
        best = f"chosen by held-out error ({unit}): {first[0]} {first[1]:.4f}{tied}"
        return f"{best}{f', before {compared}' if compared else ''}{failed}"


def choose_model(
    candidates: Mapping[str, Any], fit: Callable[[Any], Any], progress: Callable[[str], None] = lambda _: None
) -> ModelChoice:
    """Fit estimators that cross-validate, and take the one of least held-out error.

    One that `fit` cannot fit is left out, unless the data are at fault or no other can.
    """
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
