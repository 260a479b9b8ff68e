"""Error at each share, who wins where, and the times, from the points in the csv."""

from __future__ import annotations

import csv
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from statistics import mean
from typing import Any

import numpy as np

from benchmarks.peers._run import DONE, read

SHARES = tuple(round(0.01 * k, 2) for k in range(1, 21))
SHOWN = (0.01, 0.02, 0.05, 0.1, 0.15, 0.2)
HSICS = (1e-4, 3e-4, 1e-3, 3e-3)
METRICS = {"crime": ("rmse",), "acs": ("rmse",), "adult": ("auc", "accuracy"),
           "acsincome": ("auc", "accuracy")}  # fmt: skip
OURS = "scalefair"
Curve = list[dict[str, float]]
Key = tuple[str, str, str]
"""Data, rows asked for, and whether s is visible."""


def curves(path: Path) -> dict[Key, dict[str, Curve]]:
    """Points of every method, averaged over the seeds that have them all.

    Who was stopped counts with the points that it had; who failed, or still runs, does not.
    """
    points: dict[Any, dict[str, dict[str, str]]] = defaultdict(dict)
    lines = read(path)
    done = {_job(line) for line in lines if line["note"] == DONE or _stopped(line["note"])}
    for line in lines:
        if line["setting"] and _job(line) in done:
            key = line["data"], line["asked_rows"], line["s"]
            # The last one counts: a run that was stopped leaves points behind.
            points[key, line["method"], _setting(line)][line["seed"]] = line
    found: dict[Key, dict[str, Curve]] = defaultdict(lambda: defaultdict(list))
    for (key, method, _), by_seed in points.items():
        every = {seed for (k, m, _), more in points.items() for seed in more
                 if (k, m) == (key, method)}  # fmt: skip
        if set(by_seed) == every:
            found[key][method].append(_mean(list(by_seed.values())))
    return found


def _job(line: dict[str, str]) -> tuple[str, ...]:
    return tuple(line[name] for name in ("data", "asked_rows", "s", "method", "seed"))


def _stopped(note: str) -> bool:
    return note.startswith("stopped")


def stops(path: Path) -> dict[Key, dict[str, str]]:
    """After how long a method was stopped that has not come to its end since."""
    ends = {_job(line): line["note"] for line in read(path) if line["note"]}
    found: dict[Key, dict[str, str]] = defaultdict(dict)
    for (data, rows, s, method, _), note in ends.items():
        if _stopped(note):
            found[data, rows, s][method] = note
    return found


def _setting(line: dict[str, str]) -> str:
    """What is the same over the seeds: bounds relative to a seed's own losses are not."""
    return line["order"] if "Bounded" in line["method"] else line["setting"]


def _mean(lines: list[dict[str, str]]) -> dict[str, float]:
    names = [name for name, value in lines[0].items() if _is_number(value)]
    return {name: mean(float(line[name]) for line in lines) for name in names}


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def error_at(curve: Curve, metric: str, limit: float, by: str = "share") -> float:
    """Least error with at most this share; between points of the lower envelope, on a line.

    A mixture of two neighbours would reach what lies between them. NaN below the least share.
    """
    sign = 1.0 if metric == "rmse" else -1.0
    points = sorted((point[by], sign * point[metric]) for point in curve)
    shares, errors = np.array(points).T
    if limit < shares[0]:
        return float("nan")
    return sign * float(np.interp(limit, shares, np.minimum.accumulate(errors)))


def beaten(ours: float, other: float, metric: str) -> bool:
    """Whether ours is not worse; who has no point that fair loses."""
    if np.isnan(other):
        return True
    return bool(ours <= other if metric == "rmse" else ours >= other)


def best(found: dict[str, Curve], metric: str, limit: float, mine: bool) -> tuple[float, str]:
    """Best value of our methods, or of all others, and whose it is."""
    values = {name: error_at(curve, metric, limit) for name, curve in found.items()
              if name.startswith(OURS) == mine}  # fmt: skip
    values = {name: value for name, value in values.items() if not np.isnan(value)}
    if not values:
        return float("nan"), "none"
    name = (min if metric == "rmse" else max)(values, key=lambda key: values[key])
    return values[name], name


def at_shares(
    found: dict[Key, dict[str, Curve]], stopped: dict[Key, dict[str, str]]
) -> list[list[Any]]:
    """One line per method: its value at some shares, its times, its memory, how it ended."""
    lines: list[list[Any]] = [["data", "rows asked", "s", "metric", "method",
                               *(f"share {share:g}" for share in SHOWN), "least share",
                               "CPU s, one model", "CPU s, frontier", "peak MB",
                               "note"]]  # fmt: skip
    for (data, rows, s), methods in sorted(found.items()):
        notes = stopped.get((data, rows, s), {})
        for metric in METRICS[data]:
            for name in {**methods, **notes}:
                values = _values(methods.get(name), metric)
                lines.append([data, rows or "all", s, metric, name, *values, notes.get(name, "")])
    return lines


def _values(curve: Curve | None, metric: str) -> list[str]:
    """What one method has; dashes for who was stopped before the first point."""
    if not curve:
        return ["–"] * (len(SHOWN) + 4)
    values = [error_at(curve, metric, share) for share in SHOWN]
    return [*map(_three, values), f"{min(point['share'] for point in curve):.3f}", *_times(curve)]


