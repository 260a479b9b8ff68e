"""Whether `--model auto` takes the right model: its held-out error beside that of every variant.

    python -m benchmarks.auto_model [--data E B A I] [--rows 10000] [--limits 0.01 0.05 0.1]

Adult (E), crime (B), ACS income (A) and ACSIncome (I), each as the command line fits it by default:
classes with the logistic loss, numbers with the squared one. Variants are those that auto chooses
from, a linear model, and the trees of `benchmarks.frontier`, set by hand for each table. Errors are
on test rows: log loss, or root mean square. The share is that of the scores on the test rows.
Writes results/auto_model.csv.
"""

from __future__ import annotations

import argparse
import warnings
from time import process_time
from typing import Any

import numpy as np
import pandas as pd
from sklearn.metrics import log_loss, root_mean_squared_error

from benchmarks._frontier_data import load
from benchmarks._measure import RESULTS, save_frame
from benchmarks.frontier import base_model
from scalefair.cli._model import ModelOptions
from scalefair.estimators.path import choose_model
from scalefair.measures import explained_share

MAX_TEST_ROWS = 50_000


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
    made["trees set by hand"] = made["boosted trees"].__class__(**made["boosted trees"].get_params() | inside)
    return {name: one.set_params(hide_sensitive=options.hide) for name, one in made.items()}


def judged(model: Any, split: Any) -> dict[str, float]:
    """Error and share on the test rows."""
    X, y = split.X_test[:MAX_TEST_ROWS], np.asarray(split.y_test)[:MAX_TEST_ROWS]
    if not split.decides:
        f = model.predict(X)
        error = root_mean_squared_error(y, f)
    else:
        f = model.decision_function(X)
        error = log_loss(y, model.predict_proba(X))
    s = split.s_test[:MAX_TEST_ROWS]
    share = explained_share(f, s, random_state=0) if np.ptp(f) else float("nan")
    return {"error": float(error), "share": float(share)}


def compare(name: str, limit: float, options: argparse.Namespace) -> list[dict[str, Any]]:
    split = load(name, 0, None if name == "B" else options.rows)
    made = variants(name, split, limit, options)
    y = split.y.astype(int) if split.decides else split.y
    lines = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        tried = list(made)[:3]
        start = process_time()
        choice = choose_model({one: made[one] for one in tried}, lambda one: one.fit(split.X, y))
        seconds = process_time() - start
        for variant, model in made.items():
            if variant not in tried:
                model.fit(split.X, y)
            lines.append(
                {
                    "data": name,
                    "rows": len(y),
                    "limit": limit,
                    "variant": variant,
                    **judged(model, split),
                    "chosen": variant == choice.name,
                    "CPU seconds of auto": seconds,
                }
            )
    best = min(line["error"] for line in lines)
    return [line | {"above best": line["error"] / best - 1} for line in lines]


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
        for limit in options.limits:
            lines += compare(name, limit, options)
            print(pd.DataFrame(lines)[-5:].round(4).to_string(header=False), flush=True)
            save_frame(RESULTS / "auto_model.csv", pd.DataFrame(lines))


if __name__ == "__main__":
    main()
