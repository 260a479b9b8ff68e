"""The fit under a limit on the share of the distribution of f that s explains."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from scipy.optimize import brentq

from scalefair.solve.output.descent import OutputFit

LARGEST = 1e6
"""η, in its unit, beyond which the limit is said to be out of reach."""


def solve_output_under_limit(
    fit: Callable[[float, OutputFit | None], OutputFit], unfairness: float, unit: float = 1.0
) -> tuple[float, OutputFit]:
    """Return the η and the fit whose share is `unfairness`, or the fit at 0 if that is within.

    Each η starts from the nearest fit before. All are multiples of `unit`. A limit of 0 is the
    largest η, whatever share it leaves: the distribution of f has no closed form of η = ∞.
    """
    if unfairness == 0:
        near = fit(float(np.sqrt(LARGEST)) * unit, fit(unit, None))
        return LARGEST * unit, fit(LARGEST * unit, near)
    found: dict[float, OutputFit] = {0.0: fit(0.0, None)}
    if found[0.0].dependence.share <= unfairness:
        return 0.0, found[0.0]

    def excess(log_eta: float) -> float:
        eta = float(np.exp(log_eta))
        nearest = min(found, key=lambda other: abs(np.log(max(other, 1e-3)) - log_eta))
        if eta not in found:
            found[eta] = fit(eta * unit, found[nearest] if nearest > 0 else None)
        return found[eta].dependence.share - unfairness

    low, high = np.log(1e-2), 0.0
    while excess(high) > 0:
        low, high = high, high + np.log(10.0)
        if high > np.log(LARGEST):
            raise ValueError(
                f"unfairness={unfairness:g} is not reached with output_kernel: at "
                f"eta={LARGEST * unit:g} the sensitive attributes still explain a share of "
                f"{min(fit.dependence.share for fit in found.values()):.4g} of the distribution of "
                "the predictions; ask for more than that, or give the model more features"
            )
    if excess(low) > 0:
        brentq(excess, low, high, xtol=1e-2, maxiter=20)
    within = [eta for eta, fit in found.items() if fit.dependence.share <= unfairness]
    eta = min(within)
    return eta * unit, found[eta]
