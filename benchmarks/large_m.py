"""Many features on a small machine: the iterative solver, timed and checked by the direct one.

    python -m benchmarks.large_m                                  # n = 100,000, m = 10,000
    python -m benchmarks.large_m --rows 20000 --components 2000

First a problem of a fifth of the size (at most 20,000 rows, 2,000 features) is solved both ways;
then the large one, for every eta at once. Nothing of size n×m or m×m is formed.
"""

from __future__ import annotations

import argparse
import platform
import resource
from time import perf_counter
from typing import Any

import numpy as np

from scalefair.data.sources import ArraySource
from scalefair.features.design import Design
from scalefair.maps import OneHot, RandomFourier
from scalefair.moments import accumulate
from scalefair.moments.products import stream_moments
from scalefair.solve.ridge.iterative import RANK, StreamedSystem, solve_iterative
from scalefair.solve.ridge.path import Spectrum
from scalefair.solve.ridge.system import System

ETAS = np.array([0.0, 1.0, 1e8, np.inf])


def table(n: int, d: int, seed: int = 0) -> tuple[Any, Any, Any]:
    """X, twelve groups that X stands in for, and a target that depends on both."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, d))
    s = np.digitize(X[:, 0], [-0.7, 0.0, 0.7]) + 4 * np.digitize(X[:, 1], [-0.4, 0.4])
    y = np.sin(X[:, 2]) + X[:, 3] * X[:, 4] + 0.2 * s + 0.3 * rng.standard_normal(n)
    return X, s[:, None], y[:, None]


def problem(n: int, d: int, m: int) -> tuple[ArraySource, Design]:
    X, s, y = table(n, d)
    phi = RandomFourier(n_components=m, length_scale="median", random_state=0).fit(X[:2000])
    return ArraySource(X, s, y), Design(phi, OneHot().fit(s))


def peak_gigabytes() -> float:
    unit = 1024**3 if platform.system() == "Darwin" else 1024**2
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / unit


def compare(n: int, d: int, m: int, alpha: float, rank: int) -> None:
    """Largest difference of held-out predictions, relative to their spread, for each eta."""
    source, design = problem(n, d, m)
    (moments,) = accumulate(source, design)
    system = StreamedSystem.stream(*stream_moments(source, design))
    fit = solve_iterative(system, alpha, sketch=system.sketch(rank))
    direct = Spectrum.of(System.build(moments)).at(alpha)
    Phi = design.phi.transform(table(2000, d, seed=1)[0])
    print(f"\ncheck at n = {n:,}, m = {m:,}: {fit.n_iter} iterations, residual {fit.residual:.1e}")
    print(f"{'eta':>8} {'predictions':>12} {'coefficients':>13} {'share':>9}   (differences)")
    for i, eta in enumerate(ETAS):
        at = ETAS[i : i + 1]
        ours, theirs = fit.slice.coef(at)[0], direct.coef(at)[0]
        f = np.abs(Phi @ (ours - theirs)).max() / np.std(Phi @ theirs)
        beta = np.linalg.norm(ours - theirs) / np.linalg.norm(theirs)
        share = abs(fit.slice.shares(at)[0] - direct.shares(at)[0])
        print(f"{eta:8g} {f:12.1e} {beta:13.1e} {share:9.1e}")


class Clock:
    """A line per stage: seconds, and the peak memory so far."""

    def __init__(self) -> None:
        self.start = self.last = perf_counter()

    def line(self, stage: str) -> None:
        now = perf_counter()
        print(f"{stage:42} {now - self.last:8.1f} s {peak_gigabytes():8.2f} GB", flush=True)
        self.last = now


def solve(n: int, d: int, m: int, alpha: float, rank: int) -> None:
    """Solve the large problem and judge it on rows it has not seen."""
    print(f"\nn = {n:,}, d = {d}, m = {m:,}, alpha = {alpha:g}")
    clock = Clock()
    source, design = problem(n, d, m)
    clock.line("data and map")
    streamed = stream_moments(source, design)
    system = StreamedSystem.stream(*streamed)
    clock.line("moments but the m×m block (1 pass)")
    sketch = system.sketch(rank)
    clock.line(f"preconditioner, rank {rank} (1 pass)")
    fit = solve_iterative(system, alpha, sketch=sketch)
    k = system.target.shape[1] + len(fit.slice.strength)
    clock.line(f"{fit.n_iter} iterations of {k} columns ({fit.n_iter + 1} passes)")
    coefs, shares = fit.slice.coef(ETAS), fit.slice.shares(ETAS)
    clock.line("every eta")
    print(f"{'total':42} {clock.last - clock.start:8.1f} s; residual {fit.residual:.1e}")
    X, _, y = table(5000, d, seed=1)
    Phi = design.phi.transform(X)
    print(f"{'eta':>8} {'share':>10} {'R2 on new rows':>15}")
    for eta, coef, share in zip(ETAS, coefs, shares, strict=True):
        f = Phi @ coef + (system.moments.mean("y") - system.mean @ coef)
        print(f"{eta:8g} {share:10.2g} {1 - np.var(y - f) / np.var(y):15.4f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--components", type=int, default=10_000)
    parser.add_argument("--inputs", type=int, default=50)
    parser.add_argument("--alpha", type=float, default=1e-5)
    parser.add_argument("--rank", type=int, default=RANK)
    parser.add_argument("--no-check", action="store_true", help="leave the comparison out")
    given = parser.parse_args()
    solve(given.rows, given.inputs, given.components, given.alpha, given.rank)
    if not given.no_check:  # afterwards: the peak of the large one is its own
        small = min(given.rows // 5, 20_000), given.inputs, min(given.components // 5, 2_000)
        compare(*small, given.alpha, min(given.rank, small[2] // 4))


if __name__ == "__main__":
    main()
