"""A fit of the dense n×n process, for validation and small n: what is learnt, and predictions.

    log N(y − ȳ | 0, K* + σ²I),    K* = K − K(MK + (σ²/η)I)⁻¹MK,  K = a²k(X, X)

is maximised over log θ, log a and log σ² together.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from scalefair._linalg import positive_eigh
from scalefair._typing import Array, FeatureMap
from scalefair.data.progress import Progress
from scalefair.features import ConcatMap, Identity, OneHot, ProductMap
from scalefair.features.base import whitened as features
from scalefair.features.mixed import units_of
from scalefair.features.training import Training, input_kernel, sensitive_map
from scalefair.kernels import Kernel, Scaled
from scalefair.moments import Moments
from scalefair.penalties import DEFAULT_EPS, attribute_root, share_of_block
from scalefair.solve.dense.gp import ExactGP, ExactProblem
from scalefair.solve.dense.ridge import DualFit, fair_dual
from scalefair.solve.fit import GPFit, ProcessSpec, of_eigenvalues
from scalefair.solve.gp import profile
from scalefair.solve.gp.distribution import positive_part
from scalefair.solve.gp.evidence import checked, scale_bounds, search

START_NOISE = 0.1  # σ² where the search starts, in units of the variance of y; a starts at its deviation


def offset_of(rows: Any) -> Array:
    """Return ȳ, shape (t,)."""
    return np.asarray(np.average(rows.y, axis=0, weights=rows.weight))


def problem_of(rows: Any, penalty: str, eps: float | None) -> ExactProblem:
    """Return the rows with y centred and the penalty decomposed."""
    L, ridge, kind = rows.attributes(penalty, eps)
    return ExactProblem.build(
        rows.x, None if rows.psi is None else L, rows.y - offset_of(rows), penalty=kind, eps=ridge, weight=rows.weight
    )


def process_at(problem: ExactProblem, kernel: Kernel, theta: Array, eta: float) -> ExactGP:
    """Return the process at [log θ, log a, log σ²]."""
    amplitude, noise = np.exp(theta[-2:])
    if len(theta) > 2:
        kernel = kernel.with_length_scale(np.exp(theta[:-2]))
    return problem.at(kernel, noise=float(noise), amplitude=float(amplitude), eta=eta)


@dataclass(frozen=True, eq=False)
class DenseEvidence:
    """log θ, log a and log σ² are searched for together; equal bounds fix those that are given."""

    spec: ProcessSpec
    kernel: Kernel  # where the search starts
    problem: ExactProblem
    start: Array
    bounds: list[Any]

    @classmethod
    def of(cls, spec: ProcessSpec, kernel: Kernel, problem: ExactProblem, variance: float) -> DenseEvidence:
        """Return the evidence; `variance` is that of y, the mean over the outputs."""
        unit, log_variance = float(np.sqrt(variance)), np.log(variance or 1.0)
        given = spec.amplitude, spec.amplitude_bounds
        amplitude = profile.log_bounds(*given, profile.AMPLITUDE_BOUNDS, unit)
        noise = profile.log_bounds(spec.noise, spec.noise_bounds, profile.NOISE_BOUNDS, variance)
        scales = np.log(kernel.theta)
        first = np.clip(log_variance / 2, *amplitude)
        others = [first, np.clip(log_variance + np.log(START_NOISE), *noise)]
        bounds = [*scale_bounds(scales, spec), amplitude, noise]
        return cls(spec, kernel, problem, np.concatenate([scales, others]), bounds)

    def __call__(self, hyper: Array, eta: float) -> tuple[float, Array, float]:
        """Return the log evidence, its gradient, and n·t."""
        process = process_at(self.problem, self.kernel, hyper, eta)
        return process.log_evidence, process.gradient, process.scale

    def learning_eta(self) -> float:
        """Return the finite η that length scales are learnt with, where ∞ is requested."""
        if self.problem.spectrum is None:
            return self.spec.eta
        largest = float(self.problem.spectrum.values.max(initial=0.0))
        return profile.MAX_LEARNING_ETA / (largest or 1.0)

    def at_bounds(self, hyper: Array) -> tuple[str, ...]:
        """Describe an amplitude and a noise that are at a bound."""
        named = zip(("amplitude", "noise"), hyper[-2:], self.bounds[-2:], strict=True)
        return tuple(sentence for one in named for sentence in profile.at_log_bounds(*one))


def fit_dense(rows: Any, spec: ProcessSpec, progress: Progress | None) -> GPFit:
    """Learn the hyperparameters, and return the process there."""
    problem, offset = problem_of(rows, spec.penalty, spec.eps), offset_of(rows)
    squares = np.average((rows.y - offset) ** 2, axis=0, weights=rows.weight)
    variance = float(np.mean(squares))
    learns = spec.noise is None or spec.amplitude is None
    if learns and variance <= profile.ROUNDED_VARIANCE * np.mean(offset**2):
        raise ValueError(profile.CONSTANT_TARGET)
    evidence = DenseEvidence.of(spec, rows.kernel, problem, variance)
    result = search(evidence, progress)
    process = process_at(problem, rows.kernel, result.hyper, spec.eta)
    kernel, noise, amplitude = process.kernel, process.noise, process.amplitude
    scales = np.log(kernel.theta)
    gram = process.gram / amplitude**2
    fit = GPFit(
        distribution=ExactDistribution(
            rows, kernel, noise, amplitude, spec.eta, spec.eps, spec.penalty
        ),
        psi=rows.psi, kernel=Scaled(kernel, amplitude),
        theta=np.append(scales, np.log([amplitude, noise])), amplitude=amplitude, eta=spec.eta,
        log_evidence=process.log_evidence,
        share=rows.explained_share(offset + process.mean(rows.x)), n_rows=rows.n_rows,
        diagnostics=of_eigenvalues(positive_eigh(gram)[0], noise / amplitude**2), search=result,
        at_bounds=evidence.at_bounds(result.hyper), phi=None, moments=None, noise=noise,
        coef=process.dual_coef, evidence=None,
    )  # fmt: skip
    return checked(fit, evidence.bounds, spec.inputs)  # type: ignore[no-any-return]


@dataclass(frozen=True, eq=False)
class ExactDistribution:
    """The distribution of f; the n×n process is made again from the rows where it is needed."""

    rows: Any
    kernel: Kernel
    noise: float
    amplitude: float
    eta: float
    eps: float | None
    penalty: str
    prior: bool = False  # whether it is the prior, before y is seen

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "process"}

    @cached_property
    def process(self) -> ExactGP:
        """The posterior of f − ȳ."""
        problem = problem_of(self.rows, self.penalty, self.eps)
        hyper = {"noise": self.noise, "amplitude": self.amplitude, "eta": self.eta}
        return problem.at(self.kernel, **hyper)

    def at(self, theta: Array) -> ExactGP:
        """Return the posterior at [log θ, log a, log σ²]."""
        return process_at(self.process.problem, self.kernel, theta, self.eta)

    @property
    def offset(self) -> Array:
        """ȳ, shape (t,)."""
        return offset_of(self.rows)

    def mean(self, x: Array) -> Array:
        """Return E f, shape (k, t)."""
        if self.prior:
            return np.tile(self.offset, (len(x), 1))
        return self.offset + self.process.mean(x)

    def variances(self, x: Array) -> tuple[Array, Array]:
        """Return var f and the noise, both of shape (k,)."""
        variance = np.diagonal(self.covariance(x)) if self.prior else self.process.variance(x)
        return variance, np.full(len(x), self.noise)

    def covariance(self, x: Array) -> Array:
        """Return cov f, shape (k, k)."""
        of = self.process.prior_covariance if self.prior else self.process.covariance
        return positive_part(of(x))


def gram(feature_map: Any, S: Array, T: Array) -> Array:
    """Return the kernel that a map approximates, k(S, T)."""
    if isinstance(feature_map, ProductMap | ConcatMap):
        parts = [gram(part, S[:, at], T[:, at]) for part, at in feature_map.parts_]
        combine = np.multiply if isinstance(feature_map, ProductMap) else np.add
        return np.asarray(combine.reduce(parts))
    if isinstance(feature_map, Identity):
        return S @ T.T
    if isinstance(feature_map, OneHot) and feature_map.unknown == "levels":
        return feature_map.raw(S) @ feature_map.raw(T).T
    return np.asarray(feature_map.kernel_(S, T))


class Attributes(NamedTuple):
    """Gram matrix of the sensitive attributes, and the ε and the penalty to use it with."""

    gram: Array
    eps: float
    penalty: str


@dataclass(frozen=True, eq=False)
class ExactRows:
    """All training rows, with the kernel k of the inputs and ψ, the map whose kernel is l."""

    kernel: Kernel
    psi: FeatureMap | None
    x: Array
    s: Array | None
    y: Array
    weight: Array | None
    joined: float  # weight of l in the kernel of f: one over the ridge of ψ; 0 where s is not seen

    def __getstate__(self) -> dict[str, Any]:
        # The n×n matrix comes back by itself.
        return {name: value for name, value in vars(self).items() if name != "K"}

    @property
    def n_rows(self) -> int:
        """Rows of positive weight."""
        return len(self.x) if self.weight is None else int(np.count_nonzero(self.weight))

    def cross(self, x: Array, s: Array | None) -> Array:
        """Gram matrix of the predictor's kernel between new rows and these."""
        K: Array = np.asarray(self.kernel(x, self.x), dtype=np.float64)
        if self.joined and s is not None and self.s is not None:
            K = K + self.joined * gram(self.psi, s, self.s)
        return K

    @cached_property
    def K(self) -> Array:
        """Gram matrix of the predictor's kernel."""
        return self.cross(self.x, self.s)

    def attributes(self, penalty: str, eps: float | None) -> Attributes:
        """Return the Gram matrix of s and its ε: by default ψ is scaled to have no units."""
        if self.psi is None or self.s is None:
            return Attributes(np.zeros((len(self.x), len(self.x))), 0.0, penalty)
        kinds = {kind for kind, _ in units_of(self.psi)}
        plain = {"kernel"} if eps is None else {"kernel", "groups", "cell"}
        if penalty == "hsic" or kinds <= plain:
            L = gram(self.psi, self.s, self.s)
            return Attributes(L, DEFAULT_EPS if eps is None else eps, penalty)
        # P itself, from features that are whitened with their ridge: L/n of the penalty `hsic`.
        moments = self._moments(np.zeros((len(self.x), 1)))
        _, root = attribute_root(moments, eps)
        G = (features(self.psi, self.s) - moments.mean("psi")) @ root
        return Attributes(G @ G.T, 0.0, "hsic")

    def solve(self, alpha: float, eta: float, *, penalty: str, eps: float | None, fit_intercept: bool) -> DualFit:
        """Return the dual fit."""
        L, ridge, kind = self.attributes(penalty, eps)
        return fair_dual(
            self.K, L, self.y, alpha=alpha, eta=eta, weight=self.weight, eps=ridge, penalty=kind,
            fit_intercept=fit_intercept,
        )  # fmt: skip

    def _moments(self, f: Array) -> Moments:
        """Moments of predictions and attributes; rows of weight zero need not be known to ψ."""
        weight = np.ones(len(self.x)) if self.weight is None else self.weight
        at = np.flatnonzero(weight)
        s = np.asarray(self.s)[at]
        blocks = {"phi": f[at], "psi": features(self.psi, s), "y": f[at]}  # type: ignore[arg-type]
        return Moments.of_rows(blocks, weight[at], {"psi": units_of(self.psi)})

    def explained_share(self, f: Array) -> float:
        """Explained share of predictions on these rows; NaN without sensitive attributes."""
        if self.psi is None:
            return float("nan")
        return share_of_block(self._moments(f.reshape(len(f), -1)))


def exact_rows(training: Training, joined: float) -> ExactRows:
    """Learn the kernels of the exact mode and hold the rows; `joined` is the weight of l."""
    psi, rows = sensitive_map(training), training.sample
    kernel = input_kernel(training)
    joined = 0.0 if psi is None else joined
    return ExactRows(kernel, psi, rows.x, rows.s, rows.y, rows.weight, joined)
