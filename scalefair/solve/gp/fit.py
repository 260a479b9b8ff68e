"""A fair Gaussian process regression: length scales by a search, the rest in closed form.

β | y ~ N(A⁻¹Φᵀ(y − ȳ), σ²A⁻¹),    A = ΦᵀΦ + τI + nηRRᵀ,  τ = σ²/a².
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from scalefair._typing import Array, Chunk, FeatureMap
from scalefair.features.base import whitened
from scalefair.features.nystroem import MovingNystroem
from scalefair.kernels import Kernel, Scaled
from scalefair.moments import Moments
from scalefair.solve.diagnostics import Diagnostics, of_eigenvalues
from scalefair.solve.gp.distribution import FeatureLaw, missing_variance, residual
from scalefair.solve.gp.evidence import MomentEvidence, hyper_of, kernel_of
from scalefair.solve.gp.limit import share_of
from scalefair.solve.gp.search import Search, scale_sentences, search
from scalefair.solve.gp.spec import Progress

CONSTANT = (
    "the mean of f is constant: y shows no signal, or the penalty leaves nothing of it; use a "
    "smaller eta, or give the model more or other inputs"
)

USUAL_SHARE = 0.95
"""Share of the weight of the rows whose residual counts as usual."""


@dataclass(frozen=True, eq=False)
class ProcessFit:
    """A process at the hyperparameters that were learnt or given.

    Parameters
    ----------
    distribution : FeatureLaw, ExactLaw or LatentLaw
        Of f given y.
    psi : FeatureMap or None
    kernel : Kernel or None
        a²k.
    theta : array
        log length scales, log a and, with noise, log σ².
    amplitude, eta : float
    log_evidence, share : float
        The share is that of the mean on the training rows; NaN where there is none.
    n_rows : int
        Rows of positive weight.
    diagnostics : Diagnostics
    search : Search
        How the search went.
    at_bounds : tuple of str
        What ran to a bound, and what that means.
    phi : FeatureMap or None
    moments : Moments or None
        Of the training rows; the dense process has no features and none.
    """

    distribution: Any
    psi: FeatureMap | None
    kernel: Kernel | None
    theta: Array
    amplitude: float
    eta: float
    log_evidence: float
    share: float
    n_rows: int
    diagnostics: Diagnostics
    search: Search
    at_bounds: tuple[str, ...]
    phi: FeatureMap | None
    moments: Moments | None


@dataclass(frozen=True, eq=False)
class GPFit(ProcessFit):
    """A regression.

    Parameters
    ----------
    noise : float
        σ².
    coef : array of shape (m, t), or (n, t) of the dense process
        Mean of β, or the dual coefficients.
    evidence : MomentEvidence or None
        For other hyperparameters; it knows where the training rows are.
    """

    noise: float
    coef: Array
    evidence: MomentEvidence | None


def fit_features(evidence: MomentEvidence, sample: Chunk) -> GPFit:
    """Learn the hyperparameters, and return the process there.

    Parameters
    ----------
    evidence : MomentEvidence
    sample : Chunk
        Rows that tell how much of the kernel a Nyström map usually misses.
    """
    spec, result = evidence.spec, search(evidence)
    design = evidence.at(result.hyper)
    profile, eta = evidence.settle(evidence.system(design))
    point, phi = profile.point, design.phi
    if isinstance(phi, MovingNystroem):
        phi = phi.settled()
    system, amplitude = point.slice.system, point.amplitude
    missing = missing_variance(phi, amplitude)
    contained = missing * _usual_residual(phi, sample) if missing and spec.noise is None else 0.0
    distribution = FeatureLaw(phi, point.posterior(), missing, contained)
    scales = hyper_of(phi)
    share = share_of(point)
    fit = GPFit(
        distribution=distribution, psi=design.psi, kernel=scaled(kernel_of(phi), amplitude),
        theta=np.append(scales, np.log([amplitude, point.noise])), amplitude=amplitude, eta=eta,
        log_evidence=point.log_evidence, share=share, n_rows=system.moments.n_rows,
        diagnostics=of_eigenvalues(system.values, point.slice.ratio), search=result,
        at_bounds=profile.at_bounds, phi=phi, moments=system.moments, noise=point.noise,
        coef=distribution.law.coef, evidence=replace(evidence, progress=Progress()),
    )  # fmt: skip
    return checked(fit, scale_sentences(result, evidence.bounds, len(scales), spec.inputs))


def checked(fit: GPFit, sentences: list[str]) -> GPFit:
    """Return the fit with all that is to be said of it; raise ValueError without an evidence."""
    if not np.isfinite(fit.log_evidence):
        raise ValueError(
            f"the log evidence is {fit.log_evidence} at the noise and length scales found; look "
            "for huge values among the inputs and targets, or fix them"
        )
    constant = [CONSTANT] if fit.psi is not None and np.isnan(fit.share) else []
    return replace(fit, at_bounds=(*fit.at_bounds, *constant, *sentences))


def scaled(kernel: Kernel | None, amplitude: float) -> Kernel | None:
    """Return a²k."""
    return None if kernel is None else Scaled(kernel, amplitude)


def _usual_residual(phi: Any, sample: Chunk) -> float:
    """Return what k(x, x) − |φ(x)|² exceeds on 5 % of the weight of the sample."""
    x = np.asarray(sample.x, dtype=np.float64)
    missed = residual(phi, x, whitened(phi, x))
    order = np.argsort(missed)
    weight = np.ones(len(x)) if sample.weight is None else sample.weight
    below = np.cumsum(weight[order])
    return float(missed[order][np.searchsorted(below, USUAL_SHARE * below[-1])])
