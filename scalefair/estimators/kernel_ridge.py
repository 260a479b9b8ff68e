"""Fair kernel ridge regression."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from scalefair._typing import Array, Chunk
from scalefair.estimators.parameters import described
from scalefair.estimators.ridge import RidgeBase
from scalefair.features.mixed import for_new_rows


@described
class FairKernelRidge(RidgeBase):
    """Kernel ridge regression whose predictions do not depend on sensitive attributes.

    Minimises 1/n |y − b − Φβ|² + α|β|² + η|Rᵀβ|² over f(x) = b + φ(x)ᵀβ, where |Rᵀβ|² measures the
    dependence between the predictions and the sensitive attributes. Only sums over rows are
    needed, so the fit is one pass over data of any length.

    Parameters
    ----------
    @ feature_map kernel length_scale n_components sensitive_kernel sensitive_length_scale
    @ n_sensitive_components alpha eta unfairness penalty eps output_kernel base_estimator
    @ fit_intercept sensitive_columns hide_sensitive missing_labels n_jobs random_state

    Attributes
    ----------
    coef_ : array of shape (m,) or (t, m)
        β; not there with ``feature_map="exact"``.
    dual_coef_ : array of shape (n,) or (n, t)
        With ``feature_map="exact"`` only: f(x) = k(x, X) dual_coef + intercept.
    @ intercept_ alpha_ eta_ explained_share_ moments_ output_share_ n_iter_ n_samples_seen_
    @ diagnostics_ base_estimator_ n_base_samples_

    Notes
    -----
    With a linear kernel on f the penalties promise parity in expectation: E[f | s] does not depend
    on s. The distribution of f around it may.

    Examples
    --------
    >>> from scalefair import FairKernelRidge
    >>> from scalefair.datasets import make_toy1
    >>> toy = make_toy1(500, random_state=0)
    >>> model = FairKernelRidge(unfairness=0.05, random_state=0)
    >>> model = model.fit(toy.data, toy.target, sensitive_features=toy.sensitive_features)
    >>> round(model.explained_share_, 6) <= 0.05
    True
    """

    def __init__(
        self, *, feature_map: Any = "nystroem", kernel: Any = "rbf", length_scale: Any = "median",
        n_components: int = 500, sensitive_kernel: Any = "auto",
        sensitive_length_scale: Any = "median", n_sensitive_components: int = 100,
        alpha: Any = "auto", eta: float | None = None, unfairness: float | None = None,
        penalty: str = "normalized", eps: float | None = None, output_kernel: Any = None,
        base_estimator: Any = None, fit_intercept: bool = True, sensitive_columns: Any = None,
        hide_sensitive: bool = False, missing_labels: str = "error", n_jobs: int | None = None,
        random_state: Any = None,
    ) -> None:  # fmt: skip
        self._store(locals())

    _may_iterate = True

    def _predictor(self) -> Callable[[], Callable[[Chunk], Array]]:
        # What was fitted decides, not the parameters, which may have been set anew since.
        if "dual_coef_" not in vars(self):
            return super()._predictor()
        dual_coef = self.dual_coef_.reshape(len(self.dual_coef_), -1)
        prepared, intercept = self._design.preparation, self.intercept_
        encoder = None if prepared is None else prepared.sensitive_encoder
        rows = replace(self._exact_rows, psi=for_new_rows(self._exact_rows.psi, encoder))

        def predict(chunk: Chunk) -> Array:
            return np.asarray(rows.cross(chunk.x, chunk.s) @ dual_coef + intercept)

        return lambda: predict
