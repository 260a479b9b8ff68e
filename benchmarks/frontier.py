"""The accuracy–fairness frontier on real data, with boosted trees inside, s visible and hidden.

    python -m benchmarks.frontier [--quick] [--only A,B,E]

Reads the tables from the folder SCALEFAIR_DATA (Adult comes with the package) and leaves out what
is not there. Writes results/frontier.csv: one line per point of each curve, and one per target.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from statistics import mean
from time import perf_counter
from typing import Any

from sklearn.ensemble import (
    ExtraTreesRegressor,
    HistGradientBoostingClassifier,
    HistGradientBoostingRegressor,
    VotingRegressor,
)
from sklearn.kernel_ridge import KernelRidge
from sklearn.linear_model import RidgeCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from benchmarks._frontier_data import Split, available, load
from benchmarks._frontier_metrics import at_share, scores
from benchmarks._measure import RESULTS, read_table, save_table
from scalefair import FairKernelClassifier, FairKernelRidgeCV, limit_gap

FEATURES = {"A": 300, "B": 100, "E": 200}
FEATURES_HIDDEN = {"A": 1000, "B": 100, "E": 1000}
"""More of them: where ψ(s) may not undo what ĥ(x) says about s, φ(x) has to."""
LIMITS = {
    "A": (0.003, 0.006, 0.009, 0.012, 0.02, 0.03, 0.04, 0.05, 0.06, 0.08, 0.1, 0.13),
    "B": (0.0005, 0.001, 0.002, 0.004, 0.006, 0.01, 0.015, 0.03, 0.05, 0.08, 0.11, 0.14),
    "E": (0.003, 0.006, 0.009, 0.012, 0.02, 0.03, 0.04, 0.05, 0.06, 0.08, 0.1),
}
TARGETS = {
    "A": {"rmse": (0.846, 0.811, 0.785)},
    "B": {"rmse": (0.931, 0.884, 0.850)},
    "E": {"auc": (0.909, 0.923), "accuracy": (0.872, 0.872)},
}
SHARES = (0.01, 0.05, 0.10)
LOGISTIC_LIMITS = (0.005, 0.012, 0.04, 0.06)


def base_model(name: str, quick: bool) -> Any:
    trees: dict[str, Any] = {"categorical_features": "from_dtype", "random_state": 0}
    if name == "A":
        return HistGradientBoostingRegressor(
            max_iter=60 if quick else 250,
            learning_rate=0.1,
            max_leaf_nodes=31,
            min_samples_leaf=40,
            l2_regularization=1.0,
            early_stopping=False,
            **trees,
        )
    if name == "E":
        return HistGradientBoostingClassifier(
            max_iter=60 if quick else 300,
            learning_rate=0.05,
            max_leaf_nodes=16,
            min_samples_leaf=20,
            l2_regularization=1.0,
            early_stopping=False,
            **trees,
        )
    return VotingRegressor(
        [
            (
                "boosted",
                HistGradientBoostingRegressor(
                    max_iter=120,
                    learning_rate=0.05,
                    max_leaf_nodes=8,
                    min_samples_leaf=15,
                    l2_regularization=5.0,
                    random_state=0,
                ),
            ),
            ("extra", ExtraTreesRegressor(30 if quick else 200, min_samples_leaf=2, max_features=0.4, random_state=0)),
            ("linear", make_pipeline(StandardScaler(), RidgeCV([1, 10, 100, 1000, 10000]))),
            ("kernel", make_pipeline(StandardScaler(), KernelRidge(kernel="rbf", gamma=1 / 400, alpha=0.5))),
        ]
    )


def estimator(name: str, split: Split, hide: bool, quick: bool) -> FairKernelRidgeCV:
    few_rows = {"length_scale": "standardized", "eps": 1e-3} if name == "B" else {}
    features = (FEATURES_HIDDEN if hide else FEATURES)[name]
    return FairKernelRidgeCV(
        base_estimator=base_model(name, quick),
        sensitive_columns=split.sensitive,
        hide_sensitive=hide,
        unfairness=0.05,
        random_state=0,
        n_components=50 if quick else features,
        **few_rows,
    )


def curve(name: str, split: Split, hide: bool, quick: bool) -> tuple[list[dict[str, float]], Any]:
    """Fit once, in one pass beyond the base models; every point follows from the moments."""
    start = perf_counter()
    model = estimator(name, split, hide, quick).fit(split.X, split.y)
    seconds = perf_counter() - start
    points = []
    for limit in (0.0, *LIMITS[name]):
        try:
            fair = model.path_.at(unfairness=limit)
        except ValueError:
            continue
        points.append({"limit": limit, **scores(split, fair.predict(split.X_test))})
    print(f"{name} {'hidden' if hide else 'visible'}: fitted in {seconds:.0f} s", flush=True)
    return points, model


def logistic_curve(split: Split, quick: bool) -> list[dict[str, float]]:
    """The same with the logistic loss; f is the score, its threshold 0. One fit for each limit."""
    points = []
    for limit in LOGISTIC_LIMITS:
        model = FairKernelClassifier(
            base_estimator=base_model("E", quick),
            sensitive_columns=split.sensitive,
            unfairness=limit,
            n_components=50,
            tol=1e-8,
            random_state=0,
        ).fit(split.X, split.y)
        f = model.decision_function(split.X_test)
        points.append({"limit": limit, **scores(split, f, threshold=0.0)})
    return points


def mean_curve(curves: list[list[dict[str, float]]]) -> list[dict[str, float]]:
    """Points of several splits at equal limits, averaged."""
    limits = set.intersection(*({point["limit"] for point in points} for points in curves))
    made = []
    for limit in sorted(limits):
        same = [point for points in curves for point in points if point["limit"] == limit]
        made.append({key: mean(point[key] for point in same) for key in same[0]})
    return made


def run(name: str, hide: bool, quick: bool) -> list[list[Any]]:
    """Return the lines of one problem: the curve, then what it is at the shares of the targets."""
    how = "hidden" if hide else "visible"
    rows = 4000 if quick else None
    seeds = range(2 if quick else 5) if name == "B" else range(1)
    splits = [load(name, seed, None if name == "B" else rows) for seed in seeds]
    found = [curve(name, split, hide, quick) for split in splits]
    points = mean_curve([points for points, _ in found])
    lines: list[list[Any]] = [
        [name, how, "point", point["limit"], key, round(value, 4), ""]
        for point in points
        for key, value in point.items()
        if key != "limit"
    ]
    lines += at_targets(name, how, points)
    if name == "E" and not hide:
        lines += at_targets(name, "visible, logistic", logistic_curve(splits[0], quick))
    if name != "E":
        gap = mean(limit_gap(model, s.X_test, s.y_test).gap for (_, model), s in zip(found, splits, strict=True))
        print(f"{name} {how}: {gap:.2%} above the limit of the same base model", flush=True)
        lines.append([name, how, "limit_gap", "", "rmse", round(gap, 4), ""])
    return lines


def at_targets(name: str, how: str, points: list[dict[str, float]]) -> list[list[Any]]:
    """Return the lines of a curve at the shares of the targets."""
    shares, lines = [point["share"] for point in points], []
    for metric, targets in TARGETS[name].items():
        values = [point[metric] for point in points]
        for share, target in zip(SHARES, targets, strict=False):
            value = at_share(shares, values, share)
            goal = f"{'<=' if metric == 'rmse' else '>='} {target}"
            print(f"{name} {how}: {metric} at share {share}: {value:.4f} ({goal})", flush=True)
            lines.append([name, how, "at share", share, metric, round(value, 4), goal])
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="few rows and trees: a smoke run")
    parser.add_argument("--only", default="A,B,E")
    options = parser.parse_args()
    lines: list[list[Any]] = [["problem", "s", "kind", "at", "metric", "value", "target"]]
    for name in options.only.split(","):
        if not available(name):
            print(f"{name}: its table is not there; set SCALEFAIR_DATA", flush=True)
            continue
        for hide in (False, True):
            lines += run(name, hide, options.quick)
    if not options.quick:
        write(lines, RESULTS / "frontier.csv")


def write(lines: list[list[Any]], path: Path) -> None:
    """Write the lines, a header first; those of problems that were not run stay as they are."""
    ran, (header, *new) = {line[0] for line in lines}, lines
    kept = [list(line.values()) for line in read_table(path) if line[header[0]] not in ran]
    save_table(path, [header, *sorted(new + kept, key=lambda line: line[0])])


if __name__ == "__main__":
    main()
