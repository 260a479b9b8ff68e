"""Parity given the outcome on Adult: what `control_features=y` promises, beside the error rates.

    python -m benchmarks.control [--rows N]

Sex is sensitive; logistic loss, 200 Nyström features. Scores are compared within each class, in
standard deviations of the scores; rates are differences, men less women, on the test rows of the
given split. Writes results/control.csv.
"""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np

from benchmarks._measure import RESULTS, save_lines
from scalefair import FairKernelClassifier
from scalefair.datasets import load_adult

FITS: dict[str, dict[str, Any]] = {
    "no penalty": {"eta": 0.0},
    "parity": {"eta": float("inf")},
    "control_features=y": {"eta": float("inf"), "control": True},
    'control_features=y, output_kernel="rbf", eta=5': {"eta": 5.0, "control": True, "output_kernel": "rbf"},
}


def difference(values: Any, men: Any) -> float:
    """Mean of the men less that of the women."""
    return float(np.mean(values[men]) - np.mean(values[~men]))


def judged(model: FairKernelClassifier, X: Any, y: Any, men: Any) -> dict[str, float]:
    """Accuracy, gaps of the scores in each class, and gaps of the error rates."""
    f, decided = model.decision_function(X), model.predict(X)
    rich = y == model.classes_[1]
    wrong = (decided != y).astype(float)
    line = {"accuracy": 1 - float(wrong.mean())}
    for name, rows in (("y=0", ~rich), ("y=1", rich)):
        line[f"score gap, {name}"] = difference(f[rows], men[rows]) / float(np.std(f))
    line["false positive gap"] = difference(wrong[~rich], men[~rich])
    line["false negative gap"] = difference(wrong[rich], men[rich])
    return line


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=None, help="training rows; all of them if not")
    rows = parser.parse_args().rows
    train, test = load_adult(subset="train"), load_adult(subset="test")
    X, y, s = train.data[:rows], train.target[:rows], train.sensitive_features[:rows]
    men = np.asarray(test.sensitive_features["sex"].astype(str).str.strip() == "Male")
    lines = []
    for name, settings in FITS.items():
        how = dict(settings)
        control = {"control_features": y} if how.pop("control", False) else {}
        model = FairKernelClassifier(n_components=200, random_state=0, **how)
        model.fit(X, y, sensitive_features=s["sex"], **control)
        line = judged(model, test.data, np.asarray(test.target), men)
        lines.append({"fit": name, **{key: f"{value:.3f}" for key, value in line.items()}})
        print(lines[-1], flush=True)
    save_lines(RESULTS / "control.csv", lines)


if __name__ == "__main__":
    main()
