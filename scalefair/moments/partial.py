"""Moments of rows of which some lack s and others y: each covariance from all rows that have both.

    C_φψ = C_φ(all) W + τ (C_φψ(known) − C_φ(known) W),    W = (C_φ(known) + λI)⁻¹ C_φψ(known)

No formula needs y and s in one row. W, the ridge of ψ on φ from the rows that have s, carries over
to all rows what φ predicts of s; τ adds back what the ridge left out, which is noise where few rows
have s. Second moments only, so that it adds up.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from scalefair._linalg import positive_eigh
from scalefair._typing import Array, Chunk
from scalefair.features.partial import lacks
from scalefair.moments.moments import ARRAYS, FoldMoments, Moments

# Rows that have y only; both; s only; and rows that have s once more, with their weights
NO_S, BOTH, NO_Y, WEIGHTED = KINDS = range(4)
PARTS = ("known", "weighted", "rest")
# Ridges λ among which W's is chosen, in units of the mean eigenvalue of C_φ
RIDGES = np.logspace(-4, 3, 57)


@dataclass(frozen=True)
class Calibration:
    """λ as a multiple of its default, and τ; None: the share of rows that have s."""

    multiple: float = 1.0
    tau: float | None = None


DEFAULT = Calibration()
# What cross-validation tries beside
CALIBRATIONS = (*(Calibration(multiple) for multiple in (3.0, 10.0, 30.0)), Calibration(1.0, 1.0))


class _Regression(NamedTuple):
    """What W and C_φψ are computed from, for every λ and τ."""

    values: Array  # Λ of C_φ(known) = QΛQᵀ
    basis: Array  # Q
    cross: Array  # QᵀC_φψ(known)
    ridge: float  # the default λ
    covariances: tuple[Array, Array, Array]  # C_φ(all); C_φ and C_φψ of the rows that judge


@dataclass(frozen=True, eq=False)
class PartialMoments(Moments):
    """Moments of the rows that have y, and beside them those of the rows that have s, for all that concerns ψ."""

    known: Moments = field(kw_only=True)  # of the rows that have s: W is learnt from them
    weighted: Moments = field(kw_only=True)  # with weights 1/P(known | x); empty where constant
    rest: Moments = field(kw_only=True)  # of the rows that have s but not y
    calibration: Calibration = field(kw_only=True, default=DEFAULT)  # type: ignore[misc]
    # Shared by moments that differ in λ and τ alone.
    _regressions: dict[Any, Any] = field(kw_only=True, default_factory=dict, repr=False)

    @classmethod
    def of(cls, scored: Moments, *parts: Moments, calibration: Calibration = DEFAULT) -> Self:
        """Return the moments of rows that have y, and of those of the other `PARTS`."""
        own: dict[str, Any] = {part.name: vars(scored)[part.name] for part in fields(Moments)}
        own |= dict(zip(PARTS, parts, strict=True))
        return cls(**own, calibration=calibration)

    def __getstate__(self) -> dict[str, Any]:
        # What can be computed again is not worth its bytes; skops takes no keys but text.
        return vars(self) | {"_regressions": {}}

    @property
    def _parts(self) -> tuple[Moments, ...]:
        return self.known, self.weighted, self.rest

    def __add__(self, other: Moments) -> Self:
        if not isinstance(other, PartialMoments):
            return NotImplemented
        pairs = zip(self._parts, other._parts, strict=True)
        parts = (own + more for own, more in pairs)
        return self.of(self.scored + other.scored, *parts, calibration=self.calibration)

    @property
    def scored(self) -> Moments:
        """Moments of the rows that have y."""
        return Moments(**{part.name: vars(self)[part.name] for part in fields(Moments)})

    @property
    def judged(self) -> Moments:
        """Moments of the rows that have s, representing all."""
        if self._is_complete:
            return self
        return self.weighted if self.weighted.weight else self.known

    @property
    def judges(self) -> tuple[Moments, ...]:
        """The rows that have s, and with weights: they correct for who has s, and are noisy."""
        return (self.known, self.weighted) if self.weighted.weight else (self.judged,)

    def calibrated(self, calibration: Calibration) -> Self:
        """Return the same moments with another λ and τ."""
        return replace(self, calibration=calibration)

    @cached_property
    def _is_complete(self) -> bool:
        """Whether every row has both; then these are ordinary moments."""
        return self.rest.n_rows == 0 and self.known.n_rows == self.n_rows

    def mean(self, *names: str) -> Array:
        """Return the mean of the named blocks, side by side."""
        parts = [(self.judged if name == "psi" else self).scored.mean(name) for name in names]
        return np.concatenate(parts)

    def covariance(self, rows: str | tuple[str, ...], columns: str | tuple[str, ...]) -> Array:
        """Return the centred covariance of two (groups of) blocks, divided by n."""
        about_s = [part in ("psi", ("psi",)) for part in (rows, columns)]
        if self._is_complete or not any(about_s):
            return super().covariance(rows, columns)
        if all(about_s):
            return self.judged.covariance(rows, columns)
        if about_s[0]:
            return self.covariance(columns, rows).T
        features = (rows,) if isinstance(rows, str) else rows
        return self._calibrated(features)

    def _calibrated(self, features: tuple[str, ...]) -> Array:
        """C_φ(all) W + τ (C_φψ(known) − C_φ(known) W)."""
        if features not in self._regressions:
            self._regressions[features] = self._regression(features)
        values, basis, cross, ridge, (everyone, phi, phi_psi) = self._regressions[features]
        W = basis @ (cross / (values + self.calibration.multiple * ridge)[:, None])
        tau = self.calibration.tau
        if tau is None:
            rows = (self.scored + self.rest).effective_rows
            tau = min(1.0, self.judged.effective_rows / rows)
        return np.asarray(everyone @ W + tau * (phi_psi - phi @ W))

    def _regression(self, features: tuple[str, ...]) -> _Regression:
        values, basis = positive_eigh(self.known.covariance(features, features))
        cross = basis.T @ self.known.covariance(features, "psi")
        everyone = (self.scored + self.rest).covariance(features, features)
        phi, phi_psi = (self.judged.covariance(features, other) for other in (features, "psi"))
        ridge = self._ridge(values, cross)
        return _Regression(values, basis, cross, ridge, (everyone, phi, phi_psi))

    def _ridge(self, values: Array, cross: Array) -> float:
        """λ of the least |ψ − Wφ|²/n over (1 − tr[C(C + λ)⁻¹]/n)²: leaving out each row."""
        scale = self._units()
        total = float(np.diagonal(self.known.covariance("psi", "psi")) @ scale)
        along, n = cross**2 @ scale, self.known.effective_rows
        ridges = RIDGES * values.mean()
        kept = values / (values + ridges[:, None])  # (number of λ, m)
        gained = np.where(values > 0, along / np.where(values > 0, values, 1.0), 0.0)
        left = total - (kept * (2 - kept)) @ gained
        freedom = np.minimum(kept.sum(axis=1) / n, 0.99)
        return float(ridges[np.argmin(left / (1 - freedom) ** 2)])

    def _units(self) -> Array:
        """One over the variance of columns of ψ that have units of their own; 1 for others."""
        variance = np.diagonal(self.known.covariance("psi", "psi"))
        scale = np.ones(len(variance))
        for kind, columns in self.units.get("psi", ()):
            if kind in ("columns", "map"):
                own = variance[columns] if kind == "columns" else variance[columns].sum()
                scale[columns] = 1 / np.where(own > 0, own, 1.0)
        return scale

    def state(self) -> tuple[dict[str, Array], dict[str, Any]]:
        """Return the moments as named arrays and JSON-able values."""
        arrays, values = super().state()
        for name, part in zip(PARTS, self._parts, strict=True):
            own, values[name] = part.state()
            arrays |= {f"{name}.{array}": content for array, content in own.items()}
        chosen = [self.calibration.multiple, self.calibration.tau]
        return arrays, values | {"calibration": chosen}

    @classmethod
    def of_state(cls, arrays: Mapping[str, Array], values: Mapping[str, Any]) -> Moments:
        """Return the moments that `state` describes, their shapes checked."""
        states = {"": values} | {f"{part}.": values[part] for part in PARTS}
        parts = (
            Moments.of_state({name: arrays[prefix + name] for name in ARRAYS}, own) for prefix, own in states.items()
        )
        multiple, tau = values["calibration"]
        chosen = Calibration(float(multiple), None if tau is None else float(tau))
        return cls.of(*parts, calibration=chosen)


def with_kinds(fold: NDArray[np.int64], chunk: Chunk) -> NDArray[np.int64]:
    """Return the number of the sum of each row, by fold and kind; −1 for rows that have neither."""
    no_s, no_y = lacks(chunk.s), lacks(chunk.y)
    kind = np.where(no_s, NO_S, np.where(no_y, NO_Y, BOTH))
    return np.where((fold < 0) | (no_s & no_y), -1, fold * len(KINDS) + kind)


def by_knowledge(folds: FoldMoments) -> FoldMoments:
    """Return the partial moments of each fold from those of its rows of every kind."""
    kinds = (folds[i : i + len(KINDS)] for i in range(0, len(folds), len(KINDS)))
    return FoldMoments(
        PartialMoments.of(no_s + both, both + no_y, weighted, no_y) for no_s, both, no_y, weighted in kinds
    )
