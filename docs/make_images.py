"""Draw the picture of the README and the docs from the results of the benchmarks.

python docs/make_images.py
"""

import csv
from pathlib import Path

import matplotlib as mpl
from matplotlib.figure import Figure

from scalefair.plots import AFTER, BEFORE
from scalefair.plots.figures import finish, percent_axis

HERE = Path(__file__).parent
RESULTS = HERE.parent / "benchmarks" / "results" / "frontier.csv"
CURVES = {
    "visible": ("the model may use gender, race and age", AFTER, "o"),
    "hidden": ("it may not", BEFORE, "s"),
}
mpl.rcParams["svg.hashsalt"] = "scalefair"  # the same text for the same picture


def points(s):
    """(share, RMSE) of the models on ACS income, problem A, by increasing share."""
    with RESULTS.open(encoding="utf-8") as file:
        rows = [row for row in csv.DictReader(line for line in file if line[:1] != "#")
                if (row["problem"], row["s"], row["kind"]) == ("A", s, "point")]  # fmt: skip
    share, rmse = (
        {row["at"]: float(row["value"]) for row in rows if row["metric"] == metric}
        for metric in ("share", "rmse")
    )
    return sorted((share[limit], rmse[limit]) for limit in share)


def description():
    """The points as text, which also tells whether the picture is that of the file."""
    return f"share and RMSE: {', '.join(f'{s} {points(s)}' for s in CURVES)}"


def main():
    """Draw the frontier on ACS income."""
    figure = Figure(figsize=(7, 4.2), layout="constrained")
    axes = figure.subplots()
    for s, (label, color, marker) in CURVES.items():
        axes.plot(*zip(*points(s), strict=True), color=color, marker=marker, ms=5, label=label)
    axes.set(
        xlim=(0, None),
        xlabel="share of the variance of the predictions that these explain, held out",
        ylabel="RMSE, held out, in standard deviations",
    )
    percent_axis(axes)
    finish(axes)
    told = {"Date": None, "Description": description()}
    figure.savefig(HERE / "images" / "frontier.svg", metadata=told)


if __name__ == "__main__":
    main()