def _three(value: float) -> str:
    return "–" if np.isnan(value) else f"{value:.4f}"


def _times(curve: Curve) -> list[str]:
    """CPU seconds: they do not depend on what else the machine does, nor on threads."""
    one, whole = (_most(curve, name) for name in ("cpu_seconds", "total_cpu"))
    return [f"{one:.3g}", f"{whole:.3g}", f"{_most(curve, 'peak_mb'):.0f}"]


def _most(curve: Curve, name: str) -> float:
    return max((point[name] for point in curve if name in point), default=float("nan"))


def winners(found: dict[Key, dict[str, Curve]]) -> list[list[Any]]:
    """At every share from 0.01 to 0.20: ours, the best peer, and whether the target is met."""
    lines: list[list[Any]] = [["data", "rows asked", "s", "metric", "share", "ours", "whose",
                               "best peer", "whose peer", "difference", "not above"]]  # fmt: skip
    for (data, rows, s), methods in sorted(found.items()):
        for metric in METRICS[data]:
            for share in SHARES:
                ours, mine = best(methods, metric, share, True)
                other, whose = best(methods, metric, share, False)
                met = "yes" if beaten(ours, other, metric) else "no"
                met = "no peer is as fair" if np.isnan(other) else met
                lines.append([data, rows or "all", s, metric, share, _three(ours), mine,
                              _three(other), whose, f"{ours - other:+.4f}", met])  # fmt: skip
    return lines


def speeds(found: dict[Key, dict[str, Curve]]) -> list[list[Any]]:
    """CPU seconds of the reductions over ours, on as many rows: one fair model, a frontier."""
    lines: list[list[Any]] = [["data", "rows", "s", "reduction", "ours", "one model / one model",
                               "frontier / frontier", "memory / memory"]]  # fmt: skip
    for (data, _, s), methods in sorted(found.items()):
        for name, theirs in methods.items():
            if "ExponentiatedGradient" not in name and "GridSearch" not in name:
                continue
            rows = theirs[0]["rows"]
            for mine, ours in _on_as_many(found, data, s, rows):
                pairs = zip(map(float, _times(theirs)), map(float, _times(ours)), strict=True)
                ratios = [other / own for other, own in pairs]
                if not np.isnan(ratios).any():
                    lines.append([data, f"{rows:.0f}", s, name, mine,
                                  *(f"{ratio:.3g}" for ratio in ratios)])  # fmt: skip
    return lines


def _on_as_many(
    found: dict[Key, dict[str, Curve]], data: str, s: str, rows: float
) -> Iterator[tuple[str, Curve]]:
    """Our curves on as many rows, whatever was asked for."""
    for key, methods in found.items():
        if (key[0], key[2]) == (data, s):
            yield from ((name, curve) for name, curve in methods.items()
                        if name.startswith(OURS) and curve[0]["rows"] == rows)  # fmt: skip


def by_hsic(found: dict[Key, dict[str, Curve]]) -> list[list[Any]]:
    """The same against HSIC, which sees the whole distribution."""
    lines: list[list[Any]] = [["data", "rows asked", "s", "metric", "method",
                               *(f"HSIC {value:g}" for value in HSICS), "least HSIC"]]  # fmt: skip
    for (data, rows, s), methods in sorted(found.items()):
        for metric in METRICS[data]:
            for name, curve in methods.items():
                values = [error_at(curve, metric, value, "hsic") for value in HSICS]
                least = min(point["hsic"] for point in curve)
                lines.append([data, rows or "all", s, metric, name, *map(_three, values),
                              f"{least:.2e}"])  # fmt: skip
    return lines


def report(path: Path) -> None:
    """Write the tables beside the points, draw, and print what was found."""
    found = curves(path)
    tables = {"at_share": at_shares(found, stops(path)), "winners": winners(found),
              "speed": speeds(found), "hsic": by_hsic(found)}  # fmt: skip
    for name, lines in tables.items():
        with (path.parent / f"peers_{name}.csv").open("w", encoding="utf-8", newline="") as file:
            csv.writer(file).writerows(lines)
    summary(tables["winners"][1:])
    from benchmarks.peers._draw import draw

    for data in sorted({key[0] for key in found}):
        draw(data, found, path.parent / f"peers_{data}.svg")


def summary(lines: list[list[Any]]) -> None:
    groups: dict[tuple[str, ...], list[list[Any]]] = defaultdict(list)
    for line in lines:
        groups[tuple(line[:4])].append(line)
    for key, some in groups.items():
        lost = [f"{line[4]:.2f} ({line[8]} {line[7]}, ours {line[5]})" for line in some
                if line[-1] == "no"]  # fmt: skip
        with_peer = [line for line in some if line[-1] in {"yes", "no"}]
        print(f"{', '.join(key)}: not above any peer at {len(with_peer) - len(lost)} of "
              f"{len(with_peer)} shares at which one has a point"
              f"{'; above at ' + '; '.join(lost) if lost else ''}", flush=True)  # fmt: skip
