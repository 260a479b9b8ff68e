"""The engine without fairness, beside libraries that do only that: GPyTorch and scikit-learn-intelex.

    python -m benchmarks.engines [--only gp ridge] [--rows 20000] [--seconds 60]

"gp": FairGPRegressor with eta=0 and a length scale for each input, beside GPyTorch's sparse
regression (SGPR: inducing points that move, Adam with three step sizes, float64) with as many
points, on crime and ACS income. The score is the mean log density of y on test rows; GPyTorch is
scored every five steps, which its time does not include, and "seconds to equal" is when it first
reaches our score. "ridge": FairRidge in batches by `partial_fit`, with and without a penalty,
beside scikit-learn-intelex's IncrementalRidge on the same batches; the score is the largest
difference of a coefficient from ours without a penalty. What is not installed is left out.
Writes results/engines.csv.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Iterator
from importlib.util import find_spec
from statistics import median
from time import perf_counter, process_time
from typing import Any

import numpy as np
import pandas as pd
from scipy.stats import norm

from benchmarks._frontier_data import available, load
from benchmarks._measure import RESULTS, save_frame
from benchmarks.peers._task import encoded
from scalefair import FairGPRegressor, FairRidge

TABLES = (("B", "crime", 200), ("A", "ACS income", 300))
STEPS = (0.3, 0.1, 0.03)
ITERATIONS = 100
BATCH = 50_000
LEVELS = 10


def problem(name: str, rows: int) -> tuple[Any, Any, Any, Any]:
    """Numbers, standardised, and categories of few levels, one-hot; of training and test rows."""
    split = load(name, 0, None if name == "B" else rows)
    few = [name for name, part in split.X.items() if part.dtype.kind in "biuf" or part.nunique() <= LEVELS]
    (X, X_test), kept = encoded(split.X[few], split.X_test[few]), slice(10_000)
    mean, deviation = split.y.mean(), split.y.std()
    return X, (split.y - mean) / deviation, X_test[kept], ((split.y_test - mean) / deviation)[kept]


def density(y: Any, mean: Any, deviation: Any) -> float:
    return float(norm.logpdf(y, mean, deviation).mean())


def our_process(data: tuple[Any, Any, Any, Any], points: int) -> dict[str, float]:
    """Fit and score ours; the first fit, which compiles, is of a few rows."""
    X, y, X_test, y_test = data
    first = {"length_scale": [X.shape[1] ** 0.5] * X.shape[1], "eta": 0.0, "random_state": 0}
    model = FairGPRegressor(n_components=points, max_iter=ITERATIONS, **first)
    FairGPRegressor(n_components=20, max_iter=1, **first).fit(X[:200], y[:200])
    start, worked = perf_counter(), process_time()
    model.fit(X, y)
    seconds, worked = perf_counter() - start, process_time() - worked
    f, deviation = model.predict(X_test, return_std=True, include_noise=True)
    return {"seconds": seconds, "cpu_seconds": worked, "score": density(y_test, f, deviation)}


def sparse_regression(data: tuple[Any, Any, Any, Any], points: int) -> Any:
    """GPyTorch's model, likelihood and objective, from our starting values."""
    import gpytorch
    import torch

    X, y = (torch.from_numpy(np.ascontiguousarray(part)) for part in data[:2])
    kernels = gpytorch.kernels

    class Model(gpytorch.models.ExactGP):
        def __init__(self, likelihood: Any) -> None:
            super().__init__(X, y, likelihood)
            self.mean_module = gpytorch.means.ConstantMean()
            base = kernels.ScaleKernel(kernels.RBFKernel(ard_num_dims=X.shape[1]))
            base.base_kernel.lengthscale = X.shape[1] ** 0.5
            at = torch.from_numpy(np.random.default_rng(0).choice(len(X), points, replace=False))
            self.covar_module = kernels.InducingPointKernel(base, X[at].clone(), likelihood)

        def forward(self, x: Any) -> Any:
            return gpytorch.distributions.MultivariateNormal(self.mean_module(x), self.covar_module(x))

    likelihood = gpytorch.likelihoods.GaussianLikelihood()
    model = Model(likelihood).double()
    return model, likelihood, gpytorch.mlls.ExactMarginalLogLikelihood(likelihood, model), (X, y)


