"""Fair kernel classification."""

from __future__ import annotations

from copy import copy
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from sklearn.base import ClassifierMixin

from scalefair._typing import Array
from scalefair.data.sources import ChunkSource
from scalefair.estimators._data import TrainingData, open_batch
from scalefair.estimators._labels import (
    OneHotLabels,
    check_classes,
    class_weights,
    code_labels,
    decoded,
    known_labels,
)
from scalefair.estimators._newton import FairNewtonBase, check_row_targets
from scalefair.losses import ClassWeighted, Logistic, Multinomial, SumToZero


class FairKernelClassifier(ClassifierMixin, FairNewtonBase):
    """Kernel classification whose scores do not depend on sensitive attributes.

    Minimises 1/n ΣV(f(xᵢ), yᵢ) + α|β|² + η|Rᵀβ|² over f(x) = b + φ(x)ᵀβ, where V is the logistic
    loss, or the multinomial one for more than two classes, and |Rᵀβ|² measures the dependence
    between the scores f and the sensitive attributes. Newton's method: one pass over the rows for
    the moments and one for each of a few iterations, whatever their number and wherever they are.

    Parameters
    ----------
    loss : {"logistic", "multinomial"} or loss, default="logistic"
        V. "logistic" means the multinomial loss where there are more than two classes. An object of
        `scalefair.losses` is told classes as 0 and 1, or as one-hot rows.
    class_weight : None, "balanced" or dict, default=None
        How often each class counts in the loss; "balanced": all classes equally often. The penalty
        and the explained share are about the rows as they are.
    feature_map : {"nystroem", "fourier", "exact", "linear"} or feature map, default="nystroem"
        φ. "exact" is a Nyström map with every row as a landmark, for validation and small n.
    kernel, length_scale, n_components
        Of φ, as in :class:`FairKernelRidge`.
    sensitive_kernel, sensitive_length_scale, n_sensitive_components
        Of the sensitive attributes, as in :class:`FairKernelRidge`.
    alpha : float or dict, default=1e-3
        Ridge α per row: scikit-learn's `LogisticRegression` has C = 1/(2nα). A dict gives one per
        block of features, ``{"phi": 1e-3, "psi": 1e-6, "base": 1e-6}``.
    eta : float or None, default=None
        Weight of the penalty; 0 is an ordinary fit, ``inf`` the limit in which the penalised
        dependence is gone. None means 1 unless `unfairness` is given.
    unfairness : float in [0, 1] or None, default=None
        Limit on the explained share: the share of the variance of the scores f that the sensitive
        attributes explain. Finds eta itself, in about as many passes as a fit with a given eta.
    penalty : {"normalized", "hsic", "nocco", "nocco_output"}, default="normalized"
        What is punished, as in :class:`FairKernelRidge`.
    eps : float or None, default=None
        Regularisation ε of the normalised penalties. None: none for groups, 1e-6 for numbers, in
        units of their kernel or variance. The explained share is measured without it.
    base_estimator, base_sample, base_fit
        Another model, whose cross-fitted prediction joins the features, as in
        :class:`FairKernelRidge`: a classifier's log-odds, or a regressor's prediction.
    output_kernel : None, "rbf" or RBF, default=None
        None: the penalty sees the mean of the scores given s. "rbf": it sees all of their
        distribution, as in :class:`FairKernelRidge`; `unfairness` then limits `output_share_`.
    fit_intercept : bool, default=True
        Whether to fit b, which is not penalised.
    sensitive_columns : list of str or int, optional
        Columns of X that are the sensitive attributes, instead of `sensitive_features` in `fit`.
        The model sees them, and ψ(s) joins φ(x).
    hide_sensitive : bool, default=False
        Whether the model may not use those columns.
    tol : float, default=1e-10
        Decrease of the objective that is not worth a pass over the rows, relative to half
        the mean curvature of the loss at the start. The unit of f, log odds, is 1.
    max_iter : int, default=50
        Most Newton steps; a ConvergenceWarning says so if they are not enough.
    dtype, chunk_rows, n_jobs, random_state
        As in :class:`FairKernelRidge`.

    Attributes
    ----------
    classes_ : array of shape (k,)
        The labels, sorted.
    coef_ : array of shape (1, m) or (k, m)
        β; for more than two classes one row each, which add up to zero.
    intercept_ : array of shape (1,) or (k,)
        b.
    eta_ : float
        The weight that was used or found.
    explained_share_ : float
        Explained share of the scores on the training rows; NaN where there is none.
    output_share_ : float
        With `output_kernel` or ``penalty="nocco_output"`` only: share of the variance of the
        features of f, those of the kernel, that the sensitive attributes explain on the training
        rows.
    loss_ : loss
        V, class weights included.
    mean_loss_ : float
        1/n ΣV on the training rows.
    n_iter_, n_passes_ : int
        Newton steps, and passes over the rows besides that for the moments.
    moments_ : Moments
        Statistics of the training rows.
    n_samples_seen_ : int
        Rows of positive weight.
    diagnostics_ : Diagnostics
        Condition number, jitter, rank of the features, and the digits that rounding has left;
        fewer than four are warned of.

    Notes
    -----
    The penalty promises parity of the scores in expectation: E[f | s] does not depend on s. Rates
    of decisions f > 0 may; a threshold per group (fairlearn's `ThresholdOptimizer`) equalises them.

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
        self,
        *,
        loss: Any = "logistic",
        class_weight: Any = None,
        feature_map: Any = "nystroem",
        kernel: Any = "rbf",
        length_scale: Any = "median",
        n_components: int = 500,
        sensitive_kernel: Any = "auto",
        sensitive_length_scale: Any = "median",
        n_sensitive_components: int = 100,
        alpha: Any = 1e-3,
        eta: float | None = None,
        unfairness: float | None = None,
        penalty: str = "normalized",
        eps: float | None = None,
        base_estimator: Any = None,
        base_sample: int = 100_000,
        base_fit: str = "sample",
        output_kernel: Any = None,
        fit_intercept: bool = True,
        sensitive_columns: Any = None,
        hide_sensitive: bool = False,
        tol: float = 1e-10,
        max_iter: int = 50,
        dtype: str = "float64",
        chunk_rows: int | None = None,
        n_jobs: int | None = None,
        random_state: Any = None,
    ) -> None:
        self.loss = loss
        self.class_weight = class_weight
        self.feature_map = feature_map
        self.kernel = kernel
        self.length_scale = length_scale
        self.n_components = n_components
        self.sensitive_kernel = sensitive_kernel
        self.sensitive_length_scale = sensitive_length_scale
        self.n_sensitive_components = n_sensitive_components
        self.alpha = alpha
        self.eta = eta
        self.unfairness = unfairness
        self.penalty = penalty
        self.eps = eps
        self.base_estimator = base_estimator
        self.base_sample = base_sample
        self.base_fit = base_fit
        self.output_kernel = output_kernel
        self.fit_intercept = fit_intercept
        self.sensitive_columns = sensitive_columns
        self.hide_sensitive = hide_sensitive
        self.tol = tol
        self.max_iter = max_iter
        self.dtype = dtype
        self.chunk_rows = chunk_rows
        self.n_jobs = n_jobs
        self.random_state = random_state

    @property
    def _base_scale(self) -> str:
        return "log_odds"

    @property
    def _loss_names(self) -> tuple[str, ...]:
        return ("logistic", "multinomial")

    def _open(self, X: Any, y: Any, *beside: Any) -> TrainingData:
        coded = code_labels(self, X, y, beside[1])
        if coded is None:  # then what is wrong is said below
            return super()._open(X, y, *beside)
        check_classes(coded.classes)
        data = super()._open(X, coded.y, *beside)
        self.classes_, self._numbers = coded.classes, coded.numbers
        return data

    def _base_loss(self) -> Any:
        k = len(self.classes_)
        if not isinstance(self.loss, str):
            return self.loss
        return Logistic() if k == 2 and self.loss == "logistic" else Multinomial(k)

    def _prepare(self, data: TrainingData) -> TrainingData:
        loss, k = self._base_loss(), len(self.classes_)
        if loss.n_targets != k and (k, loss.n_targets) != (2, 1):
            raise ValueError(
                f"y has {k} classes ({', '.join(map(repr, self.classes_.tolist()[:5]))}, …), but "
                f"the {type(loss).__name__} loss is for {max(loss.n_targets, 2)}; use "
                "loss='multinomial', or merge classes"
            )
        as_targets = OneHotLabels(self._numbers, one_hot=loss.n_targets > 1)
        source = data.source.then(as_targets).then(partial(check_row_targets, loss))
        sample = as_targets(data.sample)
        return replace(data, source=source, sample=sample, n_targets=loss.n_targets)

    def _make_loss(self, data: TrainingData) -> Any:
        loss = self._base_loss()
        y = data.sample.y
        loss = loss.fitted(y[:, 0] if loss.n_targets == 1 else y, data.sample.weight)
        share = self.moments_.mean("y")
        share = np.array([1 - share[0], share[0]]) if loss.n_targets == 1 else share
        weights = class_weights(self.class_weight, self.classes_, share)
        return loss if weights is None else ClassWeighted(loss, weights)

    @property
    def _solved_loss(self) -> Any:
        inner = self.loss_.loss if isinstance(self.loss_, ClassWeighted) else self.loss_
        # Its scores are determined up to a constant only.
        return SumToZero(self.loss_) if isinstance(inner, Multinomial) else self.loss_

    def _all_scores(self, coef: Array, intercept: Array) -> tuple[Array, Array]:
        loss = self._solved_loss
        if not isinstance(loss, SumToZero):
            return coef, intercept
        return coef @ loss.contrasts.T, intercept @ loss.contrasts.T

    def _set_coef(self, coef: Array, intercept: Array) -> None:
        self.coef_, self.intercept_ = coef.T, intercept

    def _open_again(self, X: Any, y: Any, *beside: Any) -> ChunkSource:
        y, numbers = known_labels(self, X, y, beside[1])
        as_given = copy(self)
        as_given._n_targets = 1
        source = open_batch(as_given, X, y, *beside)
        return source.then(OneHotLabels(numbers, one_hot=self.loss_.n_targets > 1))

    def decision_function(self, X: Any) -> Any:
        """Return the scores f: log odds of the second class, or log probabilities up to a constant.

        Parameters
        ----------
        X : array, data frame, dask collection, scan or batches of shape (k, d)
            Inputs as in `fit`; the sensitive attributes are not needed.

        Returns
        -------
        array of shape (k,) or (k, number of classes)
            A dask array, not yet computed, for a dask collection.
        """
        scores = self._scores(X)
        if len(self.classes_) > 2:
            return scores
        return scores[:, 0] if scores.shape[1] == 1 else scores[:, 1] - scores[:, 0]

    def predict_proba(self, X: Any) -> Any:
        """Return the probabilities of the classes, in the order of `classes_`.

        Parameters
        ----------
        X : array, data frame, dask collection, scan or batches of shape (k, d)
            Inputs as in `fit`; the sensitive attributes are not needed.

        Returns
        -------
        array of shape (k, number of classes)
            A dask array, not yet computed, for a dask collection.
        """
        return self._predictions(X, partial(_probabilities, getattr(self, "loss_", None)))

    def predict_log_proba(self, X: Any) -> Any:
        """Return the logarithms of :meth:`predict_proba`; −∞ where a probability is 0."""
        with np.errstate(divide="ignore"):
            return np.log(self.predict_proba(X))

    def predict(self, X: Any) -> Any:
        """Return the most likely class of each row.

        Parameters
        ----------
        X : array, data frame, dask collection, scan or batches of shape (k, d)
            Inputs as in `fit`; the sensitive attributes are not needed.

        Returns
        -------
        array of shape (k,)
            A dask array, not yet computed, for a dask collection.
        """
        codes = self._predictions(X, partial(_most_likely, getattr(self, "loss_", None)))
        return decoded(codes, self.classes_)


def _probabilities(loss: Any, f: Array) -> Array:
    if f.shape[1] > 1:
        return np.asarray(loss.inverse_link(f))
    p = loss.inverse_link(f[:, 0])
    inner = loss.loss if isinstance(loss, ClassWeighted) else loss
    # 1 − p would lose the digits of a small probability.
    return np.column_stack(
        [inner.inverse_link(-f[:, 0]) if isinstance(inner, Logistic) else 1 - p, p]
    )


def _most_likely(loss: Any, f: Array) -> Array:
    return np.asarray(np.argmax(_probabilities(loss, f), axis=1), dtype=np.float64)
