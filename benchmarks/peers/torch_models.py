"""Networks that are trained against dependence: fairlearn's adversary, fairret's penalty.

A network of one hidden layer on standardised inputs, trained with Adam; all else as the packages
have it. The adversary of AdversarialFairnessRegressor guesses s, numbers and one-hot columns alike,
from f; the larger its alpha, the more that counts. fairret's NormLoss compares the mean of f in
each soft group with that of all: the groups are ψ(s), one-hot cells of categories, Gaussian bumps
around landmarks of numbers. Its means are relative, so numbers are shifted away from zero.
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from sklearn.cluster import KMeans
from sklearn.metrics import pairwise_distances

from benchmarks.peers._task import Method, Points, Task

HIDDEN = 64
EPOCHS = 15
BATCH = 256
ALPHAS = (0.0, 0.3, 1.0, 3.0, 10.0)
WEIGHTS = (0.0, 0.03, 0.1, 0.3, 1.0)
SHIFT = 5.0
LANDMARKS = 10


def network(inputs: int, seed: int = 0) -> Any:
    import torch

    torch.manual_seed(seed)
    layers = torch.nn.Linear(inputs, HIDDEN), torch.nn.ReLU(), torch.nn.Linear(HIDDEN, 1)
    return torch.nn.Sequential(*layers)


def adversary(task: Task) -> Points:
    from fairlearn.adversarial import AdversarialFairnessRegressor

    (Z, Z_test), s = task.arrays, task.sensitive[0]
    for alpha in ALPHAS[1:2] if task.quick else ALPHAS:
        model = AdversarialFairnessRegressor(
            backend="torch",
            predictor_model=[HIDDEN, "relu"],
            adversary_model=[HIDDEN, "relu"],
            alpha=alpha,
            epochs=1 if task.quick else EPOCHS,
            batch_size=BATCH,
            shuffle=True,
            random_state=0,
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model.fit(Z.astype(np.float32), task.y[:, None], sensitive_features=s)
            yield alpha, np.ravel(model.predict(Z_test.astype(np.float32)))


def soft_groups(task: Task) -> Any:
    """ψ(s) ≥ 0: one-hot cells, or Gaussian bumps with the median distance as width."""
    split = task.split
    if all(split.X[name].dtype.kind not in "biuf" for name in split.sensitive):
        cells = task.cells[0]
        return (cells[:, None] == np.unique(cells)).astype(float)
    s = task.sensitive[0]
    centres = KMeans(LANDMARKS, n_init=1, random_state=0).fit(s).cluster_centers_
    distances = pairwise_distances(s, centres)
    return np.exp(-0.5 * (distances / np.median(distances)) ** 2)


def penalty(task: Task) -> Points:
    import torch
    from fairret.loss import NormLoss
    from fairret.statistic import PositiveRate

    (Z, Z_test), fair = task.arrays, NormLoss(PositiveRate())
    tensors = [torch.tensor(np.asarray(part), dtype=torch.float32) for part in (Z, task.y[:, None], soft_groups(task))]
    error = torch.nn.BCEWithLogitsLoss() if task.decides else torch.nn.MSELoss()
    for weight in WEIGHTS[1:2] if task.quick else WEIGHTS:
        model = network(Z.shape[1])
        steps = torch.optim.Adam(model.parameters(), lr=1e-3)
        for _ in range(1 if task.quick else EPOCHS):
            for rows in torch.randperm(len(Z)).split(BATCH):
                x, y, psi = (part[rows] for part in tensors)
                f = model(x)
                steps.zero_grad()
                known = psi[:, psi.sum(dim=0) > 0]
                shifted = f if task.decides else f + SHIFT
                loss = error(f, y) + weight * fair(shifted, known, pred_as_logit=task.decides)
                loss.backward()
                steps.step()
        with torch.no_grad():
            yield weight, model(torch.tensor(Z_test, dtype=torch.float32)).numpy().ravel()


METHODS = (
    Method("fairlearn AdversarialFairnessRegressor", adversary, needs="torch", kinds=("number",), refits=True),
    Method("fairret NormLoss on psi(s)", penalty, needs="fairret", threshold=0.0, refits=True),
)
