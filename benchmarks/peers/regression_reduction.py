"""The reduction of Agarwal, Dudík and Wu (2019) for regression under statistical parity.

No package at hand has it, so here it is, after the paper: for every group a and every level z of a
grid, |P(f ≥ z | a) − P(f ≥ z)| ≤ ε. Exponentiated gradient over the multipliers; the best response
to them is a regression on u_i = argmin_u (y_i − u)² + Σ_{z ≤ u} c(a_i, z), a least-squares oracle,
with default boosted trees. Predictions are the mean of the mixture, which has less error
than a draw from it and the same E[f|s]. s is needed in training only. Groups are cells.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.peers._task import Method, Points, Task

SLACKS = (0.01, 0.05, 0.1, 0.2)
LEVELS = 20
STEPS = 30
BOUND = 10.0
"""Largest sum of the multipliers."""
RATE = 2.0


def mixture(task: Task, slack: float, steps: int) -> Any:
    """Mean prediction of the test rows over the steps of the exponentiated gradient."""
    Z, Z_test = task.codes
    names, groups = np.unique(task.cells[0], return_inverse=True)
    part = np.bincount(groups) / len(groups)
    grid = np.quantile(task.y, np.linspace(0.02, 0.98, LEVELS))
    squares = (task.y[:, None] - grid) ** 2
    theta, found = np.zeros((2, len(names), LEVELS)), []
    for _ in range(steps):
        weights = np.exp(theta - theta.max())
        weights *= BOUND / (np.exp(-theta.max()) + weights.sum())
        push = weights[0] - weights[1]  # on P(f ≥ z | a) − P(f ≥ z)
        cost = push / part[:, None] - push.sum(axis=0)
        target = grid[np.argmin(squares + np.cumsum(cost, axis=1)[groups], axis=1)]
        model = task.default_trees(task.categories).fit(Z, target)
        found.append(model.predict(Z_test))
        above = model.predict(Z)[:, None] >= grid
        rates = np.array([above[groups == a].mean(axis=0) for a in range(len(names))])
        gap = rates - above.mean(axis=0)
        theta += RATE * np.stack([gap - slack, -gap - slack])
    return np.mean(found, axis=0)


def reduction(task: Task) -> Points:
    for slack in SLACKS[1:2] if task.quick else SLACKS:
        yield slack, mixture(task, slack, 2 if task.quick else STEPS)


METHODS = (Method("reduction of Agarwal, Dudik and Wu, trees", reduction, kinds=("number",), refits=True),)
