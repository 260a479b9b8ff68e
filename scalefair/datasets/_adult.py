"""UCI Adult, raw or with the 123 binary features of LIBSVM's a9a."""

from __future__ import annotations

from io import StringIO
from typing import TYPE_CHECKING, Literal

from scalefair.datasets._a9a import LEVELS, MISSING, a9a_names, encode_a9a, levels
from scalefair.datasets._base import (
    as_container,
    check_choice,
    check_flag,
    make_bunch,
    read_shipped,
)

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


def _read(name: str) -> pd.DataFrame:
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
    table = pd.concat([_read(name) for name in FILES[subset]], ignore_index=True)
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
