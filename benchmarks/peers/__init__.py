"""What people would use instead, on the same rows and with the same metrics.

    python -m benchmarks.peers [--data crime adult acs acsincome] [--rows N] [--quick]
    python -m benchmarks.peers --data pay.csv --target pay --sensitive sex age

A method is a generator: given a Task it yields (setting, scores of the test rows), and with
decisions of its own their chances, for each point of its curve. It runs in a process of its own,
for its memory and its time.
"""

from __future__ import annotations

from benchmarks.peers import (
    barycentre,
    centring,
    fairgbm,
    linear_filters,
    ours,
    r_fairml,
    reductions,
    regression_reduction,
    scikit,
    thresholds,
    torch_models,
)
from benchmarks.peers._task import Method

MODULES = (
    ours,
    centring,
    barycentre,
    thresholds,
    reductions,
    regression_reduction,
    torch_models,
    fairgbm,
    r_fairml,
    linear_filters,
    scikit,
)
METHODS: dict[str, Method] = {method.name: method for module in MODULES for method in module.METHODS}
