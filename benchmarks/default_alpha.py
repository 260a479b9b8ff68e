"""What a default ridge costs: held-out scores of rules for alpha beside the best alpha of a grid.

    python -m benchmarks.default_alpha [--data adult crime ...] [--rows 500 ...] [--seeds K]

Adult, ACS income, crime and `make_biased_income` at 500 rows to all; R² of `FairKernelRidge` and of
`FairRidge`, AUC of `FairKernelClassifier` (of y above its median where y is no class), without
penalty and under a limit of 0.05. Sensitive columns are visible. Writes results/default_alpha.csv:
one line for each problem, the score at each alpha of the grid and at alpha="auto". Prints what
rules for alpha lose.
"""

from __future__ import annotations

import argparse
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from sklearn.metrics import r2_score, roc_auc_score

from benchmarks._frontier_data import load
from benchmarks._measure import RESULTS, save_frame
from scalefair import FairKernelClassifier, FairKernelRidge, FairRidge
from scalefair.datasets import make_biased_income

NAMES = {"adult": "E", "acs": "A", "crime": "B", "income": ""}
ROWS = {
    "adult": (500, 2_000, 8_000, 32_561),
    "acs": (500, 2_000, 8_000, 100_000),
    "crime": (500, 1_395),
    "income": (500, 2_000, 8_000, 100_000),
}
MAX_TEST_ROWS = 16_000
MAX_CLASSIFIER_ROWS = 40_000
ALPHAS = np.logspace(-8, 0, 17)
LIMITS = (1.0, 0.05)
CONSTANTS = {"1e-3": 1e-3, "1e-4": 1e-4, "1e-5": 1e-5, "1e-6": 1e-6}


def table(name: str, seed: int, rows: int) -> tuple[Any, ...]:
    """X, y of the training rows and of test rows, and the sensitive columns."""
    if NAMES[name]:
        split = load(NAMES[name], seed if name == "crime" else 0)
        at = np.random.default_rng(seed).permutation(len(split.y))[:rows]
        X, X_test, names = split.X.iloc[at], split.X_test[:MAX_TEST_ROWS], split.sensitive
        groups = [name for name in names if X[name].dtype.kind not in "biuf"]
        known = set(X[groups].agg("|".join, axis=1)) if groups else set()
        seen = X_test[groups].agg("|".join, axis=1).isin(known) if groups else slice(None)
        return X, split.y[at], X_test[seen], split.y_test[:MAX_TEST_ROWS][seen], names
    made = make_biased_income(rows + MAX_TEST_ROWS, random_state=seed)
    X, S = pd.DataFrame(np.asarray(made.data)), pd.DataFrame(np.asarray(made.sensitive_features))
    X.columns, S.columns = [f"x{j}" for j in X], [f"s{j}" for j in S]
    both, y = pd.concat([X, S], axis=1), np.asarray(made.target)
    return both[:rows], y[:rows], both[rows:], y[rows:], list(S)


def scores(kind: str, split: tuple[Any, ...], limit: float, seed: int) -> list[float]:
    """Held-out score at each alpha and at "auto"; NaN where the limit cannot be met."""
    X, y, X_test, y_test, names = split
    options = {"sensitive_columns": names}
    if kind == "classifier":
        cut = 0.5 if set(np.unique(y)) == {0.0, 1.0} else float(np.median(y))
        made = FairKernelClassifier(
            **options,
            random_state=seed,
            unfairness=None if limit == 1 else limit,
            eta=0.0 if limit == 1 else None,
            n_components=200,
        )
        values = []
        for alpha in (*map(float, ALPHAS[::2]), "auto"):
            fitted = made.set_params(alpha=alpha).fit(X, y > cut)
            values.append(float(roc_auc_score(y_test > cut, fitted.decision_function(X_test))))
        *grid, auto = values
        return [*np.interp(np.log(ALPHAS), np.log(ALPHAS[::2]), grid), auto]
    model = FairRidge(**options) if kind == "linear" else FairKernelRidge(**options, random_state=seed)
    model.set_params(eta=0.0).fit(X, y)
    values = []
    for alpha in (*ALPHAS, model.alpha_):
        path = model.path(alphas=[alpha], etas=None if limit < 1 else [0.0])
        at = path.at(eta=0.0) if limit == 1 else path.at(unfairness=limit)
        values.append(float(r2_score(y_test, at.predict(X_test))))
    return values


def lost(line: Any, alpha: float) -> float:
    """Score at the best alpha less the score at this one, between those of the grid."""
    values = line[[f"{a:.2g}" for a in ALPHAS]].to_numpy(float)
    return float(np.nanmax(values) - np.interp(np.log(alpha), np.log(ALPHAS), values))


def with_rules(frame: pd.DataFrame) -> tuple[pd.DataFrame, list[str]]:
    """Add what each rule loses: constants, 1/n, and alpha="auto"."""
    lines = [line for _, line in frame.iterrows()]
    rules = {name: [lost(line, alpha) for line in lines] for name, alpha in CONSTANTS.items()} | {
        "1/n": [lost(line, 1 / line["rows"]) for line in lines]
    }
    best = frame[[*(f"{a:.2g}" for a in ALPHAS), "at_auto"]].max(axis=1)
    return frame.assign(**rules, auto=best - frame["at_auto"]), [*rules, "auto"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", nargs="*", default=list(NAMES))
    parser.add_argument("--rows", nargs="*", type=int, default=None)
    parser.add_argument("--kinds", nargs="*", default=["kernel", "linear", "classifier"])
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--out", default=str(RESULTS / "default_alpha.csv"))
    args = parser.parse_args()
    lines = []
    for name in args.data:
        for rows in args.rows or ROWS[name]:
            for seed in range(args.seeds if rows <= 10_000 else 1):
                split = table(name, seed, rows)
                for kind in args.kinds:
                    if kind == "classifier" and rows > MAX_CLASSIFIER_ROWS:
                        continue
                    for limit in LIMITS:
                        with warnings.catch_warnings():
                            warnings.simplefilter("ignore")
                            *found, auto = scores(kind, split, limit, seed)
                        line = {"data": name, "rows": rows, "kind": kind, "limit": limit}
                        grid = {f"{a:.2g}": v for a, v in zip(ALPHAS, found, strict=True)}
                        lines.append(line | {"seed": seed} | grid | {"at_auto": auto})
                        save_frame(Path(args.out), pd.DataFrame(lines))
    frame, rules = with_rules(pd.read_csv(args.out, comment="#"))
    print(frame.groupby(["kind", "data", "rows"])[rules].mean().round(4).to_string())
    print(frame.groupby("kind")[rules].agg(["mean", "max"]).round(4).T.unstack().to_string())


if __name__ == "__main__":
    main()
