"""FairGBM, in a process and an environment of its own: SCALEFAIR_FAIRGBM names its Python.

It needs a scikit-learn below 1.9, and ends the process on groups that are not whole numbers. It
bounds differences of false positive and false negative rates, so it is a rival in odds. s is needed
in training only.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from benchmarks.peers._task import Method, Points, Task

PYTHON = os.environ.get("SCALEFAIR_FAIRGBM", "python-with-fairgbm")
TOLERANCES = (0.0, 0.02, 0.05, 0.1)
CODE = """
import sys
import numpy as np
from fairgbm import FairGBMClassifier
rows = np.load(sys.argv[1])
model = FairGBMClassifier(
    n_estimators=int(sys.argv[3]), constraint_type="FNR,FPR", random_state=0, n_jobs=1,
    constraint_fpr_tolerance=float(sys.argv[2]), constraint_fnr_tolerance=float(sys.argv[2]),
)
model.fit(rows["Z"], rows["y"], constraint_group=rows["groups"])
np.save(sys.argv[4], model.predict_proba(rows["Z_test"])[:, 1])
"""


def fitted(task: Task, tolerance: float) -> Any:
    Z, Z_test = task.codes
    _, groups = np.unique(task.cells[0], return_inverse=True)
    with TemporaryDirectory() as folder:
        rows, result = Path(folder) / "rows.npz", Path(folder) / "f.npy"
        np.savez(rows, Z=Z, Z_test=Z_test, y=task.y.astype(int), groups=groups.astype(int))
        trees = 5 if task.quick else 100
        command = [PYTHON, "-c", CODE, str(rows), str(tolerance), str(trees), str(result)]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        return np.load(result)


def points(task: Task) -> Points:
    for tolerance in TOLERANCES[1:2] if task.quick else TOLERANCES:
        yield tolerance, fitted(task, tolerance)


METHODS = (Method("FairGBM, odds", points, kinds=("rate",), needs=f"command {PYTHON}", goal="odds", refits=True),)
