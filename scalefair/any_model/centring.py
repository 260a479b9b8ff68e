"""h − c(E[h|s] − E h), rescaled: what it takes is learnt on other rows than those it is judged on.

Learnt on the same rows, E[h|s] would leave them less dependence than new rows have.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from scalefair._typing import Array
from scalefair.maps.units import Units
from scalefair.penalties.factors import DEFAULT_EPS, FunctionSpace
from scalefair.statistics import Moments

SHRINKAGES = (0.0, 0.2, 0.4, 0.5, 0.6, 0.7, 0.75, 0.8, 0.85, 0.9, 0.95, 1.0)


@dataclass(frozen=True, eq=False)
class Centring:
    """Means and covariances of ψ(s), h and y on the rows that it is learnt from.

    Parameters
    ----------
    means : tuple of (array of shape (q,), float, float)
        Of ψ, h and y.
    slope : array of shape (q,)
        E[h|s] − E h = (ψ(s) − mean)ᵀ slope.
    variances : tuple of three floats
        Var h, Cov(h, g) and Var g of g = E[h|s].
    along : tuple of two floats
        Cov(h, y) and Cov(g, y).
    """

    means: tuple[Array, float, float]
    slope: Array
    variances: tuple[float, float, float]
    along: tuple[float, float]

    @classmethod
    def of_moments(cls, moments: Moments, features: tuple[str, ...], coef: Array) -> Centring:
        """Learn it for h = Φ coef, from moments."""
        C_psi_h = moments.covariance("psi", features) @ coef
        C_h = float(coef @ moments.covariance(features, features) @ coef)
        C_hy = float(moments.covariance("y", features)[0] @ coef)
        means = moments.mean("psi"), float(moments.mean(*features) @ coef), moments.mean("y")[0]
        C_psi, C_psi_y = moments.covariance("psi", "psi"), moments.covariance("psi", "y")[:, 0]
        root = FunctionSpace.of(moments).root(DEFAULT_EPS)
        slope = np.asarray(root @ (root.T @ C_psi_h))
        variances = C_h, float(slope @ C_psi_h), float(slope @ C_psi @ slope)
        return cls(means, slope, variances, (C_hy, float(slope @ C_psi_y)))

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
