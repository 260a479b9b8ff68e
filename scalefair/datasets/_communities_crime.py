"""UCI Communities and Crime, with three ways to treat its missing values."""

from __future__ import annotations

from io import StringIO
from typing import TYPE_CHECKING, Literal

from scalefair.datasets._base import as_container, make_bunch, read_shipped
from scalefair.errors import check_choice, check_flag

if TYPE_CHECKING:
    import pandas as pd
    from sklearn.utils import Bunch

TARGET = "ViolentCrimesPerPop"
NOT_PREDICTIVE = ("state", "county", "community", "communityname", "fold")
RACE = ["racepctblack", "racePctWhite", "racePctAsian", "racePctHisp"]


def _read_crime(description: str) -> pd.DataFrame:
    """Return the 122 predictive columns and the target, named by the attribute lines."""
    import pandas as pd

    lines = description.splitlines()
    names = [line.split()[1] for line in lines if line.startswith("@attribute")]
    text = StringIO(read_shipped("communities.data"))
    table = pd.read_csv(text, names=names, na_values=["?"])
    return table.drop(columns=list(NOT_PREDICTIVE)).astype("float64")


def _without_missing(table: pd.DataFrame, missing: str) -> pd.DataFrame:
    if missing == "keep":
        return table
    if missing == "drop":
        return table.dropna(axis="columns")
    return table.dropna(axis="columns", thresh=len(table) // 2).dropna().reset_index(drop=True)


def load_communities_crime(
    *, missing: Literal["drop", "keep", "paper"] = "drop", as_frame: bool = True
) -> Bunch:
    """Load Communities and Crime: violent crimes per head in 1,994 communities of the USA.

    Numbers are census, police and crime data of 1990 to 1995, each scaled to [0, 1] by the
    donor. The five columns that identify a community or a fold are left out.

    Parameters
    ----------
    missing : {"drop", "keep", "paper"}, default="drop"
        22 police columns lack 1,675 values each, OtherPerCap lacks one.
        "drop" leaves out these 23 columns: 1,994 x 99. "keep" has NaN there: 1,994 x 122.
        "paper" leaves out the 22 columns and then the one row that lacks OtherPerCap:
        1,993 x 100, as in Li et al.
    as_frame : bool, default=True
        Data and sensitive features as pandas frames; if False as float64 arrays.

    Returns
    -------
    Bunch
        ``data`` (n, d); ``target`` float64 (n,), ViolentCrimesPerPop; ``sensitive_features``
        (n, 4), the shares of four races, which are also in ``data``; ``feature_names``,
        ``target_names`` and ``DESCR``.

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
    description = read_shipped("communities.names")
    table = _without_missing(_read_crime(description), missing)
    data = table.drop(columns=TARGET)
    return make_bunch(
        data=as_container(data, as_frame),
        target=table[TARGET].to_numpy(),
        sensitive_features=as_container(data[RACE], as_frame),
        feature_names=list(data.columns),
        target_names=[TARGET],
        DESCR=description,
    )
