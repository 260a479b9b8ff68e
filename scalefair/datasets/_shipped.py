"""Two real tables that are shipped: UCI Adult, and UCI Communities and Crime.

The a9a encoding of Adult turns every column into one block of bits. A category has one bit a level,
in the order of adult.names; a number has one bit a bin, bins being fifths of the training rows as
far as ties allow (two bins for the capital columns: none, some). A missing category sets no bit.
"""

from __future__ import annotations

import gzip
from importlib.resources import files
from io import StringIO
from typing import Any, Literal

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.utils import Bunch

from scalefair.errors import check_choice, check_flag

COLUMNS = [
    *("age", "workclass", "fnlwgt", "education", "education-num", "marital-status", "occupation"),
    *("relationship", "race", "sex", "capital-gain", "capital-loss", "hours-per-week"),
    "native-country",
]
WITH_MISSING = ("workclass", "occupation", "native-country")
FILES = {"train": ("adult.data",), "test": ("adult.test",), "all": ("adult.data", "adult.test")}
MISSING = "?"

LEVELS = {
    "workclass": "Private Self-emp-not-inc Self-emp-inc Federal-gov Local-gov State-gov Without-pay Never-worked",
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

TARGET = "ViolentCrimesPerPop"
NOT_PREDICTIVE = ["state", "county", "community", "communityname", "fold"]
RACE = ["racepctblack", "racePctWhite", "racePctAsian", "racePctHisp"]


def _read_shipped(name: str) -> str:
    """Return the text of the shipped file `name`, given without its .gz."""
    return gzip.decompress((files(__package__) / "data" / f"{name}.gz").read_bytes()).decode()


def _bit_names(column: str) -> list[str]:
    """Return the names of the bits of a column, such as ``age=26..32`` or ``sex=Female``."""
    if column not in LOWER_EDGES:
        return [f"{column}={level}" for level in LEVELS[column].split()]
    edges = LOWER_EDGES[column]
    ends = zip(["", *edges], [*(edge - 1 for edge in edges), ""], strict=True)
    return [f"{column}={a}" if a == b else f"{column}={a}..{b}" for a, b in ends]


def _bits(column: pd.Series) -> NDArray[np.bool_]:
    name = str(column.name)
    codes: NDArray[np.integer[Any]]
    if name in LOWER_EDGES:
        codes = np.searchsorted(LOWER_EDGES[name], column.to_numpy(), side="right")
    else:
        # The missing level is the last one, so its code lies beyond the bits of the block.
        codes = column.cat.codes.to_numpy()
    bits: NDArray[np.bool_] = codes[:, None] == np.arange(len(_bit_names(name)))
    return bits


def _read_adult(name: str) -> pd.DataFrame:
    """Return one shipped file: the 14 columns and income; the test file opens with a comment."""
    kinds: dict[str, object] = dict.fromkeys([*COLUMNS, "income"], "int64")
    kinds["income"] = "object"
    for column, levels in LEVELS.items():
        missing = [MISSING] if column in WITH_MISSING else []
        kinds[column] = pd.CategoricalDtype(levels.split() + missing)
    return pd.read_csv(
        StringIO(_read_shipped(name)),
        names=[*COLUMNS, "income"],
        dtype=kinds,  # type: ignore[arg-type]
        comment="|",
        skipinitialspace=True,
        na_filter=False,
    )


def load_adult(
    *, subset: Literal["train", "test", "all"] = "train", encoding: Literal["raw", "a9a"] = "raw", as_frame: bool = True
) -> Bunch:
    """Load the Adult census data of 1994: who earned more than 50,000 dollars a year.

    Parameters
    ----------
    subset : {"train", "test", "all"}, default="train"
        The 32,561 training rows, the 16,281 test rows, or one after the other (48,842).
    encoding : {"raw", "a9a"}, default="raw"
        "raw": the 14 columns, whole numbers and categories. A missing value is the level ``"?"`` of workclass,
        occupation and native-country; no row is left out. All subsets have the same levels. "a9a": the 123 binary
        features of LIBSVM's a9a and a9a.t, row by row and column by column, computed from the raw table.
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
    check_choice("subset", subset, tuple(FILES))
    check_choice("encoding", encoding, ("raw", "a9a"))
    check_flag("as_frame", as_frame)
    table = pd.concat([_read_adult(name) for name in FILES[subset]], ignore_index=True)
    data = raw = table[COLUMNS]
    sensitive = raw[["sex", "race"]]
    if encoding == "a9a":
        bits = np.hstack([_bits(raw[name]) for name in raw]).astype(np.float64)
        data = pd.DataFrame(bits, columns=[bit for name in raw for bit in _bit_names(str(name))])
    target = table["income"].str.startswith(">50K").to_numpy().astype("int64")
    return _bunch(data, target, sensitive, ["<=50K", ">50K"], _read_shipped("adult.names"), as_frame=as_frame)


def _bunch(data: Any, target: Any, sensitive: Any, names: list[str], text: str, *, as_frame: bool) -> Bunch:
    tables = {"data": data, "sensitive_features": sensitive}
    tables = tables if as_frame else {name: table.to_numpy() for name, table in tables.items()}
    return Bunch(**tables, target=target, feature_names=list(data.columns), target_names=names, DESCR=text)


def load_communities_crime(*, missing: Literal["drop", "keep", "paper"] = "drop", as_frame: bool = True) -> Bunch:
    """Load Communities and Crime: violent crimes per head in 1,994 communities of the USA.

    Numbers are census, police and crime data of 1990 to 1995, each scaled to [0, 1] by the
    donor. The five columns that identify a community or a fold are left out.

    Parameters
    ----------
    missing : {"drop", "keep", "paper"}, default="drop"
        22 police columns lack 1,675 values each, OtherPerCap lacks one. "drop" leaves out these 23 columns: 1,994 x 99.
        "keep" has NaN there: 1,994 x 122. "paper" leaves out the 22 columns and then the one row that lacks
        OtherPerCap: 1,993 x 100, as in Li et al.
    as_frame : bool, default=True
        Data and sensitive features as pandas frames; if False as float64 arrays.

    Returns
    -------
    Bunch
        ``data`` (n, d); ``target`` float64 (n,), ViolentCrimesPerPop; ``sensitive_features`` (n, 4), the proportions of
        four races, which are also in ``data``; ``feature_names``, ``target_names`` and ``DESCR``.

    References
    ----------
    M. Redmond (2002). Communities and Crime. UCI Machine Learning Repository.
    https://doi.org/10.24432/C53W3X (CC BY 4.0)

    Z. Li, A. Pérez-Suay, G. Camps-Valls and D. Sejdinovic. Kernel dependence regularizers and
    Gaussian processes with applications to algorithmic fairness.

    Examples
    --------
    >>> from scalefair.datasets import load_communities_crime
    >>> load_communities_crime().data.shape
    (1994, 99)
    >>> crime = load_communities_crime(missing="paper")
    >>> crime.data.shape, round(float(crime.target.mean()), 3)
    ((1993, 100), 0.238)
    >>> list(crime.sensitive_features)
    ['racepctblack', 'racePctWhite', 'racePctAsian', 'racePctHisp']
    """
    check_choice("missing", missing, ("drop", "keep", "paper"))
    check_flag("as_frame", as_frame)
    description = _read_shipped("communities.names")
    lines = description.splitlines()
    names = [line.split()[1] for line in lines if line.startswith("@attribute")]
    text = StringIO(_read_shipped("communities.data"))
    table = pd.read_csv(text, names=names, na_values=["?"])
    table = table.drop(columns=NOT_PREDICTIVE).astype("float64")
    if missing == "drop":
        table = table.dropna(axis="columns")
    elif missing == "paper":
        table = table.dropna(axis="columns", thresh=len(table) // 2).dropna()
    table = table.reset_index(drop=True)
    data, sensitive = table.drop(columns=TARGET), table[RACE]
    return _bunch(data, table[TARGET].to_numpy(), sensitive, [TARGET], description, as_frame=as_frame)
