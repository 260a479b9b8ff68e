"""What is asked of a fit: frozen values from the estimators to the solvers."""

from __future__ import annotations

from dataclasses import dataclass, replace

Bounds = tuple[float, float]


@dataclass(frozen=True)
class Spec:
    """What to fit: 1/n ΣV + α|β|² + ηP, with a weight η or a limit that finds it."""

    alpha: float
    eta: float
    unfairness: float | None
    penalty: str = "normalized"
    eps: float | None = None
    dtype: str = "float64"  # of the rows, whose rounding error the solution inherits


@dataclass(frozen=True, eq=False)
class ProcessSpec:
    """The Gaussian process that is wanted, and how its hyperparameters are learnt."""

    eta: float
    unfairness: float | None = None
    penalty: str = "normalized"
    eps: float | None = None
    noise: float | None = None  # σ²; None: learnt, as the amplitude. Classes have none
    amplitude: float | None = None
    noise_bounds: Bounds | None = None
    amplitude_bounds: Bounds | None = None
    length_scale_bounds: Bounds | None = None
    learn_scales: bool = True  # else length scales and landmarks stay where they start
    n_restarts: int = 0
    max_iter: int = 100
    tol: float = 1e-5
    seed: int = 0
    inputs: tuple[str, ...] = ()  # names for messages

    def fixed(self, eta: float, amplitude: float, noise: float | None = None) -> ProcessSpec:
        """Return the same process at a weight, with hyperparameters that were learnt before."""
        return replace(
            self, eta=eta, unfairness=None, amplitude=amplitude, noise=noise, learn_scales=False,
            n_restarts=0,
        )  # fmt: skip
