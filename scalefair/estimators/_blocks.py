"""Which blocks make up Φ = [φ(x), ψ(s), ĥ(x)], and the ridge of each."""

from __future__ import annotations

from typing import Any

import numpy as np

from scalefair._typing import Array, FeatureMap
from scalefair.estimators._cross_fit import FOLDS
from scalefair.estimators._data import Preparation, TrainingData
from scalefair.estimators._folds import make_folds
from scalefair.moments import Folds, Moments


class Blocks:
    """The blocks of a fitted estimator's features."""

    psi_: FeatureMap | None
    curve_: Any = None
    moments_: Moments
    _preparation: Preparation

    @property
    def _base_scale(self) -> str:
        """What the prediction of a base model is turned into."""
        return "probability"

    @property
    def base_estimator_(self) -> Any:
        """The base model that `predict` uses, fitted on all rows; None where there is none."""
        base = self._preparation.base
        return None if base is None else base.model

    @property
    def _joins_sensitive(self) -> bool:
        """Whether ψ(s) is part of Φ: where the model may see s as columns of X."""
        return False

    @property
    def _features(self) -> tuple[str, ...]:
        joins = self._joins_sensitive and self.psi_ is not None
        based = self._preparation.base is not None
        bent = self.curve_ is not None
        return ("phi", *("psi",) * joins, *("base",) * based, *("curve",) * bent)

    def _make_folds(self, data: TrainingData) -> Folds:
        """Return the folds that the base model is cross-fitted on."""
        folds, _ = make_folds(min(FOLDS, data.n_rows), None, range(data.n_rows), data.seed + 1)
        return folds

    def _ridges(self) -> dict[str, float]:
        raise NotImplementedError

    def _relative_ridges(self, ratio: float) -> dict[str, float]:
        base = self._ridges()["base"]
        return {"phi": 1.0, "psi": ratio, "base": base, "curve": base}

    def _ridge_of_features(self, moments: Moments, relative: dict[str, float]) -> Array:
        """Ridge of each feature relative to α, for ĥ in units of its variance."""
        width = moments.blocks
        parts = {name: np.full(width[name], relative[name]) for name in self._features}
        if "base" in parts:
            spread = np.diagonal(moments.covariance("base", "base"))
            parts["base"] = parts["base"] * np.where(spread > 0, spread, 1.0)
        return np.concatenate(list(parts.values()))
