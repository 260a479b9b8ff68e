"""Independence beyond the mean: ours with `output_kernel`, against Wasserstein post-processing.

    python -m benchmarks.output [--splits E A] [--methods visible linear hidden] [--rows 30000]

Protocols A and E of the frontier: error (RMSE; for E the rate of wrong decisions) against full HSIC
and, for E, against the demographic-parity gap, on test rows. Ours with s at prediction, as equipy
needs it, and with s hidden, where equipy cannot work. Both stand on the same boosted trees. Writes
results/output.csv; methods that are not run keep their lines.
"""

from __future__ import annotations

import argparse
import warnings
from time import perf_counter
from typing import Any

import numpy as np
import pandas as pd
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin, clone
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import KFold, cross_val_predict

from benchmarks._frontier_data import Split, load
from benchmarks._measure import RESULTS, read_table, save_lines
from scalefair import FairKernelClassifier, FairKernelRidge

AGE_BINS = 8
HSIC_ROWS = 3000
ETAS = {"E": [0.3, 1.0, 2.0, 4.0, 7.0, 12.0, 20.0], "A": [0.3, 1.0, 3.0, 10.0, 40.0]}
EPS = 1e-2
METHODS = {
    "visible": ("ours, output kernel", {"hidden": False, "kernel": "rbf"}),
    "linear": ("ours, linear penalty", {"hidden": False, "kernel": None}),
    "hidden": ("ours, output kernel, s hidden", {"hidden": True, "kernel": "rbf"}),
}
FIELDS = ("split", "method", "knob", "error", "auc", "hsic", "gap", "seconds")


class Remembered(BaseEstimator):
    """A model that is fitted once for the same rows, whatever eta is tried next."""

    models: dict[Any, Any] = {}  # noqa: RUF012 (shared on purpose)

    def __init__(self, model: Any) -> None:
        self.model = model

    def fit(self, X: pd.DataFrame, y: Any) -> Remembered:
        hashed = int(pd.util.hash_pandas_object(X, index=False).sum())
        key = (repr(self.model), hashed, X.shape, float(np.sum(y * np.arange(len(y)))))
        if key not in self.models:
            self.models[key] = clone(self.model).fit(X, y)
        self.model_ = self.models[key]
        return self

    def predict(self, X: pd.DataFrame) -> Any:
        return self.model_.predict(X)


class Regressor(RegressorMixin, Remembered):
    """Numbers."""


class Classifier(ClassifierMixin, Remembered):
    """Classes and their probabilities."""

    @property
    def classes_(self) -> Any:
        return self.model_.classes_

    def predict_proba(self, X: pd.DataFrame) -> Any:
        return self.model_.predict_proba(X)


def boosted(decides: bool) -> Remembered:
    same: dict[str, Any] = {"categorical_features": "from_dtype", "random_state": 0}
    if decides:
        return Classifier(HistGradientBoostingClassifier(**same))
    return Regressor(HistGradientBoostingRegressor(max_iter=300, **same))


def numbers(s: pd.DataFrame) -> Any:
    """Categories as one-hot columns, numbers standardised."""
    parts = [
        (s[name] - s[name].mean()) / s[name].std()
        if s[name].dtype.kind in "if"
        else pd.get_dummies(s[name].astype(str), dtype=float)
        for name in s.columns
    ]
    return pd.concat(parts, axis=1).to_numpy()


def gaussian(rows: Any) -> Any:
    square = np.sum(rows**2, axis=1)
    distance = np.maximum(square[:, None] + square - 2 * rows @ rows.T, 0)
    return np.exp(-distance / (2 * np.median(distance[distance > 1e-12])))


def hsic(f: Any, s: pd.DataFrame) -> float:
    """Biased, Gaussian kernels with the median heuristic, on 3,000 rows."""
    rows = np.random.default_rng(0).permutation(len(f))[:HSIC_ROWS]
    K, L = gaussian(np.asarray(f)[rows, None]), gaussian(numbers(s)[rows])
    K = K - K.mean(axis=0) - K.mean(axis=1)[:, None] + K.mean()
    return float(np.mean(K * L))


