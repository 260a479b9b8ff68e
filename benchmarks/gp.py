"""The fair Gaussian process: an evidence with its gradient, ARD on Adult, memory, coverage.

    python -m benchmarks.gp [--quick] [--folder DIR]

ACS income is read from the folder that SCALEFAIR_DATA names, and left out where it is absent.
Writes results/gp.csv.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import warnings
from pathlib import Path
from statistics import median
from time import perf_counter, process_time
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from scipy.stats import norm

from benchmarks._measure import Numbers, peak_megabytes
from scalefair import FairGPRegressor
from scalefair.data.sources import ArraySource
from scalefair.datasets import load_adult, make_toy1
from scalefair.features.design import Design
from scalefair.maps import Nystroem, OneHot
from scalefair.moments import accumulate
from scalefair.moments.gradient import length_scale_gradient
from scalefair.solve.gp.evidence import row_adjoint
from scalefair.solve.gp.profile import profile_noise
from scalefair.solve.gp.system import GaussianSystem

ACS = "acs_income_2018_regression/acs-income-2018-holdout.parquet"

ADULT = """
import sys, warnings
import numpy as np
from scalefair import FairGPRegressor
from scalefair.datasets import load_adult
warnings.simplefilter("ignore")
adult = load_adult(encoding="a9a")
rows = slice(0, int(sys.argv[1]))
X = np.ascontiguousarray(adult.data.to_numpy(float)[rows])
y = 2.0 * np.asarray(adult.target)[rows] - 1.0
s = adult.sensitive_features.iloc[rows]
model = FairGPRegressor(n_components=int(sys.argv[2]), length_scale=[2.0] * 123, eta=1.0,
                        max_iter=int(sys.argv[3]), random_state=0)
model.fit(X, y, sensitive_features=s)
"""

STREAM = """
import sys, warnings
import scalefair
warnings.simplefilter("ignore")
scan = scalefair.scan_parquet(sys.argv[1])
names = [f"x{i}" for i in range(20)]
model = scalefair.FairGPRegressor(n_components=200, length_scale=[5.0] * 20, eta=1.0, max_iter=1,
                                  sensitive_kernel="categorical", random_state=0)
model.fit(scan[names], scan["y"], sensitive_features=scan["s"])
"""


def evidence_over_moments(n: int, d: int, m: int, rounds: int) -> tuple[float, float]:
    """Return (evidence and gradient) / (moments pass), by turns, and the seconds of the former."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((n, d))
    s = (X[:, :1] > 0).astype(float)
    y = np.sin(X[:, :1]) + X[:, 1:2] + 0.1 * rng.standard_normal((n, 1))
    phi = Nystroem("rbf", [d**0.5] * d, n_components=m, whitening="cholesky", random_state=0)
    design = Design(phi.fit(X[: 4 * m]), OneHot().fit(s), whiten_rows=True)
    source = ArraySource(X, s, y)

    def whole() -> Any:
        (moments,) = accumulate(source, design)
        point = profile_noise(GaussianSystem.build(moments), 1.0).point
        return length_scale_gradient(source, design, row_adjoint(point))

    whole()
    ratios, times = [], []
    for _ in range(rounds):
        start = perf_counter()
        accumulate(source, design)
        middle = perf_counter()
        whole()
        times.append(perf_counter() - middle)
        ratios.append(times[-1] / (middle - start))
    return median(ratios), median(times)


def adult_ard(rows: int, m: int, max_iter: int) -> dict[str, float]:
    """Learn 123 length scales on Adult as a9a; how long it takes and what comes out."""
    adult = load_adult(encoding="a9a")
    X = np.ascontiguousarray(adult.data.to_numpy(float)[:rows])
    y = 2.0 * np.asarray(adult.target)[:rows] - 1.0
    model = FairGPRegressor(n_components=m, length_scale=[2.0] * 123, eta=1.0, max_iter=max_iter, random_state=0)
    start, worked = perf_counter(), process_time()
    model.fit(X, y, sensitive_features=adult.sensitive_features.iloc[:rows])
    spent, worked = perf_counter() - start, process_time() - worked
    return {
        "seconds": spent,
        "CPU seconds": worked,
        "evaluations": model.n_evaluations_,
        "seconds per evaluation": spent / max(model.n_evaluations_, 1),
        "converged": float(model.converged_),
        "gain of log evidence per row": (model.log_marginal_likelihood_value_ - model.evidence_history_[0]) / rows,
    }


