"""Whether a peer's lead is more than chance: both models once more, on the same test rows.

    python -m benchmarks.peers.chance

Takes every lead in results/peers_winners.csv, fits the two models behind it again and draws the
test rows with replacement: the standard error of the difference, in results/peers_chance.csv.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from sklearn.metrics import roc_auc_score

from benchmarks.peers import METHODS
from benchmarks.peers._run import POINTS, Job, cut
from benchmarks.peers._tables import Curve, curves
from benchmarks.peers._task import Task

DRAWS = 200
HEADER = ("data", "s", "metric", "from share", "ours", "value", "best peer", "its value",
          "difference", "standard error")  # fmt: skip


class Lead(NamedTuple):
    """Where a peer is ahead: the first share at which this peer is ahead of this one of ours."""

    data: str
    rows: str
    s: str
    metric: str
    ours: str
    peer: str
    share: float


def leads(path: Path) -> Iterator[Lead]:
    """The lines of the winners that say "no", each pair once."""
    seen = set()
    with path.open(encoding="utf-8", newline="") as file:
        for line in csv.DictReader(file):
            if line["not above"] != "no":
                continue
            lead = Lead(line["data"], line["rows asked"], line["s"], line["metric"],
                        line["whose"], line["whose peer"], float(line["share"]))  # fmt: skip
            if lead[:-1] not in seen:
                seen.add(lead[:-1])
                yield lead


def best_setting(curve: Curve, metric: str, share: float) -> float:
    """Setting of the best point that is as fair as that."""
    sign = 1.0 if metric == "rmse" else -1.0
    fair = [point for point in curve if point["share"] <= share]
    return min(fair, key=lambda point: sign * point[metric])["setting"]


def losses(f: Any, y: Any, metric: str, threshold: float) -> Any:
    """What a bootstrap resamples: the prediction for AUC, else each row's loss."""
    if metric == "auc":
        return f
    return (f - y) ** 2 if metric == "rmse" else (f >= threshold) == y


def value(loss: Any, y: Any, metric: str) -> float:
    if metric == "auc":
        return float(roc_auc_score(y, loss))
    return float(np.sqrt(np.mean(loss)) if metric == "rmse" else np.mean(loss))


def difference(ours: Any, peer: Any, y: Any, metric: str) -> tuple[float, float]:
    """Ours minus the peer's on the same rows, and its standard error over draws of them."""
    random = np.random.default_rng(0)
    drawn = []
    for _ in range(DRAWS):
        rows = random.integers(len(y), size=len(y))
        drawn.append(value(ours[rows], y[rows], metric) - value(peer[rows], y[rows], metric))
    return value(ours, y, metric) - value(peer, y, metric), float(np.std(drawn, ddof=1))


def predictions(lead: Lead, method: str, setting: float) -> tuple[Any, Any, float]:
    """Fit once more: predictions and targets of the test rows, and the threshold."""
    how = METHODS[method]
    rows = None if lead.rows == "all" else int(lead.rows)
    split = cut(Job(lead.data, lead.s, method, rows).load(), how.most)
    for found, f in how.run(Task(split, lead.s == "hidden")):
        if f"{found:.5g}" == f"{setting:.5g}":
            return np.asarray(f, dtype=float), split.y_test, how.threshold
    raise ValueError(f"{method} has no point at the setting {setting:g}; run benchmarks.peers")


def compared(lead: Lead, found: dict[str, Curve]) -> list[Any]:
    parts: list[Any] = []
    for method in (lead.ours, lead.peer):
        setting = best_setting(found[method], lead.metric, lead.share)
        f, y, threshold = predictions(lead, method, setting)
        parts.append(losses(f, y, lead.metric, threshold))
    gap, error = difference(parts[0], parts[1], y, lead.metric)
    ours, peer = (f"{value(part, y, lead.metric):.4f}" for part in parts)
    return [lead.data, lead.s, lead.metric, lead.share, lead.ours, ours, lead.peer, peer,
            f"{gap:+.5f}", f"{error:.5f}"]  # fmt: skip


def main() -> None:
    found = curves(POINTS)
    lines: list[Any] = [HEADER]
    for lead in leads(POINTS.parent / "peers_winners.csv"):
        rows = "" if lead.rows == "all" else lead.rows
        lines.append(compared(lead, found[lead.data, rows, lead.s]))
        print(*lines[-1], sep=", ", flush=True)
    with (POINTS.parent / "peers_chance.csv").open("w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows(lines)


if __name__ == "__main__":
    main()
