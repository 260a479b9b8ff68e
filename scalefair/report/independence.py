"""Tests of independence: what equal means do not tell."""

from __future__ import annotations

import math
import warnings
from typing import TYPE_CHECKING, Any

from scalefair._typing import Array
from scalefair.auditing import audit
from scalefair.data import frames
from scalefair.errors import CannotJudgeError

if TYPE_CHECKING:
    import pandas as pd

TITLES = {
    "hsic_pvalue": "HSIC test of independence, p",
    "conditional_hsic_pvalue": "The same given the target (equalised odds), p",
    "normalized_hsic": "Normalised HSIC, 0 to 1",
    "distance_correlation": "Distance correlation, 0 to 1",
    "mutual_information": "Mutual information, nats",
}
"""Measures of the table; 0 means independent for all but p."""

ALONE = ("hsic_pvalue", "normalized_hsic")
"""Those that are shown for each attribute alone, where there are several."""

LEVEL = 0.05


def independence(before: Array, after: Array, sensitive: Any, y: Array) -> tuple[Any, str]:
    """Test whether predictions depend on the sensitive attributes, alone and together.

    Parameters
    ----------
    before, after, y : arrays of shape (n,)
        Predictions of the two models, and the target.
    sensitive : frame of shape (n, p)
        Attributes; a missing value is a level of its own.

    Returns
    -------
    table : DataFrame or None
        Columns attribute, measure, before, after and rows (used).
    reason : str
        Why there is no table.
    """
    models = {"before": before, "after": after}
    options: dict[str, Any] = {"measures": _measures_for(y), "missing": "group"}
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)
            table = audit(models, sensitive_features=sensitive, y_true=y, **options).table
    except CannotJudgeError as error:
        return None, str(error)
    return _beside(table[table["measure"].isin(TITLES)]), ""


def _measures_for(y: Array) -> list[str]:
    varies, enough = y.min() < y.max(), len(y) >= 20
    skipped = set() if varies and enough else {"conditional_hsic_pvalue"}
    if not enough:
        skipped |= {"hsic_pvalue", "mutual_information"}
    return [name for name in TITLES if name not in skipped]


def _beside(table: pd.DataFrame) -> pd.DataFrame:
    """Return the two models side by side; what is shown of single attributes is less."""
    attributes = list(dict.fromkeys(table["attribute"]))
    rows = []
    for attribute in reversed(attributes):  # all together first
        for measure in TITLES:
            pair = table[(table["attribute"] == attribute) & (table["measure"] == measure)]
            if pair.empty or (attribute != attributes[-1] and measure not in ALONE):
                continue
            by = pair.set_index("model")
            values = {name: float(by.loc[name, "value"]) for name in ("before", "after")}
            n = int(by["rows"].iloc[0])
            rows.append({"attribute": attribute, "measure": measure, **values, "rows": n})
    return frames.make_frame({name: [row[name] for row in rows] for name in rows[0]})


def verdict(table: pd.DataFrame, names: str) -> str:
    """Return in words what the test of the chosen model finds."""
    tested = table[table["measure"] == "hsic_pvalue"]
    p = math.nan if tested.empty else float(tested["after"].iloc[0])
    if math.isnan(p):
        return ""
    if p >= LEVEL:
        return (
            f"The test finds no evidence that the predictions of the chosen model depend on "
            f"{names} ({pvalue(p)})."
        )
    return (
        f"The predictions of the chosen model still depend on {names} in some way ({pvalue(p)}): "
        "the penalty equalises means, and equal means are not independence. With many rows the "
        "test also finds dependence that hardly matters, so read the measures beside it."
    )


def pvalue(p: float) -> str:
    """Write a p-value."""
    return "p < 0.001" if p < 0.001 else f"p = {p:.3f}"
