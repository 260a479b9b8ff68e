"""Where people wait: small problems, cross-validation, audits, first use; each against a floor.

    python -m benchmarks.waiting [--only NAME ...] [--quick] [--rounds 5]

A floor is not our code: scikit-learn, one factorisation, or a bare pass in NumPy (projection,
exponential and RᵀR, a chunk per thread, BLAS held to one thread). Run it on an idle machine; ours
and the floor take turns, and medians count. Writes results/waiting.csv, but not with --quick.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from pathlib import Path
from statistics import median
from time import perf_counter, process_time
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from scipy.linalg import cho_factor
from sklearn.base import clone
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.kernel_ridge import KernelRidge
from sklearn.linear_model import Ridge
from threadpoolctl import threadpool_limits

from benchmarks._measure import RESULTS, save_lines
from benchmarks.streams import SENSITIVE, cluster, fit_dask, fit_scan, write_table
from scalefair import CrossFit, FairGPRegressor, FairKernelRidge, FairKernelRidgeCV, FairRidge, audit
from scalefair.datasets import make_biased_income

CHUNK = 2_000


class Line(NamedTuple):
    """One row of the table: what is timed, its floor (None: seconds count), and what to reach."""

    run: Callable[[], Any]
    floor: Callable[[], Any] | None
    target: float


def numbers(n: int, d: int) -> tuple[Any, Any, Any]:
    rng = np.random.default_rng(0)
    X, s = rng.normal(size=(n, d)), rng.normal(size=(n, 2))
    return X, X[:, 0] + s[:, 0] + np.sin(X[:, -1]) + 0.3 * rng.normal(size=n), s


def fit(model: Any, X: Any, y: Any, s: Any) -> Callable[[], Any]:
    return lambda: model.fit(X, y, sensitive_features=s)


def bare_pass(X: Any, m: int, q: int) -> Callable[[], Any]:
    """RᵀR of R = [exp(XZᵀ), Ψ]: what no pass can do without."""
    rng = np.random.default_rng(0)
    Z, Psi = rng.normal(size=(X.shape[1], m)) / 10, rng.normal(size=(CHUNK, q))
    threads = len(os.sched_getaffinity(0))

    def work(number: int) -> Any:
        rows, sums = np.empty((CHUNK, m + q)), np.zeros((m + q, m + q))
        rows[:, m:] = Psi
        for start in range(number * CHUNK, len(X), threads * CHUNK):
            part = rows[: len(X[start : start + CHUNK])]
            np.exp(X[start : start + CHUNK] @ Z, out=part[:, :m])
            sums += part.T @ part
        return sums

    def run() -> Any:
        with threadpool_limits(1), ThreadPoolExecutor(threads) as pool:
            return sum(pool.map(work, range(threads)))

    return run


def cross_validation(n: int, m: int, target: float) -> Line:
    data, options = numbers(n, 10), {"n_components": m, "random_state": 0, "unfairness": 0.05}
    one, cv = FairKernelRidge(**options), FairKernelRidgeCV(**options)
    return Line(fit(cv, *data), fit(one, *data), target)


def numeric_fit(n: int) -> Line:
    X, y, s = numbers(n, 10)
    model = FairKernelRidge(n_components=500, eta=1.0, random_state=0)
    q = model.fit(X, y, sensitive_features=s).moments_.blocks["psi"]
    return Line(fit(model, X, y, s), bare_pass(X, 500, q + 1), 1.3)


def mixed_frame(n: int) -> Line:
    pay = make_biased_income(n, random_state=0)
    model = FairKernelRidge(n_components=500, eta=1.0, random_state=0)
    run = fit(model, pay.data, pay.target, pay.data[SENSITIVE])
    blocks = run().moments_.blocks
    X = np.random.default_rng(0).normal(size=(n, pay.data.shape[1]))
    return Line(run, bare_pass(X, blocks["phi"], sum(blocks.values()) - blocks["phi"]), 1.4)


def parquet(n: int, folder: Path) -> Line:
    table = write_table(folder / "pay", n)
    X = np.random.default_rng(0).normal(size=(n, 20))
    q = sum(fit_scan(table, 300).moments_.blocks.values()) - 300
    return Line(lambda: fit_scan(table, 300), bare_pass(X, 300, q), 1.4)


def small_ridge(n: int) -> Line:
    X, y, s = numbers(n, 10)
    return Line(fit(FairRidge(eta=1.0), X, y, s), lambda: Ridge().fit(X, y), 3.0)


def small_kernel(n: int) -> Line:
    X, y, s = numbers(n, 10)
    model = FairKernelRidge(eta=1.0, random_state=0)
    return Line(fit(model, X, y, s), lambda: KernelRidge(kernel="rbf").fit(X, y), 1.3)


def exact(n: int, *, limited: bool) -> Line:
    X, y, s = numbers(n, 5)
    K = np.exp(-((X[:, None] - X[None]) ** 2).sum(axis=2)) + np.eye(n)
    point = {"unfairness": 0.05} if limited else {"eta": 1.0}
    model = FairKernelRidge(feature_map="exact", random_state=0, **point)
    floor = (lambda: np.linalg.eigh(K)) if limited else (lambda: cho_factor(K))
    return Line(fit(model, X, y, s), floor, 1.6 if limited else 5.0)


def trees(n: int, *, cv: bool, fit_on: str = "sample", proxies: bool = False) -> Line:
    """Boosted trees inside; of `proxies`, x tells about s, which asks for models of s as well."""
    X, y, s = numbers(n, 10)
    s = s + X[:, :2] if proxies else s
    base = HistGradientBoostingRegressor(random_state=0)
    inside = CrossFit(base, fit_on=fit_on)
    options = {"base_estimator": inside, "n_components": 100, "random_state": 0, "unfairness": 0.05}
    model = FairKernelRidgeCV(**options) if cv else FairKernelRidge(**options)
    return Line(fit(model, X, y, s), lambda: clone(base).fit(X, y), 2.0 if fit_on == "split" else 6.5)


def audit_rows(n: int, target: float) -> Line:
    rng = np.random.default_rng(0)
    groups = {"sex": rng.choice(["f", "m"], n), "race": rng.choice(list("abcd"), n)}
    s = pd.DataFrame(groups | {"age": rng.normal(40, 10, n)})
    y = rng.normal(size=n)
    f = y + 0.3 * (groups["sex"] == "f") + 0.3 * rng.normal(size=n)
    return Line(lambda: audit(f, sensitive_features=s, y_true=y), None, target)


def predict_one(n: int) -> Line:
    pay = make_biased_income(n, random_state=0)
    model = FairKernelRidge(n_components=100, eta=1.0, random_state=0)
    model.fit(pay.data, pay.target, sensitive_features=pay.data[SENSITIVE])
    row = pay.data.iloc[:1]
    return Line(lambda: model.predict(row), None, 0.002)


def gaussian_process(n: int, m: int) -> Line:
    X, y, s = numbers(n, 30)
    model = FairGPRegressor(n_components=m, length_scale="standardized", eta=1.0, random_state=0)
    return Line(fit(model, X, y, s), None, 15.0)


def process(code: str, **environment: str) -> Callable[[], Any]:
    command = [sys.executable, "-c", code]
    return lambda: subprocess.run(command, check=True, env=os.environ | environment)


FIRST = """
import numpy as np
from scalefair import FairKernelRidge
X = np.random.default_rng(0).normal(size=(50, 3))
FairKernelRidge(unfairness=0.05).fit(X, X[:, 0], sensitive_features=X[:, 1])
"""


def first_fit(folder: Path, *, cold: bool) -> Line:
    # Installers compile modules to bytecode, of ours as of scikit-learn's: else a checkout, or an
    # environment that forbids to write it, would compile all of ours in every process.
    compiled = {"PYTHONDONTWRITEBYTECODE": "", "PYTHONPYCACHEPREFIX": str(folder / "bytecode")}
    floor = process("import sklearn.linear_model", **compiled)
    process(FIRST, **compiled)()

    def empty_cache() -> None:
        with tempfile.TemporaryDirectory() as empty:
            process(FIRST, NUMBA_CACHE_DIR=empty, **compiled)()

    return Line(empty_cache if cold else process(FIRST, **compiled), floor, np.nan)


def frontier_command(model: str, target: float, folder: Path) -> Line:
    """The report on the built-in Adult data, in a process of its own."""
    command = [sys.executable, "-m", "scalefair", "frontier", "--model", model]
    command += ["--out", str(folder / model)]
    return Line(lambda: subprocess.run(command, check=True, capture_output=True), None, target)


def dask_workers(n: int, folder: Path) -> Line:
    table = write_table(folder / "dask", n)
    return Line(lambda: fit_dask(table, 300), lambda: fit_scan(table, 300), 1.1)


def lines(folder: Path, *, quick: bool) -> dict[str, Callable[[], Line]]:
    """Every row of the table by name, small if `quick`."""
    part = 20 if quick else 1
    return {
        "cv_100000_500": lambda: cross_validation(100_000 // part, 500 // part, 1.5),
        "cv_100000_1000": lambda: cross_validation(100_000 // part, 1_000 // part, 1.5),
        "cv_20000_500": lambda: cross_validation(20_000 // part, 500 // part, 2.5),
        "mixed_frame": lambda: mixed_frame(100_000 // part),
        "numeric_fit": lambda: numeric_fit(100_000 // part),
        "parquet": lambda: parquet(2_000_000 // part**2, folder),
        "small_ridge": lambda: small_ridge(1_000),
        "small_kernel": lambda: small_kernel(1_000),
        "exact_eta": lambda: exact(2_000 // part, limited=False),
        "exact_limit": lambda: exact(2_000 // part, limited=True),
        "trees_cv": lambda: trees(20_000 // part, cv=True),
        "trees_one": lambda: trees(20_000 // part, cv=False),
        "trees_quick": lambda: trees(20_000 // part, cv=True, fit_on="split"),
        "trees_proxies": lambda: trees(20_000 // part, cv=True, proxies=True),
        "trees_proxies_quick": lambda: trees(20_000 // part, cv=True, fit_on="split", proxies=True),
        "frontier_kernel": lambda: frontier_command("kernel", 8.0, folder),
        "frontier_auto": lambda: frontier_command("auto", 25.0, folder),
        "first_fit": lambda: first_fit(folder, cold=False),
        "first_fit_cold": lambda: first_fit(folder, cold=True),
        "audit_1_million": lambda: audit_rows(1_000_000 // part, 8.0),
        "audit_10_million": lambda: audit_rows(10_000_000 // part**2, 60.0),
        "predict_one": lambda: predict_one(2_000),
        "gaussian_process": lambda: gaussian_process(20_000 // part, 400 // part),
        "dask_workers": lambda: dask_workers(2_000_000 // part**2, folder),
    }


def measure(name: str, line: Line, rounds: int) -> dict[str, Any]:
    """Return the medians of ours and of its floor, which take turns, and processor time."""
    line.run()
    times: dict[str, list[float]] = {"ours": [], "floor": [], "cpu": []}
    for _ in range(rounds):
        start, cpu = perf_counter(), process_time()
        line.run()
        times["ours"].append(perf_counter() - start)
        times["cpu"].append(process_time() - cpu)
        if line.floor is not None:
            start = perf_counter()
            line.floor()
            times["floor"].append(perf_counter() - start)
    ours, cpu = median(times["ours"]), median(times["cpu"])
    floor = median(times["floor"]) if times["floor"] else 1.0
    return {
        "what": name,
        "seconds": f"{ours:.4g}",
        "floor_seconds": f"{floor:.4g}",
        "value": f"{ours / floor:.3g}",
        "target": target_of(name, line, floor),
        "processors": f"{cpu / ours:.3g}",
    }


def target_of(name: str, line: Line, floor: float) -> str:
    """Return what to reach; a first fit may take 1.3 times the floor and 0.5 s, cold 2 s more."""
    if not name.startswith("first_fit"):
        return f"{line.target:g}"
    return f"{1.3 + (2.5 if 'cold' in name else 0.5) / floor:.3g}"


def main() -> None:
    """Run the rows asked for, print them and keep them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="+", default=None)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    kept = []
    with tempfile.TemporaryDirectory() as folder:
        for name, line in lines(Path(folder), quick=options.quick).items():
            if options.only is not None and name not in options.only:
                continue
            with cluster(2) if name == "dask_workers" else nullcontext():
                kept.append(measure(name, line(), 1 if options.quick else options.rounds))
            print(kept[-1], flush=True)
    if not options.quick and options.only is None:
        write(kept)


def write(kept: list[dict[str, Any]]) -> None:
    """Keep all rows."""
    save_lines(RESULTS / "waiting.csv", kept)


if __name__ == "__main__":
    main()
