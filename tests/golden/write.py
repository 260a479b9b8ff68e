"""Write the golden files of the current schema: ``python -m tests.golden.write``.

Files that are there are never written again: they are what users have.
"""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

import numpy as np

import scalefair
from scalefair import Certificate, FairKernel, SensitiveRows, _files, losses
from scalefair.data.columns import table_statistics
from scalefair.data.encoding import TableEncoder
from scalefair.kernels import RBF, Linear
from scalefair.maps import Nystroem, TransformerMap
from tests.models import MODELS, answers, fitted, groups, numbers, pay, rows, target

FOLDER = Path(__file__).parent
KEPT = 4
"""Rows whose answers are kept."""


LOSSES = {
    "squared": losses.Squared(),
    "huber": losses.Huber(0.8),
    "gamma": losses.Gamma(),
    "sum_to_zero": losses.SumToZero(losses.Multinomial(3)),
    "one_vs_rest": losses.OneVsRest(3),
}


def loss_path():
    own = {"sensitive_features": groups()}
    return fitted("classes").path(rows("classes"), target("classes"), [0.0, 1.0], **own)


def fair_kernel():
    X = numbers()[:10]
    return FairKernel(RBF(9.0) * Linear(), SensitiveRows.of(X, RBF(5.0)(X[:, :1])), noise=0.1)


def transformer():
    return TransformerMap(Nystroem(n_components=4, length_scale=9.0, random_state=0)).fit(numbers())


def certificate():
    return Certificate(
        0.05,
        0.95,
        "scores",
        "split",
        600,
        0.01,
        0.03,
        "every function of the 2 groups",
        ("one",),
        "list:1",
        "list:2",
        "0.1",
        "2026-01-01T00:00:00+00:00",
    )


def party(what):
    """What two parties exchange."""
    own = {"feature_map": "linear", "unfairness": 0.5, "confidence": 0.8, "guarantee": "cross", "cv": 2}
    model = scalefair.FairKernelRidgeCV(**own, random_state=0)
    maps, ours = scalefair.PartyMaps.fit(model, numbers(), target("linear"))
    s = groups()["sex"]
    theirs = maps.moments(numbers(), sensitive_features=s)
    asked = maps.candidates(ours, theirs)
    if what == "judgement":
        return maps.judge(asked, numbers(), sensitive_features=s)
    return {"maps": maps, "moments": theirs, "candidates": asked}[what]


def probable():
    table = scalefair.group_probabilities(np.tile([[0.7, 0.3], [0.2, 0.8]], (len(numbers()) // 2, 1)))
    return scalefair.FairRidge(eta=1.0, random_state=0).fit(
        numbers()[: len(table)], target("linear")[: len(table)], sensitive_features=table
    )


OTHERS = {
    "certificate": certificate,
    "probable": probable,
    **{f"party_{what}": partial(party, what) for what in ("maps", "moments", "candidates", "judgement")},
    "party_answer": partial(party, "moments"),  # with ratios, which the file of moments was written before
    "path": lambda: fitted("nystroem").path(etas=[0.0, 1.0, np.inf]),
    "loss_path": loss_path,
    "encoding": lambda: TableEncoder().fit(pay().data),
    "statistics": lambda: table_statistics(pay().data),
    "fair_kernel": fair_kernel,
    "transformer": transformer,
}
"""How to make the objects that predict nothing."""


def first(said):
    """Return the first answers as JSON-able values."""
    return {way: np.asarray(value)[:KEPT].tolist() for way, value in said.items()}


def main() -> None:
    folder = FOLDER / f"schema{_files.SCHEMA}"
    folder.mkdir(exist_ok=True)
    kept = folder / "answers.json"
    expected = json.loads(kept.read_text()) if kept.exists() else {}
    makers = {name: partial(fitted, name) for name in MODELS} | OTHERS
    makers |= {name: lambda loss=loss: loss for name, loss in LOSSES.items()}
    for name, make in makers.items():
        if (folder / f"{name}.scalefair").exists():
            continue
        scalefair.save(make(), folder / f"{name}.scalefair")
        if name in MODELS:
            expected[name] = first(answers(name, make()))
    if not (folder / "nystroem.moments").exists():
        fitted("nystroem").moments_.save(folder / "nystroem.moments")
    kept.write_text(json.dumps(expected, indent=0) + "\n")


if __name__ == "__main__":
    main()
