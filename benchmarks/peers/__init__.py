"""What people would use instead, on the same rows and with the same metrics.

    python -m benchmarks.peers [--data crime adult acs acsincome] [--rows N] [--quick]

A method is a generator: given a Task it yields (setting, predictions of the test rows), one pair
for each point of its curve. It runs in a process of its own, for its memory and its time.
"""

from __future__ import annotations

from benchmarks.peers import barycentre, linear_filters, ours, reductions, scikit
from benchmarks.peers._task import Method

METHODS: dict[str, Method] = {
    method.name: method
    for module in (ours, scikit, linear_filters, reductions, barycentre)
    for method in module.METHODS
}