def write_rows(folder: Path, n: int) -> Path:
    """Write n rows of 20 inputs in files of 100,000."""
    folder.mkdir(parents=True)
    for part, start in enumerate(range(0, n, 100_000)):
        rng = np.random.default_rng(part)
        X = rng.standard_normal((min(100_000, n - start), 20))
        columns = {f"x{i}": X[:, i] for i in range(20)}
        y = np.sin(X[:, 0]) + X[:, 1] + 0.1 * rng.standard_normal(len(X))
        rows = pa.table({**columns, "s": (X[:, 1] > 0).astype(int), "y": y})
        pq.write_table(rows, folder / f"{part:03}.parquet", row_group_size=20_000)
    return folder


def coverage(model: Any, X: Any, y: Any) -> float:
    """Share of y within the 90 % intervals."""
    f, std = model.predict(X, return_std=True, include_noise=True)
    return float(np.mean(np.abs(y - f) <= norm.ppf(0.95) * std))


def toy_coverage(seeds: int) -> float:
    test, found = make_toy1(4000, random_state=1), []
    for seed in range(10, 10 + seeds):
        train = make_toy1(1000, random_state=seed)
        model = FairGPRegressor(n_components=100, eta=0, random_state=0)
        found.append(coverage(model.fit(train.data, train.target), test.data, test.target))
    return float(np.mean(found))


def acs_coverage(path: Path, n: int, m: int, eta: float) -> float:
    frame = pq.read_table(path).slice(0, n + 50_000).to_pandas()
    y = np.log(frame.pop("Income").to_numpy())
    model = FairGPRegressor(n_components=m, eta=eta, sensitive_columns=["Gender", "Race"], random_state=0)
    model.fit(frame.iloc[:n], y[:n])
    return coverage(model, frame.iloc[n:], y[n:])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="small sizes, nothing kept")
    parser.add_argument("--folder", type=Path, default=None)
    options = parser.parse_args()
    quick = options.quick
    warnings.simplefilter("ignore")  # of length scales at their bounds, which ARD is about
    keep = Numbers()

    n, m = (2_000, 50) if quick else (20_000, 500)
    ratio, spent = evidence_over_moments(n, 100, m, 2 if quick else 7)
    keep(f"evidence and gradient / moments pass, d=100, n={n}, m={m}", ratio, "<= 4")
    keep("evidence and gradient, seconds", spent)
    rows, iterations = (1_000, 2) if quick else (32_561, 100)
    for name, value in adult_ard(rows, m, iterations).items():
        keep(f"ARD on Adult as a9a, m={m}: {name}", value, "<= 600" if name == "seconds" else "")
    keep("ARD on Adult: peak MB", peak_megabytes(ADULT, rows, m, 1))
    with tempfile.TemporaryDirectory(dir=options.folder) as scratch:
        for size in (20_000, 40_000) if quick else (200_000, 800_000):
            folder = write_rows(Path(scratch) / str(size), size)
            keep(f"peak MB, {size} rows from parquet, m=200", peak_megabytes(STREAM, folder), "same")
    keep("coverage of 90 % intervals, toy 1", toy_coverage(1 if quick else 5), "0.87 to 0.93")
    path = Path(os.environ.get("SCALEFAIR_DATA", "")) / ACS
    for eta in (0.0, 1.0) if path.is_file() else ():
        found = acs_coverage(path, *((1_000, 50) if quick else (20_000, 500)), eta)
        keep(f"coverage of 90 % intervals, ACS income, eta={eta:g}", found, "0.87 to 0.93")
    if not quick:
        keep.save("gp.csv")


if __name__ == "__main__":
    main()
