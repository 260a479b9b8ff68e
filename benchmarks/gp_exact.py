"""Exact ARD evidence and gradient against scikit-learn's GaussianProcessRegressor.

    python -m benchmarks.gp_exact [--rows 1000] [--inputs 20] [--rounds 7]

Both by turns in one process, with the same kernel, amplitude and noise. Writes
results/gp_exact.csv.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from statistics import median
from time import perf_counter, sleep
from typing import Any

import numpy as np
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process import kernels as sk

from benchmarks._measure import RESULTS, peak_megabytes, save_table
from scalefair.kernels import RBF
from scalefair.solve.dense.gp import ExactProblem

NOISE, AMPLITUDE = 0.2, 1.5


def make_rows(rows: int, inputs: int) -> tuple[Any, Any, Any]:
    """Inputs, a centred target that depends on some of them, and one length scale per input."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((rows, inputs))
    y = np.sin(X[:, 0]) + X[:, 1] * X[:, 2] + 0.3 * rng.standard_normal(rows)
    return X, y - y.mean(), np.linspace(2.0, 8.0, inputs)


def ours(rows: int, inputs: int, eta: float = 0.0) -> Callable[[], Any]:
    """Evidence and gradient of the exact process; the penalty is decomposed beforehand."""
    X, y, length_scale = make_rows(rows, inputs)
    L = RBF(0.5)(X[:, :1]) if eta else None
    problem, kernel = ExactProblem.build(X, L, y), RBF(length_scale)

    def run() -> tuple[float, Any]:
        process = problem.at(kernel, noise=NOISE, amplitude=AMPLITUDE, eta=eta)
        *in_scale, in_amplitude, in_noise = process.gradient
        # scikit-learn's order, and its amplitude is a².
        return process.log_evidence, np.array([in_amplitude / 2, *in_scale, in_noise])

    return run


def theirs(rows: int, inputs: int) -> Callable[[], Any]:
    """Evidence and gradient of scikit-learn's regressor."""
    X, y, length_scale = make_rows(rows, inputs)
    kernel = sk.ConstantKernel(AMPLITUDE**2) * sk.RBF(length_scale) + sk.WhiteKernel(NOISE)
    model = GaussianProcessRegressor(kernel, alpha=0.0, optimizer=None).fit(X, y)
    return lambda: model.log_marginal_likelihood(kernel.theta, eval_gradient=True)


def by_turns(runs: list[Callable[[], Any]], rounds: int) -> list[float]:
    """Median seconds of each, run by turns, so that other load falls on all alike.

    After a rest, in which the BLAS threads of the one before go to sleep.
    """
    times: list[list[float]] = [[] for _ in runs]
    for _ in range(rounds + 1):
        for run, taken in zip(runs, times, strict=True):
            sleep(0.2)
            start = perf_counter()
            run()
            taken.append(perf_counter() - start)
    return [median(taken[1:]) for taken in times]  # the first touches memory and compiles


PEAK = """
import sys
from benchmarks import gp_exact
getattr(gp_exact, sys.argv[1])(int(sys.argv[2]), int(sys.argv[3]))()
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1000)
    parser.add_argument("--inputs", type=int, default=20)
    parser.add_argument("--rounds", type=int, default=7)
    options = parser.parse_args()
    shape = options.rows, options.inputs
    runs = [theirs(*shape), ours(*shape), ours(*shape, eta=1.0)]
    np.testing.assert_allclose(runs[1]()[0], runs[0]()[0], rtol=1e-10)
    np.testing.assert_allclose(runs[1]()[1], runs[0]()[1], rtol=1e-8, atol=1e-8)
    reference, plain, fair = by_turns(runs, options.rounds)
    what = f"n={shape[0]}, d={shape[1]}"
    lines = [
        (f"scikit-learn, {what}, seconds", reference, ""),
        (f"exact, {what}, seconds", plain, ""),
        (f"exact and fair, {what}, seconds", fair, ""),
        ("scikit-learn / exact", reference / plain, ">= 10"),
        ("scikit-learn / exact and fair", reference / fair, ""),
        (f"scikit-learn, {what}, peak MB", peak_megabytes(PEAK, "theirs", *shape), ""),
        (f"exact, {what}, peak MB", peak_megabytes(PEAK, "ours", *shape), ""),
    ]
    for name, value, target in lines:
        print(f"{name}: {value:.4g} {target}")
    kept = [(name, f"{value:.4g}", target) for name, value, target in lines]
    save_table(RESULTS / "gp_exact.csv", [("what", "value", "target"), *kept])


if __name__ == "__main__":
    main()
