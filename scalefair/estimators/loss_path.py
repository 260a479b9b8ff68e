"""The accuracy–fairness frontier of a general loss."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from scalefair import _frames
from scalefair._checks import check_number
from scalefair._typing import Array
from scalefair.estimators._notebook import path_html

if TYPE_CHECKING:
    import pandas as pd


class LossPath:
    """Fits of one model at increasing weights of the penalty.

    Parameters
    ----------
    estimators : list of fitted estimators
        One for each eta, in increasing order.

    Attributes
    ----------
    table : DataFrame
        One row per eta with the mean loss, the explained share of the scores, and the passes over
        the rows that the fit took.
    """

    etas: Array

    def __init__(self, estimators: Sequence[Any]) -> None:
        self._estimators = list(estimators)
        self.etas = np.array([estimator.eta_ for estimator in estimators])

    @cached_property
    def table(self) -> pd.DataFrame:
        """The path as a data frame."""
        fits = self._estimators
        return _frames.make_frame(
            {
                "eta": self.etas,
                "loss": np.array([fit.mean_loss_ for fit in fits]),
                "explained_share": np.array([fit.explained_share_ for fit in fits]),
                "passes": np.array([fit.n_passes_ for fit in fits]),
            }
        )

    def front(self) -> pd.DataFrame:
        """Return the rows that no other row beats in both loss and share, by increasing share."""
        rows = self.table.sort_values(["explained_share", "loss"], kind="stable")
        best = rows["loss"].cummin().shift(fill_value=np.inf)
        return rows[rows["loss"] < best].reset_index(drop=True)

    def select(self, unfairness: float) -> Any:
        """Return the fitted estimator of least loss whose share is at most `unfairness`."""
        check_number("unfairness", unfairness, 0.0, 1.0)
        share = self.table["explained_share"].to_numpy()
        allowed = np.flatnonzero(share <= unfairness)
        if not len(allowed):
            raise ValueError(
                f"unfairness={unfairness!r}: no point of the path has a share that small, the "
                f"least is {np.nanmin(share):.4g}; use a finer or longer grid of etas"
            )
        loss = self.table["loss"].to_numpy()[allowed]
        return self._estimators[int(allowed[np.argmin(loss)])]

    def estimator(self, eta: float) -> Any:
        """Return the fitted estimator at an eta of the path."""
        found = np.flatnonzero(self.etas == eta)
        if not len(found):
            raise ValueError(f"eta={eta!r} is not on the path; its etas are {self.etas.tolist()}")
        return self._estimators[int(found[0])]

    def plot(self, ax: Any = None) -> Any:
        """Draw the path; return its display."""
        from scalefair.plots import FairPathDisplay

        return FairPathDisplay(self.table, self.front()).plot(ax=ax)

    def __repr__(self) -> str:
        return f"<LossPath: {len(self.etas)} etas>"

    def _repr_html_(self) -> str:
        return path_html(self)
