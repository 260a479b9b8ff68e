"""The rules of LIBSVM's a9a: 123 binary columns made of the 14 columns of Adult.

Every column of Adult becomes one block of bits. A category has one bit a level, in the order of
adult.names; a number has one bit a bin, bins being fifths of the training rows as far as ties allow
(two bins for the capital columns: none, some). A missing category sets no bit of its block.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from scalefair._typing import Array

if TYPE_CHECKING:
    import pandas as pd

MISSING = "?"

LEVELS = {
    "workclass": "Private Self-emp-not-inc Self-emp-inc Federal-gov Local-gov State-gov "
    "Without-pay Never-worked",
    "education": "Bachelors Some-college 11th HS-grad Prof-school Assoc-acdm Assoc-voc 9th 7th-8th "
    "12th Masters 1st-4th 10th Doctorate 5th-6th Preschool",
    "marital-status": "Married-civ-spouse Divorced Never-married Separated Widowed "
    "Married-spouse-absent Married-AF-spouse",
    "occupation": "Tech-support Craft-repair Other-service Sales Exec-managerial Prof-specialty "
    "Handlers-cleaners Machine-op-inspct Adm-clerical Farming-fishing Transport-moving "
    "Priv-house-serv Protective-serv Armed-Forces",
    "relationship": "Wife Own-child Husband Not-in-family Other-relative Unmarried",
    "race": "White Asian-Pac-Islander Amer-Indian-Eskimo Other Black",
    "sex": "Female Male",
    "native-country": "United-States Cambodia England Puerto-Rico Canada Germany "
    "Outlying-US(Guam-USVI-etc) India Japan Greece South China Cuba Iran Honduras Philippines "
    "Italy Poland Jamaica Vietnam Mexico Portugal Ireland France Dominican-Republic Laos Ecuador "
    "Taiwan Haiti Columbia Hungary Guatemala Nicaragua Scotland Thailand Yugoslavia El-Salvador "
    "Trinadad&Tobago Peru Hong Holand-Netherlands",
}
"""Levels of every category, without the missing one, as one string each."""

LOWER_EDGES = {
    "age": (26, 33, 41, 50),
    "fnlwgt": (106648, 158662, 196338, 259873),
    "education-num": (9, 10, 11, 13),
    "capital-gain": (1,),
    "capital-loss": (1,),
    "hours-per-week": (35, 40, 41, 48),
}
"""Least value of every bin but the first, which has none."""


def levels(column: str) -> list[str]:
    """Return the levels of a category, the missing one left out."""
    return LEVELS[column].split()


def _bin_names(column: str) -> list[str]:
    edges = LOWER_EDGES[column]
    lower = ["", *map(str, edges)]
    upper = [*(str(edge - 1) for edge in edges), ""]
    return [
        f"{column}={a}" if a == b else f"{column}={a}..{b}"
        for a, b in zip(lower, upper, strict=True)
    ]


def a9a_names(columns: list[str]) -> list[str]:
    """Return the names of the bits, such as ``age=26..32`` and ``sex=Female``."""
    names: list[str] = []
    for column in columns:
        if column in LOWER_EDGES:
            names += _bin_names(column)
        else:
            names += [f"{column}={level}" for level in levels(column)]
    return names


def _bits(column: pd.Series) -> NDArray[np.bool_]:
    name = str(column.name)
    codes: NDArray[np.integer[Any]]
    if name in LOWER_EDGES:
        edges = LOWER_EDGES[name]
        codes, n_bits = np.searchsorted(edges, column.to_numpy(), side="right"), len(edges) + 1
    else:
        # The missing level is the last one, so its code lies beyond the bits of the block.
        codes, n_bits = column.cat.codes.to_numpy(), len(levels(name))
    bits: NDArray[np.bool_] = codes[:, None] == np.arange(n_bits)
    return bits


def encode_a9a(frame: pd.DataFrame) -> Array:
    """Return the bits of all columns of the raw frame, float64 of shape (n, 123)."""
    return np.hstack([_bits(frame[name]) for name in frame.columns]).astype(np.float64)
