"""Fair kernel classification."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import ClassifierMixin
from sklearn.utils._param_validation import HasMethods, StrOptions

from scalefair._config import current_config
from scalefair._typing import Array, Chunk
from scalefair.data import labels
from scalefair.estimators.base import names_of_columns
from scalefair.estimators.loss import LossBase
from scalefair.estimators.parameters import described
from scalefair.losses import ClassWeighted, Logistic, Multinomial, SumToZero
from scalefair.losses.base import LOSS_METHODS, check_row_targets
from scalefair.moments import Moments
from scalefair.moments.accumulate import Rows
from scalefair.solve.decisions.fit import FairDecisions


@described
class Classification(ClassifierMixin, LossBase):
    """A fair classification, whatever finds its ridge and weight."""

    _base_scale: ClassVar[str] = "log_odds"
    _decides_classes: ClassVar[bool] = True
    _squeezes: ClassVar[bool] = False
    _own_constraints: ClassVar[dict[str, Any]] = {
        "loss": [StrOptions({"logistic", "multinomial"}), HasMethods(LOSS_METHODS)]
    }

    def _learn(self, checked: Self, given: Chunk) -> dict[str, Any]:
        dtype = current_config().dtype
        coded = labels.code_labels(checked, given.x, given.y, given.weight)
        if coded is None:
            self._train(checked, given, dtype)  # raises ValueError: y is missing
            raise ValueError("y is None; give the class labels of the rows")
        labels.check_classes(coded)
        training = self._train(checked, replace(given, y=coded.y), dtype)
        loss = self._loss_of(coded.classes)
        as_targets = labels.OneHotLabels(coded.numbers, one_hot=loss.n_targets > 1)
        source = training.source.then(as_targets).then(partial(check_row_targets, loss))
        training = replace(training, source=source, sample=as_targets(training.sample), n_targets=loss.n_targets)
        known = names_of_columns(checked) | {"classes_": coded.classes}
        return self._learn_loss(training, loss, known)

    def _loss_of(self, classes: NDArray[Any]) -> Any:
        k, loss = len(classes), self.loss
        if isinstance(loss, str):
            return Logistic() if k == 2 and loss == "logistic" else Multinomial(k)
        if loss.n_targets != k and (k, loss.n_targets) != (2, 1):
            raise ValueError(
                f"y has {k} classes ({', '.join(map(repr, classes.tolist()[:5]))}, …), but the "
                f"{type(loss).__name__} loss is for {max(loss.n_targets, 2)}; use "
                "loss='multinomial', or merge classes"
            )
        return loss

    def _weighed(self, loss: Any, classes: NDArray[Any], moments: Moments) -> Any:
        """Return the loss with the weights of classes."""
        share = moments.mean("y")
        share = np.array([1 - share[0], share[0]]) if loss.n_targets == 1 else share
        return ClassWeighted(loss, labels.class_weights(self.class_weight, classes, share))

    def _solved_loss(self, loss: Any) -> Any:
        inner = loss.loss if isinstance(loss, ClassWeighted) else loss
        # Its scores are determined up to a constant only.
        return SumToZero(loss) if isinstance(inner, Multinomial) else loss

    def _gains(self, loss: Any) -> Callable[[Array], Array]:
        return partial(probabilities, loss)

    def _rows_again(self, given: Chunk) -> Rows:
        y, numbers = labels.known_labels(self, given.x, given.y, given.weight)
        rows = self._more_rows(replace(given, y=y), n_targets=1)
        as_targets = labels.OneHotLabels(numbers, one_hot=self.loss_.n_targets > 1)
        return replace(rows, source=rows.source.then(as_targets))

    def decision_function(self, X: Any) -> Any:
        """Return the scores f: log odds of the second class, or log probabilities up to a constant.

        @@ (k,) or (k, number of classes)
        """
        scores = self._scores(X)
        if len(self.classes_) > 2:
            return scores
        return scores[:, 0] if scores.shape[1] == 1 else scores[:, 1] - scores[:, 0]

    def predict_proba(self, X: Any) -> Any:
        """Return the probabilities of the classes, in the order of `classes_`.

        @@ (k, number of classes)
        """
        return self._scores(X, partial(probabilities, vars(self).get("loss_")))

    def predict_log_proba(self, X: Any) -> Any:
        """Return the logarithms of :meth:`predict_proba`; −∞ where a probability is 0."""
        with np.errstate(divide="ignore"):
            return np.log(self.predict_proba(X))

    def predict(self, X: Any) -> Any:
        """Return the most likely class of each row, or with `limit_on` the class decided for.

        @@ (k,)
        """
        if "decisions_" in vars(self):
            return labels.decoded(self._decided(X, FairDecisions.decide), self.classes_)
        loss = vars(self).get("loss_")
        codes = self._scores(X, lambda f: np.argmax(probabilities(loss, f), axis=1).astype(np.float64))
        return labels.decoded(codes, self.classes_)


@described
class FairKernelClassifier(Classification):
    """Kernel classification whose scores do not depend on sensitive attributes.

    Minimises 1/n ΣV(f(xᵢ), yᵢ) + α|β|² + η|Rᵀβ|² over f(x) = b + φ(x)ᵀβ, where V is the logistic loss, or the
    multinomial one for more than two classes, and |Rᵀβ|² measures the dependence between the scores f and the sensitive
    attributes. Newton's method: one pass over the rows for the moments and one for each of a few iterations.

    Parameters
    ----------
    @ *

    Attributes
    ----------
    @ classes_ coef_ loss_
    @ intercept_ alpha_ eta_ explained_share_ output_share_ mean_loss_ n_iter_ n_passes_ moments_
    @ n_samples_seen_ diagnostics_ decisions_

    Notes
    -----
    The penalty concerns parity of the scores in expectation: E[f | s] does not depend on s. Rates
    of decisions f > 0 still may; ``limit_on="decisions"`` limits these.

    Examples
    --------
    >>> from scalefair import FairKernelClassifier
    >>> from scalefair.datasets import make_toy1
    >>> toy = make_toy1(500, random_state=0)
    >>> high = toy.target > 0
    >>> model = FairKernelClassifier(unfairness=0.05, random_state=0)
    >>> model = model.fit(toy.data, high, sensitive_features=toy.sensitive_features)
    >>> round(model.explained_share_, 6) <= 0.05
    True
    >>> model.predict_proba(toy.data).shape
    (500, 2)
    """

    def __init__(
        self, *, loss: Any = "logistic", class_weight: Any = None, feature_map: Any = "nystroem",
        kernel: Any = "rbf", length_scale: Any = "median", n_components: int = 500,
        sensitive_kernel: Any = "auto", sensitive_length_scale: Any = "median",
        n_sensitive_components: int = 100, alpha: Any = "auto", eta: float | None = None,
        unfairness: float | None = None, limit_on: Any = "scores", penalty: str = "normalized",
        eps: float | None = None, base_estimator: Any = None, output_kernel: Any = None,
        fit_intercept: bool = True, sensitive_columns: Any = None, hide_sensitive: bool = False,
        tol: float = 1e-10, max_iter: int = 50, n_jobs: int | None = None, random_state: Any = None,
    ) -> None:  # fmt: skip
        self._store(locals())


def probabilities(loss: Any, f: Array) -> Array:
    """Return the probabilities of the classes from scores of shape (k, t)."""
    if f.shape[1] > 1:
        return np.asarray(loss.inverse_link(f))
    p = loss.inverse_link(f[:, 0])
    inner = loss.loss if isinstance(loss, ClassWeighted) else loss
    # 1 − p would lose the digits of a small probability.
    return np.column_stack([inner.inverse_link(-f[:, 0]) if isinstance(inner, Logistic) else 1 - p, p])
