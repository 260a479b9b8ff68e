"""Whether `--model auto` takes the right model: its held-out error beside that of every variant.

    python -m benchmarks.auto_model [--data E B A I] [--rows 10000] [--limits 0.01 0.05 0.1]

Adult (E), crime (B), ACS income (A) and ACSIncome (I), each as the command line fits it by default:
classes with the logistic loss, numbers with the squared one. Variants are those that auto chooses
from, a linear model, and the base model of `benchmarks.frontier`, set by hand for each table (for
crime, which has five splits, an average of boosted trees, extra trees, a linear and a kernel
ridge). Errors are on test rows: log loss, or root mean square; "its error" is the standard error of
"above best", from the differences in each row. The share is that of the scores on the test rows.
Writes results/auto_model.csv.
"""

from __future__ import annotations

import argparse
import warnings
from itertools import product
from time import process_time
from typing import Any

import numpy as np
import pandas as pd

from benchmarks._frontier_data import load
from benchmarks._measure import RESULTS, save_frame
from benchmarks.frontier import base_model
from scalefair.cli._model import ModelOptions
from scalefair.estimators.path import choose_model
from scalefair.measures import explained_share

MAX_TEST_ROWS = 50_000
SPLITS = {"B": 5}
"""Of crime five, whose test rows are 600; of the others one."""


def variants(name: str, split: Any, limit: float, options: argparse.Namespace) -> dict[str, Any]:
    """Estimators by name, not fitted: those of auto first."""
    chosen = dict.fromkeys(ModelOptions.__dataclass_fields__)
    chosen |= {"feature_map": "nystroem", "components": options.components, "seed": 0}
    chosen |= {"unfairness": limit, "hide_sensitive": options.hide}
    made: dict[str, Any] = {}
    for model in ("auto", "linear"):
        taken = ModelOptions(**chosen | {"model": model})
        made |= taken.candidates(split.sensitive, classes=split.decides)
    inside = {"base_estimator": base_model("E" if name == "I" else name, False)}
    made["set by hand"] = made["boosted trees"].__class__(**made["boosted trees"].get_params() | inside)
    return {name: one.set_params(hide_sensitive=options.hide) for name, one in made.items()}


def judged(model: Any, split: Any) -> tuple[Any, float]:
    """Loss of every test row, logarithmic or squared, and the share."""
    X, y = split.X_test[:MAX_TEST_ROWS], np.asarray(split.y_test)[:MAX_TEST_ROWS]
    f = model.decision_function(X) if split.decides else model.predict(X)
    losses = (y - f) ** 2
    if split.decides:
        losses = -np.log(model.predict_proba(X)[np.arange(len(y)), y.astype(int)])
    share = explained_share(f, split.s_test[:MAX_TEST_ROWS], random_state=0) if np.ptp(f) else float("nan")
    return losses, float(share)


def beside_best(losses: dict[str, Any], *, root: bool) -> dict[str, dict[str, float]]:
    """Error of each variant, how far it is above the best, relatively, and the standard error of that."""
    best = min(losses.values(), key=np.mean)
    found = {}
    for name, own in losses.items():
        ratio = own.mean() / best.mean()
        slope = (0.5 * ratio**-0.5 if root else 1.0) / best.mean()
        noise = slope * np.std(own - ratio * best) / len(own) ** 0.5
        error, above = (own.mean() ** 0.5, ratio**0.5 - 1) if root else (own.mean(), ratio - 1)
        found[name] = {"error": error, "above best": above, "its error": noise}
    return found


def compare(name: str, seed: int, limit: float, options: argparse.Namespace) -> list[dict[str, Any]]:
    split = load(name, seed, None if name == "B" else options.rows)
    made = variants(name, split, limit, options)
    y = split.y.astype(int) if split.decides else split.y
    losses, shares = {}, {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        tried = list(made)[:3]
        start = process_time()
        choice = choose_model({one: made[one] for one in tried}, lambda one: one.fit(split.X, y))
        asked = {
            "data": name,
            "seed": seed,
            "rows": len(y),
            "limit": limit,
            "CPU seconds of auto": process_time() - start,
        }
        for variant, model in made.items():
            if variant not in tried:
                model.fit(split.X, y)
            losses[variant], shares[variant] = judged(model, split)
    beside = beside_best(losses, root=not split.decides)
    return [
        asked | {"variant": variant, "chosen": variant == choice.name, "share": shares[variant], **beside[variant]}
        for variant in made
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", nargs="*", default=["E", "B", "A", "I"])
    parser.add_argument("--rows", type=int, default=10_000)
    parser.add_argument("--limits", nargs="*", type=float, default=[0.01, 0.05, 0.1])
    parser.add_argument("--components", type=int, default=500)
    parser.add_argument("--hide", action="store_true", help="hide the sensitive columns")
    options = parser.parse_args()
    lines: list[dict[str, Any]] = []
    for name in options.data:
        for seed, limit in product(range(SPLITS.get(name, 1)), options.limits):
            lines += compare(name, seed, limit, options)
            print(pd.DataFrame(lines)[-5:].round(4).to_string(header=False), flush=True)
            save_frame(RESULTS / "auto_model.csv", pd.DataFrame(lines))
    table = pd.DataFrame(lines)
    chosen = table[table["chosen"]]
    print(chosen.groupby(["data", "limit"])["above best"].agg(["mean", "max", "count"]).round(4).to_string())


if __name__ == "__main__":
    main()
