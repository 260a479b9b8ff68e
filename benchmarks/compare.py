"""Say whether anything became slower, and fail only if it really did.

    pytest benchmarks --benchmark-json NEW.json          (SCALEFAIR_BENCH=full for full sizes)
    python -m benchmarks.compare OLD NEW [--slack 1.25]

OLD and NEW are such files, or copies of results/core.csv. Compared are ratios to a reference that
was measured by turns in the same run, never seconds: another machine, or a busy one, changes both.
A ratio is worse if its lower quartile is above `slack` times the old upper quartile, so that a
ratio that only varies does not fail. Ends with 1 if one is worse, with 2 if there is nothing to
compare.
"""

from __future__ import annotations

import argparse
import csv
import json
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

SLACK = 1.25


@dataclass(frozen=True)
class Ratio:
    """Time over the reference's time, or its inverse; less is better."""

    value: float
    low: float
    high: float
    full: bool = True
    """Of a full run; sizes of a smoke run are others."""


def read(path: Path) -> dict[str, Ratio]:
    """Return the ratios of a file by name."""
    text = path.read_text(encoding="utf-8")
    return _of_json(json.loads(text)) if path.suffix == ".json" else _of_csv(text)


def _of_json(found: dict[str, Any]) -> dict[str, Ratio]:
    made = {}
    for line in found["benchmarks"]:
        extra = line["extra_info"]
        if extra.get("ratio", 0.0) > 0:
            value = float(extra["ratio"])
            low, high = extra.get("ratio_quartiles", (value, value))
            made[line["name"]] = Ratio(value, low, high, bool(extra.get("full", True)))
    return made


def _of_csv(text: str) -> dict[str, Ratio]:
    """Lines with a target that begins with <= or >=; the latter are ratios the other way round."""
    made = {}
    plain = [line for line in text.splitlines() if not line.startswith("#")]
    for line in csv.DictReader(plain):
        value, target = float(line["value"]), line["target"]
        if value > 0 and "/" in line["what"] and target[:2] in {"<=", ">="}:
            value = value if target.startswith("<=") else 1 / value
            made[line["what"]] = Ratio(value, value, value)
    return made


def worse(old: dict[str, Ratio], new: dict[str, Ratio], slack: float) -> list[str]:
    """Return a sentence for each ratio that is worse."""
    return [
        f"{name}: {new[name].value:.3g} times its reference, {old[name].value:.3g} before"
        for name in shared(old, new)
        if new[name].low > slack * old[name].high
    ]


def shared(old: dict[str, Ratio], new: dict[str, Ratio]) -> Iterable[str]:
    """Names in both, measured at the same sizes."""
    return [name for name in old if name in new and old[name].full == new[name].full]


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("old", type=Path)
    parser.add_argument("new", type=Path)
    parser.add_argument("--slack", type=float, default=SLACK)
    options = parser.parse_args(arguments)
    old, new = read(options.old), read(options.new)
    names = shared(old, new)
    for name in names:
        print(f"{name}: {old[name].value:.3g} -> {new[name].value:.3g}")
    for name in sorted(old.keys() ^ new.keys()):
        print(f"{name}: only in {'OLD' if name in old else 'NEW'}, not compared")
    if not names:
        print("nothing to compare: no ratio of the same name and size in both", file=sys.stderr)
        return 2
    found = worse(old, new, options.slack)
    for sentence in found:
        print(f"worse by more than {options.slack:g}: {sentence}", file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
