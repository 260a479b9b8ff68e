"""The fit with a nonlinear kernel on the predictions: `output_kernel`."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import numpy as np
import scipy.linalg

from scalefair._typing import Array, Chunk
from scalefair.features.base_model import MAX_DIRECTIONS
from scalefair.features.blocks import RidgeCurve
from scalefair.features.design import Design
from scalefair.kernels import RBF
from scalefair.moments import Moments
from scalefair.moments.accumulate import Rows
from scalefair.moments.output_features import OutputKernel, OutputPass, OutputRows
from scalefair.penalties import normalized, whitening
from scalefair.solve.fit import LossFit, RidgeFit, Spec, of_eigenvalues
from scalefair.solve.limit import check_attainable, solve_output_under_limit
from scalefair.solve.output.hsic import OutputFit, OutputObjective, solve_output
from scalefair.solve.ridge.direct import ridge_fit, solve_primal
from scalefair.solve.ridge.path import Spectrum
from scalefair.solve.ridge.system import System, rescale, spread


def output_kernel(kernel: Any) -> OutputKernel:
    """Return the kernel on f of a valid parameter; None: the linear one."""
    if kernel is None:
        return OutputKernel(1.0, np.zeros(0), 1.0)
    if isinstance(kernel, RBF):
        return OutputKernel.gaussian((float(np.asarray(kernel.length_scale)),))
    return OutputKernel.gaussian()


def output_objective(rows: Rows, system: System, spec: Spec, kernel: OutputKernel, loss: Any = None) -> OutputObjective:
    """Return J with a kernel on f, over the rows of a fit whose moments are there."""
    design = rows.design
    names, whiten = whitening(system.moments, spec.eps)
    mean = system.moments.mean(*names)
    rows_of = OutputRows(design, system.features, names, mean, whiten)
    size = rows.chunk_rows or design.chunk_rows(rows_of.width)
    phi = design.phi.linear_
    width = design.phi.n_raw_

    def linear(coef: Array) -> Array:
        return coef if phi is None else np.vstack([phi @ coef[: phi.shape[1]], coef[phi.shape[1] :]])

    def linear_back(slope: Array) -> Array:
        return slope if phi is None else np.vstack([phi.T @ slope[:width], slope[width:]])

    return OutputObjective(
        system, OutputPass(rows.source, rows_of, size, rows.n_rows), kernel, linear, linear_back,
        np.linalg.pinv(whiten) @ whitening(system.moments, None)[1],
        spec.alpha, 0.0, loss, scaled=spec.penalty != "nocco_output",
    )  # fmt: skip


def with_ridge_curve(design: Design, moments: Moments, sample: Chunk, alpha: float, seed: int) -> Design:
    """Return the design with smooth functions of ĥ and ê, ridge regressions on φ."""
    covariance = moments.covariance("phi", "phi")
    targets = np.hstack([moments.covariance("phi", "y"), normalized(moments, None)])
    ridge = covariance + alpha * np.eye(len(covariance))
    weights = scipy.linalg.solve(ridge, targets, assume_a="pos")
    h, e = np.split(weights, [design.n_targets], axis=1)
    directions = np.linalg.eigh(e.T @ covariance @ e)[1][:, ::-1][:, :MAX_DIRECTIONS]
    curve = RidgeCurve.learn(design.phi, np.hstack([h, e @ directions]), sample, seed)
    return replace(design, beside=(*design.beside, curve))


def check_no_share(system: System, alpha: float, unfairness: float | None) -> None:
    """Raise NotAttainableError if a limit of 0 is requested and no mean of f is free of s."""
    if unfairness == 0:
        check_attainable(Spectrum.of(system).at(alpha).quadratic(), 0.0)


def fit_with_output_kernel(rows: Rows, system: System, spec: Spec, kernel: Any) -> RidgeFit:
    """Return the ridge fit with a kernel on f, from the closed form on."""
    check_no_share(system, spec.alpha, spec.unfairness)
    objective = output_objective(rows, system, spec, output_kernel(kernel))
    unit = spread(system) ** 2
    weight_unit = 1.0 if objective.scaled else unit

    def fit(eta: float, start: OutputFit | None = None) -> OutputFit:
        coef = solve_primal(system, spec.alpha, eta / weight_unit)[0] if start is None else start.coef
        weighed, zero = replace(objective, eta=eta), np.zeros(coef.shape[1])
        return solve_output(weighed, coef, zero, unit=unit, progress=progress)

    with rows.progress.steps("iterations") if rows.progress else nullcontext() as progress:
        eta, result = _weighted_or_limited(fit, spec, weight_unit)
    # The share does not depend on the scale of f, so under a limit it ends with the best one.
    limited = spec.unfairness is not None and eta > 0
    coef = rescale(system, result.coef) if limited else result.coef
    share = result.dependence.share
    diagnostics = of_eigenvalues(Spectrum.of(system).values, spec.alpha, spec.rounding)
    return ridge_fit(system, coef, spec.alpha, eta, diagnostics, n_iter=result.n_iter, output_share=share)


def fit_loss_with_output(
    rows: Rows, problem: Any, spec: Spec, kernel: Any, *, newton: Callable[[float], Any],
    progress: Callable[[], Any] | None,
) -> LossFit:  # fmt: skip
    """Return the fit of a general loss with a kernel on f, from `newton` at a linear penalty."""
    system = problem.system
    objective = output_objective(rows, system, spec, output_kernel(kernel), problem.loss)
    check_no_share(system, spec.alpha, spec.unfairness)
    weight_unit = 1.0 if objective.scaled else problem.scale**2
    last: list[Any] = []

    def fit(eta: float, start: OutputFit | None = None) -> OutputFit:
        linear = newton(eta / weight_unit)
        last[:] = [linear]
        coef, intercept = problem.solution(linear.theta)
        if start is not None:
            coef, intercept = start.coef, start.intercept
        weighed, hessian = replace(objective, eta=eta), linear.local.hessian
        _, unit = problem.units(linear.local)
        return solve_output(weighed, coef, intercept, unit=unit, hessian=hessian, progress=progress)

    eta, result = _weighted_or_limited(fit, spec, weight_unit)
    linear: LossFit = problem.fit(last[0], spec)
    return replace(
        linear, coef=result.coef, intercept=result.intercept, eta=eta,
        explained_share=system.explained_share(result.coef), n_iter=result.n_iter,
        mean_loss=objective.mean_loss(result.coef, result.intercept),
        n_passes=objective.rows.n_passes, output_share=result.dependence.share,
    )  # fmt: skip


def _weighted_or_limited(
    fit: Callable[[float, OutputFit | None], OutputFit], spec: Spec, unit: float
) -> tuple[float, OutputFit]:
    if spec.unfairness is None:
        return spec.eta, fit(spec.eta, None)
    return solve_output_under_limit(fit, spec.unfairness, unit)
