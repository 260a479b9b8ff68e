"""One method on one problem in a process of its own; results are appended as they come."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryFile
from threading import Event, Lock, Timer
from time import perf_counter
from typing import Any

import numpy as np

from benchmarks._frontier_data import Split, from_table, load
from benchmarks._measure import RESULTS, add_lines, memory_peak, read_table, threads
from benchmarks.peers._metrics import judged

DATA = {"crime": "B", "adult": "E", "acs": "A", "acsincome": "I"}
ALL_ROWS = {"crime": 1_395, "adult": 32_561, "acs": 245_243, "acsincome": 565_800}
TEST_ROWS = 20_000
VALIDATION = 10_000
"""Training rows of which four fifths fit and one fifth chooses among the variants of ours."""
POINTS = RESULTS / "peers.csv"
DONE = "done"
"""Note of the line that ends a job."""
KEY = ("data", "rows", "s", "part", "method", "seed")
FIELDS = (
    *KEY,
    "fitted",
    "order",
    "setting",
    "share",
    "hsic",
    "ks",
    "rmse",
    "auc",
    "score_error",
    "accuracy",
    "accuracy_error",
    "gap",
    "odds",
    "seconds",
    "cpu_seconds",
    "total_cpu",
    "peak_mb",
    "data_mb",
    "threads",
    "note",
)
WRITING = Lock()


@dataclass(frozen=True)
class Job:
    """What one process does. `data` is a name, or a file if there is a target."""

    data: str
    s: str
    method: str
    rows: int
    seed: int = 0
    part: str = "test"
    quick: bool = False
    target: str = ""
    sensitive: tuple[str, ...] = ()

    def load(self) -> Split:
        if self.target:
            names = list(self.sensitive)
            split = from_table(self.data, self.target, names, self.seed, self.rows)
        else:
            split = load(DATA[self.data], self.seed, self.rows)
            split = replace(split, sensitive=list(self.sensitive) or split.sensitive)
        split = validation(split) if self.part == "validation" else split
        return tested(split, 2000 if self.quick else TEST_ROWS)

    @property
    def key(self) -> tuple[str, ...]:
        return tuple(str(getattr(self, name)) for name in KEY)


def validation(split: Split) -> Split:
    """Rows of the training part alone, so that test rows choose nothing."""
    rows = min(VALIDATION, len(split.y))
    cut = int(0.8 * rows)
    later = split.X[cut:rows].reset_index(drop=True)
    return replace(split, X=split.X[:cut], y=split.y[:cut], X_test=later, y_test=split.y[cut:rows])


def tested(split: Split, rows: int) -> Split:
    """So many test rows, none of a group that no training row is of."""
    known = np.ones(len(split.y_test), dtype=bool)
    for name in split.sensitive:
        if split.X[name].dtype.kind not in "biuf":
            seen = set(split.X[name].astype(str))
            known &= split.X_test[name].astype(str).isin(seen).to_numpy()
    rest = np.flatnonzero(known)[:rows]
    later = split.X_test.iloc[rest].reset_index(drop=True)
    return replace(split, X_test=later, y_test=np.asarray(split.y_test)[rest])


def cpu_seconds() -> float:
    """Of this process and of those it waited for."""
    return sum(os.times()[:4])


def work(job: Job) -> Iterator[dict[str, Any]]:
    """Run a method here, point by point; time spent on metrics does not count."""
    from benchmarks.peers import METHODS
    from benchmarks.peers._task import Task

    method, split = METHODS[job.method], job.load()
    split = replace(split, X=split.X[: method.most], y=split.y[: method.most])
    task, before = Task(split, job.s == "hidden", job.quick), memory_peak()
    points, order, peak, worked = iter(method.run(task)), 0, 0.0, 0.0
    while True:
        start, work_start = perf_counter(), cpu_seconds()
        found = next(points, None)
        seconds, step = perf_counter() - start, cpu_seconds() - work_start
        worked += step
        if found is None:
            return
        setting, f, *decided = found
        if f is not None and np.ptp(f) < 1e-12:  # of a constant no share is known
            continue
        chance = decided[0] if decided else np.asarray(f) >= method.threshold
        peak = peak or memory_peak()  # later ones include what the metrics took
        yield {
            "order": order,
            "setting": setting,
            "fitted": len(split.y),
            "seconds": seconds,
            "cpu_seconds": step,
            "total_cpu": worked,
            "peak_mb": peak,
            "data_mb": before,
            **judged(split, f, chance),
        }
        order += 1


def main(text: str) -> None:
    for point in work(Job(**json.loads(text))):
        print("\n" + json.dumps(point), flush=True)


def apart(job: Job, limit: float) -> Iterator[dict[str, Any]]:
    """Run a job in a process of its own; yield its points as they come, then how it ended."""
    command = [sys.executable, "-m", "benchmarks.peers._run", json.dumps(vars(job))]
    late = Event()
    with (
        TemporaryFile("w+") as errors,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True) as child,
    ):
        timer = Timer(limit, lambda: (late.set(), child.kill()))
        timer.start()
        for line in child.stdout or ():
            if line.startswith("{"):
                yield json.loads(line)
        code = child.wait()
        timer.cancel()
        errors.seek(0)
        last = (errors.read().strip().splitlines() or [f"exit code {code}"])[-1][:200]
    yield {"note": f"stopped after {limit:g} s" if late.is_set() else last if code else DONE}


def run(job: Job, limit: float, path: Path) -> None:
    """Run a job that the file does not have yet, and say how it went."""
    if finished(job, read_table(path)):
        return
    start, count, note = perf_counter(), -1, ""
    for point in apart(job, limit):
        append(job, point, path)
        count, note = count + 1, point.get("note", "")
    print(f"{', '.join(job.key)}: {count} points, {note}, {perf_counter() - start:.0f} s", flush=True)


def finished(job: Job, lines: list[dict[str, str]]) -> bool:
    """Whether it has been run, to its end or as long as it may; what failed is tried again."""
    return any(ended(line) for line in lines if key_of(line) == job.key)


def key_of(line: dict[str, str]) -> tuple[str, ...]:
    return tuple(line[name] for name in KEY)


def ended(line: dict[str, str]) -> bool:
    return line["note"] == DONE or line["note"].startswith("stopped")


def append(job: Job, point: dict[str, Any], path: Path) -> None:
    """Write one line at once: a run that is stopped loses only the point it was at."""
    line = {**vars(job), "threads": threads(), **point}
    with WRITING:
        add_lines(path, [{key: _short(value) for key, value in line.items()}], FIELDS, "as in the column")


def _short(value: Any) -> Any:
    return f"{value:.5g}" if isinstance(value, float) else value


if __name__ == "__main__":
    main(sys.argv[1])
