"""How far an explained share may be off by chance."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import numpy as np
from scipy.special import ndtri

from scalefair._typing import Array
from scalefair.measures._features import FeaturePair
from scalefair.measures.share import Estimate
from scalefair.penalties.factors import FunctionSpace


class Interval(NamedTuple):
    """A share and its interval, in [0, 1]."""

    value: float
    low: float
    high: float


def share_interval(features: FeaturePair, found: Estimate, confidence: float) -> Interval:
    """Return the share with the interval share ± z·error, in [0, 1]."""
    half = float(ndtri(0.5 + confidence / 2)) * standard_error(features, found)
    ends = (found.share, found.share - half, found.share + half)
    return Interval(*(float(np.clip(end, 0.0, 1.0)) for end in ends))


def standard_error(features: FeaturePair, found: Estimate) -> float:
    """Standard error of a cross-fitted share θ, by one more pass over the rows.

        √(Var u / n + 2 tr(P²)/n²),   u = [2 g f̃ − g² − θ f̃²] / Var f,   f̃ = f − mean

    u is the influence of a row on Var E[f|s] / Var f, with the fitted g(s) for E[f|s] − mean. It
    vanishes where s explains nothing; there the second term is the variance, P = C_ψ(C_ψ + εI)⁻¹
    (for q groups its trace is q − 1). n is Kish's (Σw)²/Σw².
    """
    law = _Law.of(found)
    (m,) = features.fold_moments(columns=partial(_influence, law), width=1)
    n = m.effective_rows
    return float(np.sqrt(m.covariance("y", "y")[0, 0] / n + 2 * law.dimension / n**2))


@dataclass(frozen=True, eq=False)
class _Law:
    """g(s) = (ψ(s) − mean)ᵀ coef, and what the influence of a row takes beside it."""

    share: float
    variance: float
    means: tuple[Array, Array]
    coef: Array
    dimension: float

    @classmethod
    def of(cls, found: Estimate) -> _Law:
        m = found.moments
        space = FunctionSpace.of(m)
        ridge = space.ridge(found.eps)
        coef = space.basis @ (space.basis.T @ m.covariance("psi", "phi") / ridge[:, None])
        dimension = float(np.sum((space.values / ridge) ** 2))
        variance = float(np.trace(m.covariance("phi", "phi")))
        return cls(found.share, variance, (m.mean("phi"), m.mean("psi")), coef, dimension)


def _influence(law: _Law, Phi: Array, Psi: Array, weight: Array) -> Array:  # noqa: ARG001
    mean_f, mean_psi = law.means
    f, g = Phi - mean_f, (Psi - mean_psi) @ law.coef
    u = 2 * g * f - g**2 - law.share * f**2
    return np.asarray(u.sum(axis=1, keepdims=True) / law.variance)
