"""R's fairml by Rscript: fair ridge regression (frrm, fgrrm) and Zafar's bound (zlm, zlrm).

frrm bounds the share of the variance of its linear predictor that linear functions of s explain, in
sample, and needs s at prediction (`new.sensitive`); zlm bounds correlations and does not. Skipped
where Rscript is not at hand.
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pandas as pd

from benchmarks.peers._task import Method, Points, Task

BOUNDS = (0.01, 0.05, 0.1, 0.2)
CODE = """
a <- commandArgs(TRUE); folder <- a[1]; u <- as.numeric(a[2]); how <- a[3]; rate <- a[4] == "rate"
get <- function(name) as.matrix(read.csv(file.path(folder, name)))
X <- get("X.csv"); S <- get("S.csv"); N <- get("X_test.csv"); T <- get("S_test.csv")
y <- get("y.csv")[, 1]
if (rate) y <- factor(y)
suppressPackageStartupMessages(library(fairml))
if (how == "frrm") {
  m <- if (rate) fgrrm(y, X, S, u, family = "binomial") else frrm(y, X, S, u, lambda = 0.1)
  f <- predict(m, N, T, type = if (rate) "link" else "response")
} else {
  m <- if (rate) zlrm(y, X, S, u) else zlm(y, X, S, u)
  f <- predict(m, N, type = if (rate) "link" else "response")
}
write.csv(data.frame(f = as.numeric(f)), file.path(folder, "f.csv"), row.names = FALSE)
"""


def fitted(task: Task, how: str, bound: float) -> Any:
    (x, x_test), (s, s_test) = Task(task.split, hidden=True).arrays, task.sensitive
    varies = s.std(axis=0) > 0
    tables = {
        "X": x,
        "X_test": x_test,
        "S": s[:, varies],
        "S_test": s_test[:, varies],
        "y": np.asarray(task.y)[:, None],
    }
    with TemporaryDirectory() as folder:
        for name, table in tables.items():
            columns = [f"{name[0]}{k}" for k in range(table.shape[1])]
            pd.DataFrame(table, columns=columns).to_csv(Path(folder) / f"{name}.csv", index=False)
        kind = "rate" if task.decides else "number"
        command = ["Rscript", "-e", CODE, folder, str(bound), how, kind]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        return pd.read_csv(Path(folder) / "f.csv")["f"].to_numpy()


def points(how: str) -> Callable[[Task], Points]:
    def run(task: Task) -> Points:
        for bound in BOUNDS[1:2] if task.quick else BOUNDS:
            yield bound, fitted(task, how, bound)

    return run


METHODS = tuple(
    Method(
        f"R fairml {how}{name}",
        points(how),
        hidden=how == "zlm",
        kinds=(kind,),
        needs="command Rscript",
        refits=True,
        threshold=0.0,
    )
    for how in ("frrm", "zlm")
    for kind, name in (("number", ""), ("rate", ", logistic"))
)
