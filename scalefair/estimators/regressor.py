"""Fair kernel regression with other losses than the squared one."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from sklearn.base import RegressorMixin
from sklearn.utils.validation import column_or_1d

from scalefair._typing import Array
from scalefair.data import is_stream
from scalefair.estimators._data import TrainingData
from scalefair.estimators._newton import FairNewtonBase, check_row_targets
from scalefair.losses import LOSSES, Gamma, Loss, Poisson


class FairKernelRegressor(RegressorMixin, FairNewtonBase):
    """Kernel regression with any loss, whose scores do not depend on sensitive attributes.

    Minimises 1/n ΣV(f(xᵢ), yᵢ) + α|β|² + η|Rᵀβ|² over f(x) = b + φ(x)ᵀβ, where |Rᵀβ|² measures the
    dependence between the scores f and the sensitive attributes. Newton's method: one pass over
    the rows for the moments and one for each of a few iterations. For the squared loss
    :class:`FairKernelRidge` has a closed form.

    Parameters
    ----------
    loss : str or loss, default="huber"
        V. "poisson" and "gamma": counts and positive amounts, with f the log of their mean.
        "huber": squared, but robust. "quantile": the median. "squared": as
        :class:`FairKernelRidge`. Or an object of `scalefair.losses`, such as
        ``Quantile(0.9)`` or ``Huber(delta=2.0)``, or of a subclass of `Loss`.
    feature_map : {"nystroem", "fourier", "exact", "linear"} or feature map, default="nystroem"
        φ. "exact" is a Nyström map with every row as a landmark, for validation and small n.
    kernel, length_scale, n_components
        Of φ, as in :class:`FairKernelRidge`.
    sensitive_kernel, sensitive_length_scale, n_sensitive_components
        Of the sensitive attributes, as in :class:`FairKernelRidge`.
    alpha : float or dict, default=1e-3
        Ridge α per row: `PoissonRegressor` and `GammaRegressor` of scikit-learn have 2α. A dict
        gives one per block of features, ``{"phi": 1e-3, "psi": 1e-6, "base": 1e-6}``.
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
        :class:`FairKernelRidge`; for "poisson" and "gamma" as log(1 + ĥ).
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
        the mean curvature of the loss at the start times the square of the unit of f: the standard
        deviation of y (Huber: at most its δ; quantile: at most 20 widths), or 1 for losses with a
        logarithmic link. Multiplying y and the loss's δ by a constant multiplies predictions.
    max_iter : int, default=50
        Most Newton steps; a ConvergenceWarning says so if they are not enough.
    dtype, chunk_rows, n_jobs, random_state
        As in :class:`FairKernelRidge`.

    Attributes
    ----------
    coef_ : array of shape (m,)
        β.
    intercept_ : float
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
        V, with the scales that were left open.
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
    The penalty promises parity of the scores f in expectation. With a logarithmic link that is
    parity of the mean of log predictions; that of the predictions themselves may differ.

    Examples
    --------
    >>> import numpy as np
    >>> from scalefair import FairKernelRegressor
    >>> from scalefair.datasets import make_toy1
    >>> toy = make_toy1(500, random_state=0)
    >>> counts = np.random.default_rng(0).poisson(np.exp(toy.target / 4))
    >>> model = FairKernelRegressor(loss="poisson", unfairness=0.05, random_state=0)
    >>> model = model.fit(toy.data, counts, sensitive_features=toy.sensitive_features)
    >>> round(model.explained_share_, 6) <= 0.05
    True
    """

    def __init__(
        self,
        *,
        loss: Any = "huber",
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
    def _is_positive(self) -> bool:
        return isinstance(self.loss, Poisson | Gamma) or self.loss in ("poisson", "gamma")

    @property
    def _base_scale(self) -> str:
        return "log" if self._is_positive else "probability"

    @property
    def _loss_names(self) -> tuple[str, ...]:
        return tuple(name for name in LOSSES if name != "logistic")

    def _open(self, X: Any, y: Any, *beside: Any) -> TrainingData:
        if not is_stream(X) and y is not None and np.asarray(y).shape[1:] == (1,):
            y = column_or_1d(y, warn=True)
        return super()._open(X, y, *beside)

    def _base_loss(self) -> Any:
        return LOSSES[self.loss]() if isinstance(self.loss, str) else self.loss

    def _prepare(self, data: TrainingData) -> TrainingData:
        loss: Loss = self._base_loss()
        if data.n_targets != loss.n_targets:
            raise ValueError(
                f"y has {data.n_targets} columns, but the {type(loss).__name__} loss is for "
                f"{loss.n_targets}; fit one target at a time"
            )
        return replace(data, source=data.source.then(partial(check_row_targets, loss)))

    def _make_loss(self, data: TrainingData) -> Any:
        y = data.sample.y
        loss = self._base_loss()
        return loss.fitted(y[:, 0] if loss.n_targets == 1 else y, data.sample.weight)

    def _set_coef(self, coef: Array, intercept: Array) -> None:
        one = self.loss_.n_scores == 1
        self.coef_ = coef[:, 0] if one else coef.T
        self.intercept_ = float(intercept[0]) if one else intercept

    def predict(self, X: Any) -> Any:
        """Predict the mean (or quantile) of y; the sensitive attributes are not needed.

        Parameters
        ----------
        X : array, data frame, dask collection, scan or batches of shape (k, d)
            Inputs as in `fit`.

        Returns
        -------
        array of shape (k,)
            A dask array, not yet computed, for a dask collection.
        """
        return self._predictions(X, partial(_linked, getattr(self, "loss_", None)))

    def predict_scores(self, X: Any) -> Any:
        """Return the scores f, of which parity is promised; `predict` is a function of them."""
        return self._predictions(X, partial(_linked, None))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.positive_only = self._is_positive
        return tags


def _linked(loss: Any, f: Array) -> Array:
    f = f[:, 0] if f.shape[1] == 1 else f
    return f if loss is None else np.asarray(loss.inverse_link(f))
