"""The ridge fit under a limit: the least η on the path, or the optimum beyond it, rescaled."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from scalefair._typing import Array
from scalefair.solve.limit import (
    ROUNDING,
    check_attainable,
    least_eta,
    only_a_constant,
    optimum_within,
    optimum_without,
    path_shares,
)
from scalefair.solve.ridge.path import AlphaSlice, Spectrum
from scalefair.solve.ridge.system import System, best_scale


class LimitedFit(NamedTuple):
    """β of shape (m, t), rescaled, and the η that gave its direction."""

    coef: Array
    eta: float


def solve_under_limit(system: System, alpha: float, unfairness: float) -> LimitedFit:
    """Return the fit at α whose explained share is at most `unfairness`, with the least η.

    The direction comes from the path; its length is then the best one, which is free because the
    share does not depend on it. If the ridge fit is within the limit already, it is returned as
    it is: the limit is not active. η = ∞ is reported where no η on the path is enough, and for
    `unfairness=0`.
    """
    return limited(Spectrum.of(system).at(alpha), unfairness)


def limited(path: AlphaSlice, unfairness: float) -> LimitedFit:
    """The same from the solutions at one α."""
    spectrum = path.spectrum
    at, eta = _direction(path, unfairness)
    if eta > 0:
        both = np.stack([path.ridge, at])
        if np.isnan(path_shares(spectrum.share_factor, spectrum.deviation, both)[0]):
            check_attainable(path.quadratic(), unfairness)
            raise only_a_constant(unfairness, path.alpha)
        square = float(spectrum.values @ np.sum(at**2, axis=1))
        at = at * (float(np.sum(spectrum.target * at)) / square)
    return LimitedFit(np.asarray(spectrum.basis @ at), eta)


def _direction(path: AlphaSlice, unfairness: float) -> tuple[Array, float]:
    """β in the eigenbasis, of any length, and η."""
    if unfairness <= ROUNDING:
        return optimum_without(path.quadratic()), np.inf
    eta = least_eta(path, unfairness)
    if eta is None:
        return optimum_within(path.quadratic(), unfairness).coef, np.inf
    return path.coordinates(np.array([eta]))[0], eta


def rescale(system: System, coef: Array) -> Array:
    """β ← aβ with the scale of least error."""
    return coef * float(best_scale(system, coef))