def judged(split: Split, f: Any) -> dict[str, float]:
    found = {"error": float(np.sqrt(np.mean((f - split.y_test) ** 2))), "auc": np.nan}
    found |= {"hsic": hsic(f, split.s_test), "gap": np.nan}
    if split.name == "E":
        positive, sex = f >= 0.5, split.X_test["sex"].astype(str)
        rates = [positive[(sex == level).to_numpy()].mean() for level in sex.unique()]
        found["error"] = float(np.mean(positive != split.y_test))
        found |= {"auc": roc_auc_score(split.y_test, f), "gap": max(rates) - min(rates)}
    return found


def ours(split: Split, eta: float, *, hidden: bool, kernel: str | None) -> Any:
    """Predictions, or probabilities, at one eta.

    A kernel on the output comes with `nocco_output`: its penalty does not shrink f. A large ε lets
    cells of a few people count for less, as HSIC does.
    """
    decides = split.name == "E"
    model = (FairKernelClassifier if decides else FairKernelRidge)(
        n_components=300,
        alpha=1e-3,
        eta=eta,
        eps=EPS,
        output_kernel=kernel,
        penalty="normalized" if kernel is None else "nocco_output",
        hide_sensitive=hidden,
        base_estimator=boosted(decides),
        sensitive_columns=split.sensitive,
        n_sensitive_components=30,
        random_state=0,
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(split.X, split.y)
    return model.predict_proba(split.X_test)[:, 1] if decides else model.predict(split.X_test)


def groups(split: Split) -> tuple[Any, Any]:
    """One group a row, as equipy takes them: categories crossed, the age in bins.

    Cells of fewer than 50 training rows are one group with those of the same gender and age.
    """
    edges = np.quantile(split.X.get("Age", [0.0]), np.linspace(0, 1, AGE_BINS + 1)[1:-1])
    cells = []
    for X in (split.X, split.X_test):
        parts = X[split.sensitive].astype(str)
        if "Age" in parts:
            parts["Age"] = np.digitize(X["Age"], edges).astype(str)
        cells.append(parts)
    keys = [cell.agg("_".join, axis=1) for cell in cells]
    count = keys[0].value_counts()
    known = count.index[count >= (50 if "Age" in split.sensitive else 1)]
    pooled = [cell.drop(columns="Race", errors="ignore").agg("_".join, axis=1) for cell in cells]
    train, test = (key.where(key.isin(known), pool).to_numpy() for key, pool in zip(keys, pooled, strict=True))
    return train, test


def rival(split: Split) -> tuple[Any, Any]:
    """equipy fitted on the out-of-fold predictions; a function of its epsilon."""
    from equipy.fairness import FairWasserstein

    decides = split.name == "E"
    model = boosted(decides)
    folds, how = KFold(5, shuffle=True, random_state=0), "predict_proba" if decides else "predict"
    held = cross_val_predict(model, split.X, split.y, cv=folds, method=how)
    h = getattr(model.fit(split.X, split.y), how)(split.X_test)
    held, h = (held[:, 1], h[:, 1]) if decides else (held, h)
    s, s_test = groups(split)
    fair = FairWasserstein()
    fair.fit(held, s)
    return h, lambda epsilon: np.asarray(fair.transform(h, s_test, epsilon=epsilon))


def thresholds(split: Split, h: Any, price: float) -> Any:
    """Scores whose decisions err least, plus so many errors for a gap of 1: h less a threshold.

    What every post-processing of the same trees by sex can reach, but for chance.
    """
    men = (split.X_test["sex"].astype(str) == "Male").to_numpy()
    share = np.mean(split.X["sex"].astype(str) == "Male")
    return h - np.where(men, price / (2 * share), -price / (2 * (1 - share)))


def excess(lines: list[dict[str, Any]], by: str) -> float:
    """Largest error of ours above equipy's at an equal `by`, where both curves are; log scale."""
    (mine, error), (other, other_error) = (
        front([(float(line[by]), float(line["error"])) for line in lines if line["method"] == method])
        for method in ("ours, output kernel", "equipy")
    )
    inside = np.linspace(max(mine[0], other[0]), min(mine[-1], other[-1]), 9)
    return float(np.max(np.interp(inside, mine, error) - np.interp(inside, other, other_error)))


def front(points: list[tuple[float, float]]) -> tuple[Any, Any]:
    """Log of the dependence and error of the points that no other is better than in both."""
    kept: list[tuple[float, float]] = []
    for at, error in sorted(points):
        if not kept or error < kept[-1][1]:
            kept.append((at, error))
    at, error = np.array(kept).T
    return np.log(at + 1e-9), error


def frontier(name: str, rows: int | None, methods: list[str]) -> list[dict[str, Any]]:
    split = load(name, rows=rows)
    lines: list[dict[str, Any]] = []

    def keep(method: str, knob: float, f: Any, seconds: float) -> None:
        line = {"split": name, "method": method, "knob": knob, "seconds": round(seconds, 1)}
        line |= judged(split, f)
        print({k: v if isinstance(v, str) else float(f"{v:.4g}") for k, v in line.items()})
        lines.append(line | {"wrong": (f >= 0.5) != split.y_test})

    h, transform = rival(split)
    keep("boosted trees", 0.0, h, 0.0)
    for epsilon in (0.0, 0.05, 0.1, 0.2, 0.3, 0.5, 0.7):
        start = perf_counter()
        keep("equipy", epsilon, transform(epsilon), perf_counter() - start)
    for price in np.linspace(0.0, 0.23, 8) if name == "E" else ():
        keep("best thresholds by sex", float(price), thresholds(split, h, price), 0.0)
    for method, how in (METHODS[key] for key in methods):
        for eta in ETAS[name]:
            start = perf_counter()
            keep(method, eta, ours(split, eta, **how), perf_counter() - start)
    if "visible" in methods:
        lines += compared(name, lines)
    return lines


def compared(name: str, lines: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """How far ours is above equipy; for decisions with the standard error of a difference."""
    found = []
    for by in ("hsic", "gap") if name == "E" else ("hsic",):
        value = excess(lines, by)
        print(f"{name}: ours above equipy at equal {by} by at most {value:.4f}")
        found.append({"split": name, "method": f"ours - equipy at equal {by}", "error": value})
    if name == "E":
        rivals = [line for line in lines if line["method"] == "equipy"]
        errors = []
        for line in (line for line in lines if line["method"] == METHODS["visible"][0]):
            near = min(rivals, key=lambda other: abs(other["gap"] - line["gap"]))
            apart = line["wrong"].astype(float) - near["wrong"]
            errors.append(float(np.std(apart) / np.sqrt(len(apart))))
        error = float(np.median(errors))
        print(f"{name}: standard error of such a difference, same rows: {error:.4f}")
        found.append({"split": name, "method": "standard error of a difference", "error": error})
    return found


def save(lines: list[dict[str, Any]]) -> None:
    """Write the lines in place of those of the same split and method."""
    path = RESULTS / "output.csv"
    new = [{k: f"{v:.5g}" if isinstance(v, float) else v for k, v in line.items() if k in FIELDS} for line in lines]
    done = {(line["split"], line["method"]) for line in new}
    every = [line for line in read_table(path) if (line["split"], line["method"]) not in done] + new
    save_lines(path, sorted(every, key=lambda line: line["split"], reverse=True), FIELDS)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--splits", nargs="+", choices=list(ETAS), default=["E", "A"])
    parser.add_argument("--methods", nargs="+", choices=list(METHODS), default=list(METHODS))
    parser.add_argument("--rows", type=int, default=None)
    options = parser.parse_args()
    for name in options.splits:
        save(frontier(name, options.rows, options.methods))


if __name__ == "__main__":
    main()
