"""Which of several models has the least held-out error under its limit."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from scalefair.errors import InputError


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
        first, *others = sorted(self.errors.items(), key=lambda pair: pair[1])
        compared = ", ".join(f"{name} {error:.4f}" for name, error in others)
        failed = "".join(f"; {name} failed: {why}" for name, why in self.failed.items())
        best = f"chosen by held-out error ({unit}): {first[0]} {first[1]:.4f}"
        return f"{best}{f', before {compared}' if compared else ''}{failed}"


def choose_model(
    candidates: Mapping[str, Any],
    fit: Callable[[Any], Any],
    progress: Callable[[str], None] = lambda _: None,
) -> ModelChoice:
    """Fit estimators that cross-validate, and take the one of least held-out error.

    One that `fit` cannot fit is left out, unless the data are at fault or no other can.
    """
    fitted: dict[str, tuple[Any, list[Any]]] = {}
    failed: dict[str, ValueError] = {}
    for name, estimator in candidates.items():
        progress(f"fitting: {name}")
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("default")
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
    best = min(fitted, key=lambda name: errors.get(name, 0.0))
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
