"""Whether `--model auto` takes the right model: its held-out error beside that of every variant.

    python -m benchmarks.auto_model [--data E B A I] [--rows N] [--limits 0.01 0.05 0.1]

Adult (E), crime (B), ACS income (A) and ACSIncome (I), the regression of y; variants are those that
auto chooses from, a linear model, and the trees of `benchmarks.frontier`, set by hand for each
table. Errors are on test rows, root mean squares. Writes results/auto_model.csv.
"""

from __future__ import annotations

import argparse
import warnings
from time import perf_counter
from typing import Any

import numpy as np
import pandas as pd

from benchmarks._frontier_data import load
from benchmarks._measure import RESULTS, save_frame
from benchmarks.frontier import base_model
from scalefair.cli._model import ModelOptions
from scalefair.estimators.choice import choose_model

MAX_TEST_ROWS = 50_000


def variants(name: str, split: Any, limit: float, components: int, hide: bool) -> dict[str, Any]:
    """Estimators by name, not fitted: those of auto first."""
    options = dict.fromkeys(ModelOptions.__dataclass_fields__)
    options |= {"feature_map": "nystroem", "components": components, "seed": 0}
    options |= {"unfairness": limit, "hide_sensitive": hide}
    made: dict[str, Any] = {}
    for model in ("auto", "linear"):
        taken = ModelOptions(**options | {"model": model})
        made |= taken.candidates(split.sensitive, classes=False)
    inside = {"base_estimator": base_model("E" if name == "I" else name, False)}
    made["trees set by hand"] = made["boosted trees"].__class__(
        **made["boosted trees"].get_params() | inside
    )
    return {name: one.set_params(hide_sensitive=hide) for name, one in made.items()}


def compare(name: str, limit: float, args: argparse.Namespace) -> list[dict[str, Any]]:
    split = load(name, 0, args.rows if name in "AI" else None)
    made = variants(name, split, limit, args.components, args.hide)
    X, y = split.X_test[:MAX_TEST_ROWS], np.asarray(split.y_test)[:MAX_TEST_ROWS]
    lines = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        tried = list(made)[:3]
        start = perf_counter()
        choice = choose_model(
            {one: made[one] for one in tried}, lambda one: one.fit(split.X, split.y)
        )
        seconds = perf_counter() - start
        for variant, model in made.items():
            if variant not in tried:
                model.fit(split.X, split.y)
            rmse = float(np.sqrt(np.mean((y - model.predict(X)) ** 2)))
            taken = variant == choice.name
            lines.append({"data": name, "limit": limit, "variant": variant, "rmse": rmse,
                          "chosen": taken, "seconds of auto": seconds})  # fmt: skip
    best = min(line["rmse"] for line in lines)
    return [line | {"above best": line["rmse"] / best - 1} for line in lines]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", nargs="*", default=["E", "B", "A", "I"])
    parser.add_argument("--rows", type=int, default=50_000)
    parser.add_argument("--limits", nargs="*", type=float, default=[0.01, 0.05, 0.1])
    parser.add_argument("--components", type=int, default=500)
    parser.add_argument("--hide", action="store_true", help="hide the sensitive columns")
    args = parser.parse_args()
    lines: list[dict[str, Any]] = []
    for name in args.data:
        for limit in args.limits:
            lines += compare(name, limit, args)
            print(pd.DataFrame(lines)[-5:].round(4).to_string(header=False), flush=True)
            save_frame(RESULTS / "auto_model.csv", pd.DataFrame(lines))


if __name__ == "__main__":
    main()
