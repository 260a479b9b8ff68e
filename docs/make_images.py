"""Draw the picture of the README and the docs from the results of the benchmarks.

python docs/make_images.py
"""

import csv
from pathlib import Path

import matplotlib as mpl
from matplotlib.figure import Figure

from scalefair.plots import AFTER, BEFORE, FAINT, INK
from scalefair.plots.figures import COLORS, finish, percent_axis

HERE = Path(__file__).parent
RESULTS = HERE.parent / "benchmarks" / "results" / "peers.csv"
UNCONSTRAINED = "scikit-learn HistGradientBoosting"
PANELS = {
    "adult": ("Adult: income above $50,000", "sex and race explain", "accuracy"),
    "acs": ("ACS: log income", "gender, race and age explain", "R²"),
}
CURVES = {
    "scalefair": ("scalefair, trees inside", "visible", {"color": AFTER, "marker": "o"}),
    "scalefair, attributes hidden": (
        *("scalefair, trees inside", "hidden"),
        {"color": AFTER, "marker": "o", "mfc": "white", "ls": "--"},
    ),
    "equipy": ("equipy on trees", "visible", {"color": BEFORE, "marker": "s"}),
    "fairlearn, ExponentiatedGradient (Adult)": (
        *("fairlearn ExponentiatedGradient, trees", "visible"),
        {"color": COLORS[2], "marker": "^"},
    ),
    "fairlearn, CorrelationRemover (ACS)": (
        *("fairlearn CorrelationRemover + Ridge", "visible"),
        {"color": COLORS[3], "marker": "v"},
    ),
}
ONLY = {
    "fairlearn, ExponentiatedGradient (Adult)": "adult",
    "fairlearn, CorrelationRemover (ACS)": "acs",
}


def quality(data, row):
    """Accuracy of decisions, or R²: the RMSE of ACS is in standard deviations of y."""
    return float(row["accuracy"]) if data == "adult" else 1 - float(row["rmse"]) ** 2


def points(data, method, s):
    """(share, quality) of a method on test rows, by increasing share; the most training rows."""
    with RESULTS.open(encoding="utf-8") as file:
        rows = [
            row
            for row in csv.DictReader(line for line in file if line[0] != "#")
            if (row["data"], row["part"], row["seed"]) == (data, "test", "0")
        ]
    most = max((row["rows"] for row in rows), key=int, default="")
    wanted = (method, s, most)
    rows = [row for row in rows if (row["method"], row["s"], row["rows"]) == wanted]
    return sorted(
        {(float(row["share"]), round(quality(data, row), 4)) for row in rows if row["share"]}
    )


def drawn(data):
    """{label: points} of the curves in a panel; the model without a limit comes first."""
    curves = {"no limit": points(data, UNCONSTRAINED, "visible")}
    for label, (method, s, _) in CURVES.items():
        if ONLY.get(label, data) == data:
            curves[label] = points(data, method, s)
    return curves


def description():
    """The points as text, which also tells whether the picture is that of the file."""
    return "share and quality: " + "; ".join(f"{data}: {drawn(data)}" for data in PANELS)


def draw(axes, data):
    """One panel."""
    title, people, name = PANELS[data]
    for label, found in drawn(data).items():
        if label == "no limit":
            look = {"color": INK, "marker": "*", "ms": 14, "ls": "", "zorder": 5}
        else:
            look = {"ms": 4.5, "lw": 1.4, **CURVES[label][2]}
        axes.plot(*zip(*found, strict=True), label=label, **look)
    axes.axvline(0.05, color=FAINT, lw=0.8, ls=":", zorder=0)
    axes.set(xlim=(0, None), title=title, ylabel=f"{name} on new rows")
    axes.set_xlabel(f"share of the variance of predictions\nthat {people}")
    percent_axis(axes)
    finish(axes)
    axes.legend().remove()


def main():
    """Draw a cheap case and a dear one."""
    mpl.rcParams["svg.hashsalt"] = "scalefair"  # the same text for the same picture
    mpl.rcParams["svg.fonttype"] = "none"
    figure = Figure(figsize=(9, 4.4), layout="constrained")
    panels = figure.subplots(1, 2)
    for axes, data in zip(panels, PANELS, strict=True):
        draw(axes, data)
    found = {
        label: line
        for axes in panels
        for line, label in zip(*axes.get_legend_handles_labels(), strict=True)
    }
    order = ["no limit", *CURVES]
    figure.legend(
        [found[label] for label in order],
        order,
        loc="outside lower center",
        ncols=3,
        frameon=False,
        fontsize=9,
    )
    about = {"Date": None, "Creator": None, "Description": description()}
    figure.savefig(HERE / "images" / "frontier.svg", metadata=about)


if __name__ == "__main__":
    main()
