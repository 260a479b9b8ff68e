"""One method on one problem in a process of its own; results are appended as they come."""

from __future__ import annotations

import csv
import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryFile
from threading import Event, Timer
from time import perf_counter, process_time
from typing import Any

import numpy as np

from benchmarks._frontier_data import Split, load
from benchmarks._frontier_metrics import scores
from benchmarks._measure import RESULTS, memory_peak, threads
from benchmarks.output import hsic

DATA = {"crime": "B", "adult": "E", "acs": "A", "acsincome": "I"}
ALL_ROWS = {"acs": 245_243}
"""All rows but the test rows; the other problems take all by default."""
POINTS = RESULTS / "peers.csv"
DONE = "done"
"""Note of the line that ends a job."""
FIELDS = ("data", "asked_rows", "s", "method", "rows", "seed", "order", "setting", "share", "hsic",
          "rmse", "auc", "accuracy", "gap", "seconds", "total_seconds", "cpu_seconds", "total_cpu",
          "peak_mb", "data_mb", "threads", "note")  # fmt: skip


@dataclass(frozen=True)
class Job:
    """What one process does."""

    data: str
    s: str
    method: str
    rows: int | None = None
    seed: int = 0
    quick: bool = False

    def load(self) -> Split:
        rows = self.rows or ALL_ROWS.get(self.data)
        return load(DATA[self.data], self.seed, rows)


def cut(split: Split, most: int | None) -> Split:
    """The first training rows, where a method cannot take all."""
    return split if most is None else replace(split, X=split.X[:most], y=split.y[:most])


def work(job: Job) -> Iterator[dict[str, Any]]:
    """Run a method here, point by point; time spent on metrics does not count."""
    from benchmarks.peers import METHODS
    from benchmarks.peers._task import Task

    method = METHODS[job.method]
    split = cut(job.load(), method.most)
    task, before = Task(split, job.s == "hidden", job.quick), memory_peak()
    points, order, peak = iter(method.run(task)), 0, 0.0
    total = worked = 0.0
    while True:
        start, work_start = perf_counter(), process_time()
        found = next(points, None)
        total += (step := perf_counter() - start)
        worked += (work_step := process_time() - work_start)
        if found is None:
            return
        setting, f = found
        f = np.asarray(f, dtype=float)
        if np.ptp(f) < 1e-12:  # of a constant no share is known
            continue
        # That of the first point: later ones include what the metrics took.
        peak = peak or memory_peak()
        yield {
            "order": order, "setting": setting, "rows": len(split.y), "seconds": step,
            "total_seconds": total, "cpu_seconds": work_step, "total_cpu": worked,
            "peak_mb": peak, "data_mb": before,
            "hsic": hsic(f, split.s_test), **scores(split, f, method.threshold),
        }  # fmt: skip
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


def read(path: Path = POINTS) -> list[dict[str, str]]:
    if not path.exists():
        return []
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def finished(job: Job, lines: list[dict[str, str]], limit: float = 0.0) -> bool:
    """Whether it has been run, to its end or for as long as that; what failed is tried again."""
    asked = "" if job.rows is None else str(job.rows)
    want = (job.data, job.s, job.method, str(job.seed))
    return any(
        (line["data"], line["s"], line["method"], line["seed"]) == want
        and line["asked_rows"] == asked
        and (line["note"] == DONE or _stopped_after(line["note"]) >= limit > 0)
        for line in lines
    )


def _stopped_after(note: str) -> float:
    return float(note.split()[2]) if note.startswith("stopped") else -1.0


def append(job: Job, point: dict[str, Any], path: Path = POINTS) -> None:
    """Write one line at once: a run that is stopped loses only the point it was at."""
    path.parent.mkdir(exist_ok=True)
    new = not path.exists()
    with path.open("a", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, FIELDS, restval="", extrasaction="ignore")
        if new:
            writer.writeheader()
        line = {**vars(job), "asked_rows": job.rows or "", "threads": threads(), **point}
        writer.writerow({key: _short(value) for key, value in line.items()})


def _short(value: Any) -> Any:
    if value is None:
        return ""
    return f"{value:.5g}" if isinstance(value, float) else value


if __name__ == "__main__":
    main(sys.argv[1])
