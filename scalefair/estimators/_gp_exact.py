"""The evidence of the exact (n×n) process, as the search sees it: for validation and small n."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from scalefair._typing import Array
from scalefair.estimators._data import TrainingData
from scalefair.estimators._exact import ExactRows, exact_rows
from scalefair.kernels import Kernel
from scalefair.solve.dense.gp import ExactGP, ExactProblem
from scalefair.solve.gp.limit import FIRM
from scalefair.solve.gp.profile import (
    AMPLITUDE_BOUNDS,
    MEANING,
    NOISE_BOUNDS,
    check_target,
)

START = {"noise": 0.1, "amplitude": 1.0}
"""Where the search starts, in units of the variance and of the standard deviation of y."""

NEAR = {("amplitude", 0): np.log(10.0)}
"""How near a bound counts: an amplitude far below the noise changes nothing, so that it stops."""

DEFAULT = {"noise": NOISE_BOUNDS, "amplitude": AMPLITUDE_BOUNDS}


@dataclass(frozen=True, eq=False)
class ExactEvidence:
    """log θ, log a and log σ² are searched for together; those that are given stay.

    Parameters
    ----------
    estimator : FairGPRegressor
    rows : ExactRows
        All training rows, with the kernel where the search starts.
    problem : ExactProblem
        Their penalty, decomposed.
    offset : array of shape (t,)
        ȳ.
    variance : float
        Of y, the mean over the outputs.
    """

    estimator: Any
    rows: ExactRows
    problem: ExactProblem
    offset: Array
    variance: float

    @property
    def start(self) -> Array:
        """log θ, log a and log σ² where the search starts."""
        return np.concatenate(
            [np.log(self.rows.kernel.theta), self._log("amplitude"), self._log("noise")]
        )

    def _log(self, name: str) -> Array:
        given = getattr(self.estimator, name)
        if not isinstance(given, str):
            return np.log([float(given)])
        low, high = np.exp(self._pair(name))
        return np.log([np.clip(START[name] * self._unit(name), low, high)])

    def _unit(self, name: str) -> float:
        return self.variance if name == "noise" else float(np.sqrt(self.variance))

    def _pair(self, name: str) -> tuple[float, float]:
        """Bounds of log a or log σ²; equal where it is given."""
        given, bounds = (getattr(self.estimator, key) for key in (name, f"{name}_bounds"))
        if not isinstance(given, str):
            return float(np.log(given)), float(np.log(given))
        if bounds is None:
            low, high = (self._unit(name) * bound for bound in DEFAULT[name])
        else:
            low, high = bounds
        return float(np.log(low)), float(np.log(high))

    def pairs(self) -> list[tuple[float, float]]:
        """Bounds of log a and log σ²."""
        return [self._pair("amplitude"), self._pair("noise")]

    def process(self, place: Array, eta: float) -> ExactGP:
        """Return the process at a place."""
        amplitude, noise = np.exp(place[-2:])
        return self.problem.at(
            self.kernel(place), noise=float(noise), amplitude=float(amplitude), eta=eta
        )

    def kernel(self, place: Array) -> Kernel:
        """Return the kernel at a place."""
        start = self.rows.kernel
        return start if start.theta.size == 0 else start.with_length_scale(np.exp(place[:-2]))

    def __call__(self, place: Array, eta: float) -> tuple[float, Array, float]:
        """Return the log evidence, its gradient, and n·t."""
        process, t = self.process(place, eta), len(self.offset)
        return process.log_evidence, process.gradient, t * self.problem.rows.total

    def held_eta(self, eta: float, unfairness: float | None) -> float:
        """Return the finite η that length scales are learnt with."""
        del unfairness
        if np.isfinite(eta) or self.problem.spectrum is None:
            return eta
        strength = self.problem.spectrum.values
        return FIRM / (float(strength.max(initial=0.0)) or 1.0)

    def at_bounds(self, place: Array) -> tuple[str, ...]:
        """Return one sentence for each of noise and amplitude that ran to a bound."""
        sentences = []
        for name, value, pair in zip(("amplitude", "noise"), place[-2:], self.pairs(), strict=True):
            for end in (0, 1):
                if pair[0] < pair[1] and abs(value - pair[end]) < NEAR.get((name, end), 1e-6):
                    sentences.append(
                        f"{name}={np.exp(value):.3g} ran to its {('lower', 'upper')[end]} bound: "
                        f"{MEANING[name, end]}; widen {name}_bounds, fix it, or look at the data"
                    )
        return tuple(sentences)

    def share(self, process: ExactGP) -> float:
        """Return the explained share of the posterior mean; NaN without sensitive attributes."""
        return self.rows.explained_share(self.offset + process.mean(self.rows.x))


def exact_evidence(estimator: Any, data: TrainingData) -> ExactEvidence:
    """Learn the kernels; return the evidence of all training rows."""
    rows = exact_rows(estimator, data)
    offset = np.average(rows.y, axis=0, weights=rows.weight)
    centred = rows.y - offset
    variance = float(np.mean(np.average(centred**2, axis=0, weights=rows.weight)))
    free = isinstance(estimator.noise, str) or isinstance(estimator.amplitude, str)
    if free:
        check_target(variance, float(np.mean(offset**2)))
    L, eps, penalty = rows.attributes(estimator.penalty, estimator.eps)
    problem = ExactProblem.build(
        rows.x, None if rows.psi is None else L, centred, penalty=penalty, eps=eps,
        weight=rows.weight,
    )  # fmt: skip
    return ExactEvidence(estimator, rows, problem, np.atleast_1d(offset), variance)
