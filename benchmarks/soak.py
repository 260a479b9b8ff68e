"""Fit, predict, save and audit for an hour: memory, threads and open files must not grow.

    python -m benchmarks.soak --minutes 60

Every round does the same work and must give the same bits. Resident memory is measured once a
round, after a collection; the first quarter of the rounds is left out, as caches fill and the
allocator finds its size. The slope of a line through the rest, in MB an hour, comes with a
standard error from blocks of rounds, since neighbours are alike. The number of blocks that Python
has allocated is told besides: it has none of the allocator's steps, and a leak of one object a
round shows. It fails if memory grows by more than 1 % an hour beyond two standard errors.
"""

from __future__ import annotations

import argparse
import gc
import hashlib
import os
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import psutil

import scalefair
from scalefair.datasets import make_biased_income

BLOCKS = 10
ALLOWED = 0.01
"""Growth of an hour, as a share of the memory in use, that is taken for noise."""


def jobs(folder: Path) -> dict[str, Callable[[], np.ndarray]]:
    """What a service does all day, each with an array as its result."""
    income = make_biased_income(3000, random_state=0)
    table, y = income.data, np.asarray(income.target)
    s = table["sex"]
    X = table.select_dtypes("number").to_numpy(float)
    pd.DataFrame(X).set_axis([f"x{j}" for j in range(X.shape[1])], axis=1).assign(
        y=y, s=np.asarray(s == s.iloc[0], float)
    ).to_parquet(folder / "d.parquet")
    same = {"random_state": 0, "n_components": 60, "n_jobs": 2}
    kept = scalefair.FairKernelRidge(**same).fit(table, y, sensitive_features=s)

    def fit(cls, target=y, **parameters):
        return cls(**parameters).fit(X, target, sensitive_features=s).predict(X)

    def streamed():
        rows = scalefair.scan_parquet(folder / "d.parquet")
        model = scalefair.FairKernelRidge(**same)
        model.fit(rows.drop(["y", "s"]), rows["y"], sensitive_features=rows["s"])
        return model.coef_

    def saved():
        scalefair.save(kept, folder / "m")
        return scalefair.load(folder / "m").predict(table)

    def refused():
        try:
            scalefair.FairKernelRidge(**same).fit(X * np.nan, y, sensitive_features=s)
        except ValueError:
            return np.zeros(1)
        return np.ones(1)

    def audited():
        found = scalefair.audit(kept.predict(table), sensitive_features=s, y_true=y)
        return np.array([len(repr(found))])

    return {
        "fit": lambda: fit(scalefair.FairKernelRidge, **same),
        "frame": lambda: scalefair.FairKernelRidge(**same).fit(table, y, sensitive_features=s).predict(table),
        "cross-validation": lambda: fit(scalefair.FairKernelRidgeCV, **same),
        "classifier": lambda: fit(scalefair.FairKernelClassifier, y > np.median(y), **same),
        "gp": lambda: fit(scalefair.FairGPRegressor, eta=1.0, noise=0.5, **same),
        "streamed": streamed,
        "save and load": saved,
        "refused": refused,
        "audit": audited,
    }


def slope(hours: np.ndarray, megabytes: np.ndarray) -> tuple[float, float]:
    """Return the slope of a line and its standard error, from the means of blocks."""
    t, m = (np.array([b.mean() for b in np.array_split(a, BLOCKS)]) for a in (hours, megabytes))
    t = t - t.mean()
    found = t @ m / (t @ t)
    rest = m - m.mean() - found * t
    return float(found), float(np.sqrt(rest @ rest / (BLOCKS - 2) / (t @ t)))


def soak(minutes: float, folder: Path) -> int:
    """Run for so long; return 1 if something grew."""
    todo, process = jobs(folder), psutil.Process()
    expected: dict[str, str] = {}
    hours, megabytes, blocks = [], [], []
    begin = told = time.monotonic()
    while (now := time.monotonic()) - begin < 60 * minutes or len(hours) < 4 * BLOCKS:
        for name, job in todo.items():
            digest = hashlib.sha256(np.ascontiguousarray(job()).tobytes()).hexdigest()
            if expected.setdefault(name, digest) != digest:
                print(f"{name}: other bits in round {len(hours)}")
                return 1
        gc.collect()
        hours.append((time.monotonic() - begin) / 3600)
        megabytes.append(process.memory_info().rss / 1e6)
        blocks.append(sys.getallocatedblocks())
        if len(hours) == 2:
            idle = threading.active_count(), process.num_fds()
        if now - told > 60:
            told = now
            print(f"{60 * hours[-1]:.1f} min: {len(hours)} rounds, {megabytes[-1]:.1f} MB", flush=True)
    first = len(hours) // 4
    rate, error = slope(np.array(hours[first:]), np.array(megabytes[first:]))
    more = np.polyfit(np.arange(first, len(blocks)), blocks[first:], 1)[0]
    left = threading.active_count(), process.num_fds()
    print(
        f"{len(hours)} rounds of {len(todo)} jobs in {60 * hours[-1]:.1f} min, the same bits every "
        f"time; memory {megabytes[first]:.1f} -> {megabytes[-1]:.1f} MB, slope {rate:+.2f} ± "
        f"{error:.2f} MB an hour; Python's blocks {more:+.2f} a round of {blocks[-1]}; "
        f"threads and files {idle} -> {left}"
    )
    more_left = any(now > before for now, before in zip(left, idle, strict=True))
    return int(rate - 2 * error > ALLOWED * megabytes[first] or more_left)


def main() -> int:
    """Read the arguments and run."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=60.0)
    with tempfile.TemporaryDirectory() as folder:
        return soak(parser.parse_args().minutes, Path(folder))


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    sys.exit(main())
