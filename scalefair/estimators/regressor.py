"""Fair kernel regression with other losses than the squared one."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any, ClassVar, Self

import numpy as np
from sklearn.base import RegressorMixin
from sklearn.utils._param_validation import HasMethods, StrOptions
from sklearn.utils.validation import column_or_1d

from scalefair._config import current_config
from scalefair._typing import Array, Chunk
from scalefair.data import is_stream
from scalefair.estimators.loss import LOSS_METHODS, LossBase, check_row_targets
from scalefair.estimators.parameters import described
from scalefair.losses import LOSSES, Gamma, Poisson


@described
class FairKernelRegressor(RegressorMixin, LossBase):
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
        ``Quantile(0.9)`` or ``Huber(delta=2.0)``, or of a subclass of `Loss`. A base model's
        prediction joins "poisson" and "gamma" as log(1 + ĥ).
    @ feature_map kernel length_scale n_components sensitive_kernel sensitive_length_scale
    @ n_sensitive_components alpha eta unfairness penalty eps base_estimator output_kernel
    @ fit_intercept sensitive_columns hide_sensitive tol max_iter n_jobs random_state

    Attributes
    ----------
    coef_ : array of shape (m,)
        β.
    loss_ : loss
        V, with the scales that were left open.
    @ intercept_ eta_ explained_share_ output_share_ mean_loss_ n_iter_ n_passes_ moments_
    @ n_samples_seen_ diagnostics_

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
        output_kernel: Any = None,
        fit_intercept: bool = True,
        sensitive_columns: Any = None,
        hide_sensitive: bool = False,
        tol: float = 1e-10,
        max_iter: int = 50,
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
        self.output_kernel = output_kernel
        self.fit_intercept = fit_intercept
        self.sensitive_columns = sensitive_columns
        self.hide_sensitive = hide_sensitive
        self.tol = tol
        self.max_iter = max_iter
        self.n_jobs = n_jobs
        self.random_state = random_state

    _own_constraints: ClassVar[dict[str, Any]] = {
        "loss": [StrOptions(set(LOSSES) - {"logistic"}), HasMethods(LOSS_METHODS)]
    }

    @property
    def _is_positive(self) -> bool:
        return isinstance(self.loss, Poisson | Gamma) or self.loss in ("poisson", "gamma")

    @property
    def _base_scale(self) -> str:  # type: ignore[override]
        return "log" if self._is_positive else "probability"

    def _learn(self, checked: Self, given: Chunk) -> dict[str, Any]:
        y = given.y
        if not is_stream(given.x) and y is not None and np.asarray(y).shape[1:] == (1,):
            given = replace(given, y=column_or_1d(y, warn=True))
        dtype = current_config().dtype
        training = self._train(checked, given, dtype)
        loss = LOSSES[self.loss]() if isinstance(self.loss, str) else self.loss
        if training.n_targets != loss.n_targets:
            raise ValueError(
                f"y has {training.n_targets} columns, but the {type(loss).__name__} loss is for "
                f"{loss.n_targets}; fit one target at a time"
            )
        source = training.source.then(partial(check_row_targets, loss))
        return self._learn_loss(replace(training, source=source), loss, dtype)

    def _shaped(self, loss: Any, coef: Array, intercept: Array) -> dict[str, Any]:
        one = loss.n_scores == 1
        return {
            "coef_": coef[:, 0] if one else coef.T,
            "intercept_": float(intercept[0]) if one else intercept,
        }

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
        return self._scores(X, partial(_linked, vars(self).get("loss_")))

    def predict_scores(self, X: Any) -> Any:
        """Return the scores f, of which parity is promised; `predict` is a function of them."""
        return self._scores(X, partial(_linked, None))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.positive_only = self._is_positive
        return tags


def _linked(loss: Any, f: Array) -> Array:
    f = f[:, 0] if f.shape[1] == 1 else f
    return f if loss is None else np.asarray(loss.inverse_link(f))
