"""Frontiers as pictures, from the csv."""

from __future__ import annotations

from pathlib import Path
from typing import Any

LABELS = {"rmse": "RMSE on held-out rows", "auc": "AUC on held-out rows",
          "accuracy": "accuracy on held-out rows"}  # fmt: skip
COLOURS = ("#0072b2", "#56b4e9", "#009e73", "#d55e00", "#cc79a7", "#e69f00", "#999999", "#000000")
MARKS = "osv^D<>Pp*hXd8"


def draw(data: str, found: dict[Any, dict[str, Any]], path: Path) -> None:
    """One panel for s visible, one for s hidden; the most rows that were asked for."""
    from matplotlib.figure import Figure

    from benchmarks.peers._tables import METRICS, OURS

    metric = METRICS[data][0]
    rows = {key[1] for key in found if key[0] == data}
    asked = "" if "" in rows else max(rows, key=int)
    figure = Figure(figsize=(9.5, 4.6), layout="constrained")
    axes = figure.subplots(1, 2, sharey=True)
    names = sorted({name for key, methods in found.items() if key[0] == data for name in methods},
                   key=lambda name: (not name.startswith(OURS), name))  # fmt: skip
    for s, ax in zip(("visible", "hidden"), axes, strict=True):
        for number, name in enumerate(names):
            curve = found.get((data, asked, s), {}).get(name)
            if not curve:
                continue
            points = sorted((point["share"], point[metric]) for point in curve)
            mine = name.startswith(OURS)
            ax.plot(
                *zip(*points, strict=True), label=name, marker=MARKS[number % len(MARKS)],
                color=COLOURS[number % len(COLOURS)], markersize=4, linewidth=2 if mine else 0.8,
                linestyle="-" if mine else ":", zorder=3 if mine else 2,
            )  # fmt: skip
        ax.axvspan(0.01, 0.2, color="#f2f2f2", zorder=0)
        ax.set(title=f"s {s}", xlabel="share of the predictions' variance that s explains",
               xlim=(-0.01, 0.45))  # fmt: skip
    axes[0].set_ylabel(LABELS[metric])
    axes[0].set_ylim(*_heights(data, found, metric))
    labels = {text: line for ax in axes for line, text in zip(*ax.get_legend_handles_labels(),
                                                              strict=True)}  # fmt: skip
    if labels:
        figure.legend(labels.values(), labels.keys(), loc="outside lower center", ncols=2,
                      fontsize=7, frameon=False)  # fmt: skip
    figure.savefig(path, metadata={"Date": None})


def _heights(data: str, found: dict[Any, dict[str, Any]], metric: str) -> tuple[Any, Any]:
    """Cut off what is far worse than all of ours: it would flatten the rest."""
    from benchmarks.peers._tables import OURS

    curves = [curve for key, methods in found.items() if key[0] == data
              for name, curve in methods.items() if name.startswith(OURS)]  # fmt: skip
    ours = [point[metric] for curve in curves for point in curve]
    if not ours:
        return None, None
    room = 0.5 * (max(ours) - min(ours)) or 0.1
    return (None, max(ours) + room) if metric == "rmse" else (min(ours) - room, None)
