"""Frontiers as pictures, from the points: five methods, s visible and hidden."""

from __future__ import annotations

from pathlib import Path

from benchmarks.peers._tables import OURS, Axis, Curve, Curves, Place, axes, chosen

LABELS = {
    "rmse": "RMSE on test rows",
    "auc": "AUC on test rows",
    "accuracy": "accuracy on test rows",
    "gap": "gap of decisions",
    "share": "share of the variance of f that s explains",
    "ks": "KS distance of a group from all",
}
RIVALS = {
    "rmse": (
        "centring",
        "equipy on trees",
        "reduction of Agarwal, Dudik and Wu, trees",
        "fairlearn AdversarialFairnessRegressor",
    ),
    "auc": ("centring", "equipy on trees", "fairlearn ExponentiatedGradient, trees", "fairret NormLoss on psi(s)"),
    "accuracy": ("centring", "equipy on trees", "fairlearn ExponentiatedGradient, trees", "fairret NormLoss on psi(s)"),
}
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00")


def draw(data: str, found: Curves, validated: Curves, path: Path) -> None:
    """Two kinds of dependence, one above the other; the most rows that ours was fitted on."""
    from matplotlib.figure import Figure

    rows = max(place.rows for place in found if place.data == data)
    figure = Figure(figsize=(9.5, 7.6), layout="constrained")
    kinds = axes(found[next(place for place in found if place.data == data)])
    pair = (kinds[0], kinds[-1] if kinds[-1].name == "gap" else kinds[1])
    grid = figure.subplots(2, 2, sharey="row")
    for line, axis in zip(grid, pair, strict=True):
        for ax, s in zip(line, ("visible", "hidden"), strict=True):
            place = Place(data, rows, s)
            own = chosen(validated.get(place, {}), axis)
            for name, colour in zip((own, *RIVALS[axis.metric]), COLOURS, strict=True):
                points = envelope(found.get(place, {}).get(name, []), axis)
                if points:
                    mine = name.startswith(OURS)
                    label = f"{OURS} (chosen on validation rows)" if mine else name
                    look = {"color": colour, "linewidth": 2 if mine else 1, "marker": "o"}
                    ax.plot(*zip(*points, strict=True), label=label, markersize=4, **look)
            ax.set(title=f"s {s}, {rows:,} rows", xlabel=LABELS[axis.name])
            ax.set_xlim(-0.02 * axis.levels[-1], 1.5 * axis.levels[-1])
        line[0].set_ylabel(LABELS[axis.metric])
    labels = {text: one for ax in grid.flat for one, text in zip(*ax.get_legend_handles_labels(), strict=True)}
    if labels:
        figure.legend(labels.values(), labels.keys(), loc="outside lower center", ncols=2, fontsize=8, frameon=False)
    figure.savefig(path, metadata={"Date": None})


def envelope(curve: Curve, axis: Axis) -> list[tuple[float, float]]:
    """The points of a curve that have both numbers, in order."""
    return sorted(
        (point[axis.name], point[axis.metric]) for point in curve if axis.name in point and axis.metric in point
    )
