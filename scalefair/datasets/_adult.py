"""UCI Adult, raw or with the 123 binary features of LIBSVM's a9a.

For these every column becomes one block of bits. A category has one bit a level, in the order of
adult.names; a number has one bit a bin, bins being fifths of the training rows as far as ties allow
(two bins for the capital columns: none, some). A missing category sets no bit of its block.
"""

from __future__ import annotations

from io import StringIO
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from scalefair._typing import Array
from scalefair.datasets._base import as_container, make_bunch, read_shipped
from scalefair.errors import check_choice, check_flag

if TYPE_CHECKING:
    import pandas as pd
    from sklearn.utils import Bunch

COLUMNS = [
    *("age", "workclass", "fnlwgt", "education", "education-num", "marital-status", "occupation"),
    *("relationship", "race", "sex", "capital-gain", "capital-loss", "hours-per-week"),
    "native-country",
]
WITH_MISSING = ("workclass", "occupation", "native-country")
FILES = {"train": ("adult.data",), "test": ("adult.test",), "all": ("adult.data", "adult.test")}
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


def _read_adult(name: str) -> pd.DataFrame:
    """Return one shipped file: the 14 columns and income; the test file opens with a comment."""
    import pandas as pd

    kinds: dict[str, object] = dict.fromkeys([*COLUMNS, "income"], "int64")
    kinds["income"] = "object"
    for column in LEVELS:
        missing = [MISSING] if column in WITH_MISSING else []
        kinds[column] = pd.CategoricalDtype(levels(column) + missing)
    return pd.read_csv(
        StringIO(read_shipped(name)),
        names=[*COLUMNS, "income"],
        dtype=kinds,  # type: ignore[arg-type]
        comment="|",
        skipinitialspace=True,
        na_filter=False,
    )


def load_adult(
    *,
    subset: Literal["train", "test", "all"] = "train",
    encoding: Literal["raw", "a9a"] = "raw",
    as_frame: bool = True,
) -> Bunch:
    """Load the Adult census data of 1994: who earned more than 50,000 dollars a year.

    Parameters
    ----------
    subset : {"train", "test", "all"}, default="train"
        The 32,561 training rows, the 16,281 test rows, or one after the other (48,842).
    encoding : {"raw", "a9a"}, default="raw"
        "raw": the 14 columns, whole numbers and categories. A missing value is the level ``"?"``
        of workclass, occupation and native-country; no row is left out. All subsets have the same
        levels. "a9a": the 123 binary features of LIBSVM's a9a and a9a.t, row by row and column by
        column, computed from the raw table.
    as_frame : bool, default=True
        Data and sensitive features as pandas frames; if False as arrays, of objects for "raw".

    Returns
    -------
    Bunch
        ``data`` (n, 14) or float64 (n, 123); ``target`` int64 (n,), 1 for an income above 50,000
        dollars (24 % of the rows); ``sensitive_features`` (n, 2), sex and race, which are also in
        ``data``; ``feature_names``, ``target_names`` and ``DESCR``.

    References
    ----------
    B. Becker and R. Kohavi (1996). Adult. UCI Machine Learning Repository.
    https://doi.org/10.24432/C5XW20 (CC BY 4.0)

    J. Platt (1998). Fast training of support vector machines using sequential minimal
    optimization: the binary features, which LIBSVM's collection calls a9a.

    Examples
    --------
    >>> from scalefair.datasets import load_adult
    >>> adult = load_adult(subset="test")
    >>> adult.data.shape, int(adult.target.sum())
    ((16281, 14), 3846)
    >>> list(adult.sensitive_features)
    ['sex', 'race']
    >>> load_adult(subset="test", encoding="a9a", as_frame=False).data.shape
    (16281, 123)
    """
    import pandas as pd

    check_choice("subset", subset, tuple(FILES))
    check_choice("encoding", encoding, ("raw", "a9a"))
    check_flag("as_frame", as_frame)
    table = pd.concat([_read_adult(name) for name in FILES[subset]], ignore_index=True)
    raw = table[COLUMNS]
    data = raw
    if encoding == "a9a":
        data = pd.DataFrame(encode_a9a(raw), columns=a9a_names(COLUMNS))
    return make_bunch(
        data=as_container(data, as_frame),
        target=table["income"].str.startswith(">50K").to_numpy().astype("int64"),
        sensitive_features=as_container(raw[["sex", "race"]], as_frame),
        feature_names=list(data.columns),
        target_names=["<=50K", ">50K"],
        DESCR=read_shipped("adult.names"),
    )
