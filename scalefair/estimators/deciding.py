"""Estimators with a limit on decisions: the rule is learnt after the fit, by one pass."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, ClassVar

import numpy as np
from sklearn.utils.validation import check_is_fitted

from scalefair._typing import Array
from scalefair.data.folds import ALL_ROWS, Folds
from scalefair.errors import check_weight_or_limit
from scalefair.estimators.base import FairEstimator
from scalefair.estimators.decisions import (
    Decisions,
    FairDecisions,
    Limited,
    learn_decisions,
    propensities,
)
from scalefair.features.design import Finished
from scalefair.features.rows import open_predict_rows
from scalefair.moments.accumulate import Rows
from scalefair.solve.newton.model import Problem
from scalefair.solve.ridge.system import Solution


class Deciding(FairEstimator):
    """A fair estimator whose limit may be one on decisions."""

    decisions_: FairDecisions
    loss_: Any
    _decides_classes: ClassVar[bool] = False

    @property
    def _asked(self) -> Decisions | None:
        """Which decisions are limited; None: the scores are."""
        return Decisions.of(self.limit_on, self.unfairness, classes=self._decides_classes)

    def _weight_or_limit(self) -> tuple[float, float | None]:
        if self._asked is None:
            return super()._weight_or_limit()
        return check_weight_or_limit(0.0 if self.eta is None else self.eta, None)

    def _is_ordinary(self) -> bool:
        return self._asked is None and super()._is_ordinary()

    @abstractmethod
    def _gains(self, loss: Any) -> Callable[[Array], Array]:
        """Return what turns scores into probabilities of classes, or into predictions (n, 1)."""

    def _decisions(  # noqa: PLR0917
        self, rows: Rows, problems: Sequence[Problem], fits: Callable[[], Sequence[Solution]],
        alpha: float, known: dict[str, Any], folds: Folds = ALL_ROWS,
    ) -> dict[str, Any]:  # fmt: skip
        """Return `decisions_` of fits without each fold, and of all rows last; or of these."""
        if self._asked is None:
            return {}
        design, n_rows = rows.design, problems[-1].system.moments.n_rows
        pairs = [
            (fit, propensities(design, problem.system, alpha))
            for problem, fit in zip(problems, fits(), strict=True)
        ]
        labels = known.get("classes_", np.array([False, True]))
        limited = Limited(self._asked, self.unfairness, self._gains(known["loss_"]), labels)
        return {"decisions_": learn_decisions(rows.source, n_rows, design, pairs, limited, folds)}

    @abstractmethod
    def _scores_of(self, loss: Any, coef: Array, intercept: Array) -> Solution:
        """Return the scores of the loss, from those that were solved for."""

    def _decided(self, X: Any, finish: Callable[..., Array]) -> Any:
        """Return finish(decisions, gains, [f, ê]) of the rows of X."""
        check_is_fitted(self)
        if "decisions_" not in vars(self):
            raise ValueError(
                "nothing is decided; fit with limit_on=Decisions(threshold=...) or top=..."
            )
        decisions, design = self.decisions_, self._design
        start = decisions.predictor(design, self._raw_coef, self.intercept_)
        made = Finished(start, partial(finish, decisions, self._gains(self.loss_)))
        return design.predict(open_predict_rows(self, X, design), made)


class DecidesNumbers(Deciding):
    """A regression that decides by a threshold, or by ranks."""

    def _gains(self, loss: Any) -> Callable[[Array], Array]:
        return partial(_decided, loss)

    def decide(self, X: Any) -> Any:
        """Return the decision of each row: whether it exceeds the threshold, or is at the top.

        Only with `limit_on`. Rates of the groups differ by at most `unfairness`.
        """
        return self._decided(X, FairDecisions.decide) > 0

    def rank_scores(self, X: Any) -> Any:
        """Return what rows are ranked by: groups then have the same share among the top.

        Only with `limit_on`. Positive where :meth:`decide` says yes, unless that is randomised.
        """
        return self._decided(X, FairDecisions.lead)


def _decided(loss: Any, f: Array) -> Array:
    return np.asarray(loss.inverse_link(f[:, 0]))[:, None]
