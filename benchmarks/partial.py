"""Sensitive attributes known for few rows: what the other rows are worth, at equal true share.

    python -m benchmarks.partial [--minutes 30] [--seeds 5] [--rows 20000] [--problems ...]

s is known for 5 % of the rows, at random or depending on x. Three fits by FairKernelRidgeCV: to
the rows that know s, to all rows with missing_labels="partial", and to all rows with all of s. Each
is followed along eta, at the alpha of its own least error without a limit, and R² is read off at
the same share on test rows, which
know s. "closed" is the part of the gap between the first and the last that the second closes.
Writes results/partial.csv.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from time import monotonic
from typing import Any

import numpy as np
import pandas as pd

from benchmarks import _frontier_data
from benchmarks._measure import RESULTS, save_lines
from scalefair import FairKernelRidgeCV
from scalefair.measures import explained_share

KNOWN = 0.05
TEST_ROWS = 50_000
METHODS = ("known rows", "partial", "all known")


@dataclass(frozen=True)
class Problem:
    """Training and test rows, the share at which fits are compared, and the features of a fit."""

    X: Any
    y: Any
    s: pd.Series
    X_test: Any
    y_test: Any
    s_test: pd.Series
    limit: float
    features: dict[str, Any]


def sixty_inputs(rng: np.random.Generator, n: int) -> tuple[Any, Any, Any]:
    """x ~ N(0, diag), P(s = 1) = logistic(1.5 aᵀx), y = (b + 0.7a)ᵀx + 0.6 s + e."""
    fixed, d = np.random.default_rng(1), 60
    a, b = (fixed.normal(size=d) / np.sqrt(d) for _ in range(2))
    x = rng.normal(size=(n, d)) * np.linspace(1.5, 0.5, d)
    s = (x @ a * 1.5 + rng.logistic(size=n) > 0).astype(int)
    return x, s, x @ (b + 0.7 * a) + 0.6 * s + rng.normal(size=n)


def forty_inputs(rng: np.random.Generator, n: int) -> tuple[Any, Any, Any]:
    """x = zL + e with 3 factors z; 3 groups, softmax(½ xA), A in the span of L; y of both."""
    fixed, d = np.random.default_rng(2), 40
    L = fixed.normal(size=(3, d)) / 2
    x = rng.normal(size=(n, 3)) @ L + rng.normal(size=(n, d))
    A = L.T @ fixed.normal(size=(3, 3)) / np.sqrt(d)
    s = (x @ A / 2 + rng.gumbel(size=(n, 3))).argmax(axis=1)
    b = fixed.normal(size=d) / np.sqrt(d)
    direct = np.array([1.0, -0.7, 0.0])
    return x, s, x @ (b + A @ direct) + direct[s] + 0.5 * rng.normal(size=n)


LAWS = {"60 inputs": sixty_inputs, "40 inputs": forty_inputs}
TABLES = {"ACS income": ("A", ["Gender", "Race"]), "Adult": ("E", ["race", "sex"])}


def load(name: str, seed: int, rows: int) -> Problem:
    """Return a problem; the model never sees s."""
    if name in LAWS:
        rng = np.random.default_rng(100 + seed)
        (x, s, y), (x1, s1, y1) = (LAWS[name](rng, n) for n in (rows, TEST_ROWS))
        groups = [pd.Series(part.astype(str)) for part in (s, s1)]
        return Problem(x, y, groups[0], x1, y1, groups[1], 0.02, {"feature_map": "linear", "random_state": 0})
    letter, columns = TABLES[name]
    split = _frontier_data.load(letter, seed)
    order = np.random.default_rng(seed).permutation(len(split.X))[:rows]
    X, X1 = split.X.iloc[order].reset_index(drop=True), split.X_test[:TEST_ROWS]
    s, s1 = (part[columns].astype(str).agg("-".join, axis=1) for part in (X, X1))
    common = s.value_counts()
    s, s1 = (part.where(part.map(common) >= 100, "other") for part in (s, s1))
    X, X1 = (part.drop(columns=columns) for part in (X, X1))
    features = {"n_components": 200, "random_state": 0}
    y, y1 = (np.asarray(part, dtype=float) for part in (split.y[order], split.y_test[:TEST_ROWS]))
    return Problem(X, y, s, X1, y1, s1.reset_index(drop=True), 0.02, features)


def known_rows(problem: Problem, how: str, seed: int) -> Any:
    """Return which rows know s: 5 % at random, or more the larger the first number in x."""
    rng, n = np.random.default_rng(1000 + seed), len(problem.y)
    if how == "random":
        return rng.random(n) < KNOWN
    x = pd.DataFrame(problem.X).select_dtypes("number").iloc[:, 0].to_numpy(float)
    odds = np.exp((x - x.mean()) / x.std())
    return rng.random(n) < np.minimum(KNOWN * odds / odds.mean(), 1.0)


def fit(problem: Problem, method: str, known: Any) -> FairKernelRidgeCV:
    """Return the fit of one method under the limit."""
    model = FairKernelRidgeCV(unfairness=problem.limit, **problem.features)
    X, y, s = problem.X, problem.y, problem.s
    if method == "known rows":
        take = np.flatnonzero(known)
        X = X.iloc[take] if isinstance(X, pd.DataFrame) else X[take]
        return model.fit(X, y[take], sensitive_features=s[known])
    if method == "partial":
        model.set_params(missing_labels="partial")
        s = s.where(known, None)
    return model.fit(X, y, sensitive_features=s)


def judged(model: Any, problem: Problem) -> tuple[float, float]:
    """Return R² on the test rows, for predictions of the best scale, and the share there."""
    f, y = model.predict(problem.X_test), problem.y_test
    if np.ptp(f) == 0:
        return 0.0, 0.0
    return float(np.corrcoef(f, y)[0, 1] ** 2), float(explained_share(f, problem.s_test))


def r2_at_limit(model: FairKernelRidgeCV, problem: Problem) -> float:
    """Return R² where the path along eta crosses the limit on the test rows."""
    scores = model.cv_results_
    alpha = scores["alphas"][np.argmin(scores["mse"][:, :, 0].mean(axis=0))]
    path = model.path(alphas=[alpha])
    lines = [judged(path.at(alpha=alpha, eta=eta), problem) for eta in path.etas]
    above = [i for i, (_, share) in enumerate(lines) if share > problem.limit]
    i = max(above, default=-1)
    if i < 0 or i == len(lines) - 1:
        return lines[0][0] if i < 0 else float("nan")
    (r0, s0), (r1, s1) = lines[i], lines[i + 1]
    return r0 + (r1 - r0) * (s0 - problem.limit) / (s0 - s1)


def line(problem: Problem, method: str, known: Any) -> dict[str, Any]:
    """Return the numbers of one fit."""
    start = monotonic()
    model = fit(problem, method, known)
    seconds = monotonic() - start
    r2, share = judged(model, problem)
    return {
        "method": method,
        "known": int(known.sum()),
        "seconds": f"{seconds:.2f}",
        "limit": problem.limit,
        "r2_at_limit": f"{r2_at_limit(model, problem):.4f}",
        "r2": f"{r2:.4f}",
        "share": f"{share:.4f}",
        "share_said": f"{model.explained_share_cv_:.4f}",
    }


def summary(lines: list[dict[str, Any]]) -> None:
    """Print the part of the gap that is closed, over all seeds that reach the limit."""
    table = pd.DataFrame(lines).astype({"r2_at_limit": float, "share": float})
    place = table.groupby(["problem", "missing", "seed"])["r2_at_limit"]
    table = table[place.transform(lambda part: part.notna().all())]
    for (problem, missing), part in table.groupby(["problem", "missing"], sort=False):
        r2 = part.groupby("method")["r2_at_limit"].mean()
        share = part.groupby("method")["share"].mean()
        low, mid, high = (r2[method] for method in METHODS)
        shares = ", ".join(f"{share[method]:.4f}" for method in METHODS)
        print(
            f"{problem}, {missing}: R² {low:.4f}, {mid:.4f}, {high:.4f}; closed "
            f"{(mid - low) / (high - low):.0%}; true shares under the limit {shares}"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--rows", type=int, default=20_000)
    parser.add_argument("--problems", nargs="+", default=[*LAWS, *TABLES])
    options = parser.parse_args()
    end, lines = monotonic() + 60 * options.minutes, []
    cells = [
        (seed, name, how)
        for seed in range(options.seeds)
        for name in options.problems
        if name in LAWS or _frontier_data.available(TABLES[name][0])
        for how in ("random", "by x")
    ]
    for seed, name, how in cells:
        if monotonic() > end:
            break
        problem = load(name, seed, options.rows)
        known = known_rows(problem, how, seed)
        place = {"problem": name, "missing": how, "seed": seed}
        lines += [place | line(problem, method, known) for method in METHODS]
        print(
            *(f"{one['method']} {one['r2_at_limit']} {one['share']}" for one in lines[-3:]),
            name,
            how,
            seed,
            sep="; ",
            flush=True,
        )
    save_lines(RESULTS / "partial.csv", lines)
    summary(lines)


if __name__ == "__main__":
    main()