def gpytorch_scores(data: Any, points: int, step: float, most: float) -> Iterator[tuple[float, float, float]]:
    """Yield seconds, CPU seconds and score of GPyTorch, every five steps."""
    import gpytorch
    import torch

    model, likelihood, objective, (X, y) = sparse_regression(data, points)
    X_test, y_test = torch.from_numpy(np.ascontiguousarray(data[2])), data[3]
    adam, seconds, worked = torch.optim.Adam(model.parameters(), lr=step), 0.0, 0.0
    while True:
        start, began = perf_counter(), process_time()
        model.train(), likelihood.train()
        for _ in range(5):
            adam.zero_grad()
            loss = -objective(model(X), y)
            loss.backward()
            adam.step()
        seconds, worked = seconds + perf_counter() - start, worked + process_time() - began
        model.eval(), likelihood.eval()
        with torch.no_grad(), gpytorch.settings.fast_pred_var():
            found = likelihood(model(X_test))
        yield seconds, worked, density(y_test, found.mean.numpy(), found.variance.sqrt().numpy())
        if seconds >= most:
            return


def processes(options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    for name, table, points in TABLES:
        if not available(name):
            continue
        data = problem(name, options.rows)
        place = {"what": f"GP, {table}", "rows": len(data[1]), "inputs": data[0].shape[1], "features": points}
        ours = our_process(data, min(points, len(data[1]) // 2))
        yield {**place, "method": "FairGPRegressor, eta=0", **ours, "seconds to equal": ours["seconds"]}
        for step in STEPS if find_spec("gpytorch") else ():
            runs = list(gpytorch_scores(data, points, step, options.seconds))
            equal = next((seconds for seconds, _, score in runs if score >= ours["score"]), np.nan)
            seconds, worked, score = max(runs, key=lambda run: run[2])
            yield {
                **place,
                "method": f"GPyTorch SGPR, Adam {step:g}",
                "seconds": seconds,
                "cpu_seconds": worked,
                "score": score,
                "seconds to equal": equal,
            }


def batches(n: int, d: int) -> list[tuple[Any, Any, Any]]:
    rng = np.random.default_rng(0)
    coef, made = rng.normal(size=d), []
    for start in range(0, n, BATCH):
        X = rng.normal(size=(min(BATCH, n - start), d))
        s = rng.choice(["a", "b"], len(X))
        made.append((X, X @ coef + (s == "a") + rng.normal(size=len(X)), s))
    return made


def fit_ours(parts: list[Any], eta: float) -> Any:
    model = FairRidge(alpha=1e-6, eta=eta)
    for X, y, s in parts:
        model.partial_fit(X, y, sensitive_features=s if eta else None)
    return model.coef_


def fit_theirs(parts: list[Any]) -> Any:
    from sklearnex.linear_model import IncrementalRidge

    model = IncrementalRidge(alpha=1e-6 * sum(len(y) for _, y, _ in parts))
    for X, y, _ in parts:
        model.partial_fit(X, y)
    return model.coef_


def ridges(options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """All by turns."""
    for d in (10, 100):
        parts = batches(50 * options.rows, d)
        runs: dict[str, Any] = {
            "FairRidge, no attribute": lambda parts=parts: fit_ours(parts, 0.0),
            "FairRidge, two groups, eta=1": lambda parts=parts: fit_ours(parts, 1.0),
        }
        if find_spec("sklearnex"):
            runs["scikit-learn-intelex IncrementalRidge"] = lambda parts=parts: fit_theirs(parts)
        times: dict[str, list[Any]] = {name: [] for name in runs}
        coef: dict[str, Any] = {}
        for round_ in range(6):
            for name, run in runs.items():
                start, worked = perf_counter(), process_time()
                coef[name] = run()
                if round_:  # the first compiles, and touches memory
                    times[name].append((perf_counter() - start, process_time() - worked))
        for name, found in times.items():
            seconds, worked = (median(column) for column in zip(*found, strict=True))
            yield {
                "what": "linear, in batches",
                "rows": 50 * options.rows,
                "inputs": d,
                "features": d,
                "method": name,
                "seconds": seconds,
                "cpu_seconds": worked,
                "score": float(np.abs(coef[name] - coef["FairRidge, no attribute"]).max()),
            }


PARTS = {"gp": processes, "ridge": ridges}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--rows", type=int, default=20_000, help="of ACS income; ridge has 50 times as many")
    parser.add_argument("--seconds", type=float, default=60.0, help="of GPyTorch, for each step size")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    lines = []
    for name in options.only:
        for line in PARTS[name](options):
            lines.append(line)
            print(line, flush=True)
    if options.only == list(PARTS):
        save_frame(RESULTS / "engines.csv", pd.DataFrame(lines))


if __name__ == "__main__":
    main()
