"""What estimators with a feature map of the inputs share, whatever their loss."""

from __future__ import annotations

from typing import Any

from scalefair._typing import FeatureMap
from scalefair.estimators._data import TrainingData
from scalefair.estimators._maps import input_map


class KernelInputsMixin:
    """φ is the map that `feature_map` and `kernel` ask for; ψ(s) joins it where s is seen."""

    feature_map: Any
    penalty: str
    sensitive_columns: Any
    hide_sensitive: bool

    @property
    def _joins_sensitive(self) -> bool:
        return self.sensitive_columns is not None and not self.hide_sensitive

    def _input_map(self, data: TrainingData) -> FeatureMap:
        return input_map(self, data)

    def _is_exact(self) -> bool:
        return isinstance(self.feature_map, str) and self.feature_map == "exact"

    def _check_finite_map(self) -> None:
        """Raise ValueError if a penalty needs finitely many features and there are none."""
        if self._is_exact() and self.penalty in ("nocco", "nocco_output"):
            raise ValueError(
                f"penalty={self.penalty!r} needs finitely many features, which feature_map='exact' "
                "does not have; use feature_map='nystroem', 'fourier' or 'linear'"
            )
