"""Whole models with something changed in them, and the right sum: no crash, whoever uses them."""

from __future__ import annotations

import contextlib
import copy
from functools import cache

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

import scalefair
from scalefair import _files
from tests.fuzz import cases
from tests.golden.write import FOLDER
from tests.models import groups, rows, target

NAMES = [
    "fourier",
    "laplace",
    "seen",
    "controlled",
    "bent",
    "three",
    "process",
    "exact",
    "trees",
    "trees",
    "boosted",
]  # trees twice: most of their places are arrays
VALUES = st.sampled_from(
    [
        None,
        True,
        -1,
        0,
        1,
        3,
        13,
        10**6,
        2**63,
        10**30,
        0.5,
        np.nan,
        np.inf,
        -1e308,
        "",
        "rbf",
        {"list": []},
        {"dict": []},
        {"number": "<i8"},
        {"object": 0},
        {"object": 3},
        {"array": "0"},
    ]
)
CHANGES = [
    lambda a: a[:-1],
    lambda a: a[:0],
    lambda a: a.T,
    lambda a: a[..., :1],
    lambda a: a[..., None],
    lambda a: np.concatenate([a, a]),
    lambda a: a.astype("i8"),
    lambda a: a.astype("f2"),
    lambda a: np.full(a.shape, np.nan),
    lambda a: np.full_like(a, 100),
    lambda a: np.zeros(3),
]


@cache
def kept(name):
    return _files.read(FOLDER / f"schema{_files.SCHEMA}" / f"{name}.scalefair", "model")


def places(state):
    """Every place in the JSON: what holds it, and its name there."""
    for key in state if isinstance(state, dict) else range(len(state)):
        yield state, key
        if isinstance(state[key], dict | list):
            yield from places(state[key])


@st.composite
def changed_models(draw):
    name = draw(st.sampled_from(NAMES))
    arrays, values = copy.deepcopy(kept(name))
    for _ in range(draw(st.integers(1, 2))):
        if draw(st.booleans()):
            number = draw(st.sampled_from(sorted(arrays)))
            with contextlib.suppress(ValueError, IndexError):  # of an array without rows
                arrays[number] = draw(st.sampled_from(CHANGES))(arrays[number])
        else:
            everywhere = list(places(values))
            holder, key = everywhere[draw(st.integers(0, len(everywhere) - 1))]
            holder[key] = draw(VALUES)
    return name, arrays, values


@cases(40)
@given(changed_models())
def test_a_changed_model_is_refused_or_does_no_harm(tmp_path_factory, changed):
    """`load` says so with a ValueError; later on any error of Python's will do."""
    name, arrays, values = changed
    path = tmp_path_factory.getbasetemp() / "changed"
    _files.write(path, "model", arrays, values)
    try:
        model = scalefair.load(path)
    except ValueError:
        return
    with contextlib.suppress(Exception), np.errstate(all="ignore"):
        model.predict(rows(name)[:5])
        model.partial_fit(rows(name), target(name), sensitive_features=groups())
