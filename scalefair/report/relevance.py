"""What a Gaussian process sees of each input (ARD), without and with the penalty."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from scalefair import _frames

if TYPE_CHECKING:
    import pandas as pd


def relevance_table(baseline: Any, estimator: Any) -> pd.DataFrame | None:
    """Return length scales and relevance by input, the most relevant of the fair model first.

    Returns
    -------
    DataFrame or None
        Columns input, before and after (length scales), before_relevance and after_relevance:
        (sd/θ)². None where the model is no Gaussian process, or has one length scale for all.
    """
    if not hasattr(estimator, "relevance") or not hasattr(baseline, "relevance"):
        return None
    try:
        fair, plain = estimator.relevance(), baseline.relevance()
    except ValueError:  # a kernel whose length scales are not those of inputs
        return None
    if len(fair) > 1 and fair["length_scale"].nunique() == 1:
        return None
    fair, plain = fair.set_index("input"), plain.set_index("input")
    order = fair["relevance"].sort_values(ascending=False, kind="stable").index
    columns: dict[str, Any] = {"input": [str(name) for name in order]}
    for name, table in (("before", plain), ("after", fair)):
        columns[name] = table.loc[order, "length_scale"].to_numpy()
        columns[f"{name}_relevance"] = table.loc[order, "relevance"].to_numpy()
    return _frames.make_frame(columns)
