"""Toy 1 with other sizes, biases and noises, which the paper does not print.

    python -m benchmarks.paper.sizes [--seeds 5]

Gaussian process without penalty and with η = 200; writes results/paper/toy1_sizes.csv with the
printed values below.
"""

from __future__ import annotations

import argparse

import numpy as np
import pandas as pd

from benchmarks._measure import RESULTS
from benchmarks.paper import toy1
from benchmarks.paper.experiment import means
from benchmarks.paper.runs import write_csv
from scalefair.datasets import make_toy1

SETTINGS = [(500, 0.5, 0.3), (800, 0.5, 0.3), (500, 0.5, 0.2), (800, 0.45, 0.2)]
KEYS = ["approach", "rows", "bias", "noise"]
WEIGHTS = {"standard": 0.0, "eta=200": 200.0}


def trial(seed: int, rows: int, bias: float, noise: float) -> list[dict[str, object]]:
    """Scores of the process without and with penalty."""
    train = make_toy1(rows, bias=bias, noise=noise, random_state=2 * seed)
    test = make_toy1(2000, bias=bias, noise=noise, random_state=2 * seed + 1)
    found = toy1.process(train, test, "standard", np.array(list(WEIGHTS.values()))).T
    setting = {"rows": rows, "bias": bias, "noise": noise}
    return [{**setting, "approach": name, **toy1.measure(f, test)} for name, f in zip(WEIGHTS, found, strict=True)]


def table(values: pd.DataFrame) -> pd.DataFrame:
    """Means and standard errors by setting, and the print at the end."""
    here = means(values, KEYS, toy1.MEASURES).astype(dict.fromkeys(KEYS, str))
    printed = toy1.PRINTED.xs("GPR", level="model").loc[list(WEIGHTS)].reset_index()
    lines = pd.concat([here, printed.assign(rows="printed", bias="", noise="")])
    return lines.sort_values("approach", ascending=False, kind="stable")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=5)
    seeds = range(parser.parse_args().seeds)
    lines: list[dict[str, object]] = []
    for setting in SETTINGS:
        lines += [line for seed in seeds for line in trial(seed, *setting)]
        print(f"{setting} done", flush=True)
    found = table(pd.DataFrame(lines))
    print(found.to_string(index=False, float_format="{:.4f}".format))
    write_csv(RESULTS / "paper" / "toy1_sizes.csv", found)


if __name__ == "__main__":
    main()
