"""The logistic function averaged over a normal distribution: class probabilities with uncertainty.

p = E σ(f), f ~ N(μ, v). The trapezoidal rule over the whole line converges exponentially for
analytic functions, the faster the farther their poles are. Those of σ are at ±πi: in units of √v
far away where v ≤ 1, and there the rule runs over the normal density. Beyond, p = P(t < f) for t of
the logistic distribution, so that p = E Φ((μ − t)/√v), and the rule runs over that. Both are within
1e-13 of the integral for every μ and v.
"""

from __future__ import annotations

import numpy as np
from scipy.special import expit, ndtr

from scalefair._typing import Array

NORMAL = np.linspace(-9.5, 9.5, 39)
NORMAL_WEIGHT = np.exp(-(NORMAL**2) / 2) * (NORMAL[1] - NORMAL[0]) / np.sqrt(2 * np.pi)
LOGISTIC = np.linspace(-36.0, 36.0, 145)
LOGISTIC_WEIGHT = expit(LOGISTIC) * expit(-LOGISTIC) * (LOGISTIC[1] - LOGISTIC[0])


def averaged_probability(mean: Array, variance: Array) -> Array:
    """E σ(f) for f ~ N(mean, variance), elementwise, within 1e-13.

    Parameters
    ----------
    mean, variance : arrays of equal shape

    Returns
    -------
    array of that shape
        The value at −mean is the rest to 1.
    """
    mean, spread = np.asarray(mean), np.sqrt(variance)
    result = np.empty(mean.shape)
    narrow = spread <= 1.0
    at, sd = mean[narrow], spread[narrow]
    result[narrow] = expit(at[:, None] + sd[:, None] * NORMAL) @ NORMAL_WEIGHT
    at, sd = mean[~narrow], spread[~narrow]
    result[~narrow] = ndtr((at[:, None] - LOGISTIC) / sd[:, None]) @ LOGISTIC_WEIGHT
    return result
