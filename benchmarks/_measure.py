"""Ratios in one interleaved run, and peak memory in a process of its own."""

from __future__ import annotations

import csv
import os
import platform
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

RESULTS = Path(__file__).parent / "results"
FULL = os.environ.get("SCALEFAIR_BENCH") == "full"
"""Full size, results kept; else a smoke run that only shows that nothing is broken."""


def size(full: int, smoke: int) -> int:
    """Return the full size, or the small one of a smoke run."""
    return full if FULL else smoke


def ratio(benchmark: Any, ours: Callable[[], Any], reference: Callable[[], Any], rounds: int = 5) -> float:
    """Return the median time of `ours` over that of `reference`, run by turns.

    Whatever else the machine is doing then falls on both alike.
    """
    reference(), ours()  # compile, load, touch memory
    times = []

    def timed_reference() -> None:
        start = perf_counter()
        reference()
        times.append(perf_counter() - start)

    benchmark.pedantic(ours, setup=timed_reference, rounds=rounds if FULL else 1)
    own = benchmark.stats.stats.data if benchmark.stats else []
    pairs = [mine / other for mine, other in zip(own, times, strict=False)] or [0.0]
    found = float(median(own) / median(times)) if own else 0.0
    benchmark.extra_info |= {
        "ratio": found,
        "ratio_quartiles": [_quantile(pairs, 0.25), _quantile(pairs, 0.75)],
        "reference_seconds": median(times),
        "full": FULL,
    }
    return found


def _quantile(values: list[float], level: float) -> float:
    ordered = sorted(values)
    return ordered[round(level * (len(ordered) - 1))]


def keep(name: str, value: float, target: str, **more: Any) -> None:
    """Append one line to results/core.csv, in a full run."""
    line = {"what": name, "value": f"{value:.4g}", "target": target, **more}
    print(f"\n{line}")
    if not FULL:
        return
    path = RESULTS / "core.csv"
    lines = [old for old in read_table(path) if old["what"] != name] + [line]
    fields = ["what", "value", "target", "seconds", "reference_seconds"]
    save_lines(path, sorted(lines, key=lambda old: old["what"]), fields)


PACKAGES = (
    "numpy",
    "scipy",
    "scikit-learn",
    "fairlearn",
    "equipy",
    "scikit-lego",
    "torch",
    "fairret",
    "oxonfair",
    "holisticai",
)


@cache
def stamp(seeds: str = "0") -> str:
    """Return what a csv says of itself: commit, day, seeds, versions of what is installed."""
    git: Any = ["git", "-C", str(RESULTS.parent)]
    found = subprocess.run([*git, "rev-parse", "--short=10", "HEAD"], check=False, capture_output=True, text=True)
    code = ["--", "../scalefair", ".", ":!results"]
    changed = subprocess.run(
        [*git, "diff", "--quiet", "HEAD", *code], check=False, capture_output=True, text=True
    ).returncode
    commit = (found.stdout.strip() or "unknown") + (" with changes" if changed else "")
    versions = [f"Python {platform.python_version()}"]
    for name in PACKAGES:
        with suppress(PackageNotFoundError):
            versions.append(f"{name} {version(name)}")
    day = datetime.now(UTC).date()
    return f"# commit {commit}; {day}; seeds {seeds}; {', '.join(versions)}"


@dataclass(frozen=True)
class Numbers:
    """What a script has measured: each number is printed when it is there, and all are saved at the end."""

    form: str = ".3f"
    lines: list[tuple[str, float, str]] = field(default_factory=list)

    def __call__(self, name: str, value: float, target: str = "") -> None:
        print(f"{name}: {value:{self.form}} {target}", flush=True)
        self.lines.append((name, float(f"{value:{self.form}}"), target))

    def save(self, file: str) -> None:
        save_table(RESULTS / file, [("what", "value", "target"), *self.lines])


def save_table(path: Path, lines: Iterable[Sequence[Any]], *stamps: str) -> None:
    """Write a header and lines, below what they were made with: this run, or the stamps given."""
    path.parent.mkdir(exist_ok=True)
    with path.open("w", encoding="utf-8", newline="") as file:
        file.writelines(f"{text}\n" for text in stamps or (stamp(),))
        csv.writer(file).writerows(lines)


def save_lines(path: Path, lines: Sequence[Mapping[str, Any]], fields: Sequence[str] = ()) -> None:
    """The same for dictionaries, with the fields of the first one unless others are named."""
    names = list(fields or lines[0])
    save_table(path, [names, *([line.get(name, "") for name in names] for line in lines)])


def save_frame(path: Path, frame: Any) -> None:
    """The same for a data frame, with five decimals."""
    kept = [[f"{v:.5f}" if isinstance(v, float) else v for v in row] for row in frame.to_numpy()]
    save_table(path, [[str(name) for name in frame.columns], *kept])


def add_lines(path: Path, lines: Iterable[Mapping[str, Any]], fields: Sequence[str], seeds: str = "0") -> None:
    """Append to a csv at once: a run that is stopped loses only the line it was at."""
    path.parent.mkdir(exist_ok=True)
    new, known = not path.exists(), stamps(path)
    with path.open("a", encoding="utf-8", newline="") as file:
        if not known or known[-1] != stamp(seeds):
            file.write(f"{stamp(seeds)}\n")
        writer = csv.DictWriter(file, fields, restval="", extrasaction="ignore")
        if new:
            writer.writeheader()
        writer.writerows(lines)


def read_table(path: Path) -> list[dict[str, str]]:
    """Return the lines of a csv as dictionaries; none where it is not there."""
    if not path.exists():
        return []
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(line for line in file if not line.startswith("#")))


def stamps(path: Path) -> list[str]:
    """Return the lines in which a csv says what it was made with."""
    lines = path.read_text("utf-8").splitlines() if path.exists() else []
    return list(dict.fromkeys(line for line in lines if line.startswith("#")))


def memory_peak() -> float:
    """Return the peak resident megabytes of this process so far."""
    status = Path("/proc/self/status")
    if status.exists():
        return int(status.read_text().split("VmHWM:")[1].split()[0]) / 1024
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024**2


def threads() -> int:
    """Return how many threads BLAS and OpenMP may use."""
    return int(os.environ.get("OMP_NUM_THREADS") or os.cpu_count() or 1)


REPORT = """
from pathlib import Path as _Path
_status = _Path("/proc/self/status")
if _status.exists():
    # Not getrusage: its peak includes the process that this one was forked from.
    print(int(_status.read_text().split("VmHWM:")[1].split()[0]) / 1024)
else:
    import resource
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024**2)
"""


def peak_megabytes(code: str, *arguments: Any) -> float:
    """Return the peak resident memory of Python code run in a fresh process."""
    command = [sys.executable, "-c", f"{code}\n{REPORT}", *map(str, arguments)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return float(done.stdout.split()[-1])
