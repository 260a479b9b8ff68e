"""Draw the pictures of the README and the docs from real fits.

python docs/make_images.py
"""

from pathlib import Path

import matplotlib as mpl
from matplotlib.figure import Figure

from scalefair import FairKernelRidgeCV
from scalefair.datasets import load_adult
from scalefair.plots import FairPathDisplay

IMAGES = Path(__file__).parent / "images"
mpl.rcParams["svg.hashsalt"] = "scalefair"  # the same text for the same picture


def main():
    """Draw the frontier of the Adult data."""
    adult = load_adult()
    model = FairKernelRidgeCV(unfairness=0.05, random_state=0)
    model.fit(adult.data, adult.target, sensitive_features=adult.sensitive_features)
    figure = Figure(figsize=(7, 4.2), layout="constrained")
    axes = figure.subplots()
    FairPathDisplay.from_estimator(model, ax=axes)
    IMAGES.mkdir(exist_ok=True)
    figure.savefig(IMAGES / "frontier.svg", metadata={"Date": None})


if __name__ == "__main__":
    main()
