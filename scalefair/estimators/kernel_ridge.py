"""Fair kernel ridge regression."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from scalefair._config import Config
from scalefair._typing import Array, Chunk
from scalefair.errors import check_alpha
from scalefair.estimators.base import feature_ridges
from scalefair.estimators.parameters import described
from scalefair.estimators.ridge import RidgeBase, learnt
from scalefair.features.design import Design
from scalefair.features.exact import Identity
from scalefair.features.training import Training
from scalefair.moments import Moments
from scalefair.solve.dense.rows import exact_rows
from scalefair.solve.diagnostics import warn_of_few_digits
from scalefair.solve.fit import RidgeFit
from scalefair.solve.ridge.direct import WIDE, fit_wide


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
    @ intercept_ eta_ explained_share_ moments_ output_share_ n_iter_ n_samples_seen_ diagnostics_
    @ base_estimator_ n_base_samples_

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
        self,
        *,
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
        output_kernel: Any = None,
        base_estimator: Any = None,
        fit_intercept: bool = True,
        sensitive_columns: Any = None,
        hide_sensitive: bool = False,
        missing_labels: str = "error",
        n_jobs: int | None = None,
        random_state: Any = None,
    ) -> None:
        self._store(locals())

    def _check_parameters(self) -> None:
        super()._check_parameters()
        weighted = self.unfairness is None and self.output_kernel is None
        exact = isinstance(self.feature_map, str) and self.feature_map == "exact"
        if self.base_estimator is not None and weighted and exact:
            raise ValueError(
                "base_estimator joins explicit features, which feature_map='exact' with a weight "
                "eta does not have; use feature_map='nystroem', or a limit unfairness="
            )

    def _learn_rows(self, training: Training, config: Config) -> dict[str, Any]:
        # Under control the penalty needs the moments: then every row is a landmark.
        controlled = training.preparation.control_encoder is not None
        weighted = self.unfairness is None and self.output_kernel is None
        if training.spec.is_exact and weighted and not controlled:
            return self._learn_dual(training)
        return super()._learn_rows(training, config)

    def _solve_rows(
        self, training: Training, design: Design, config: Config
    ) -> tuple[Moments, RidgeFit]:
        # Rows that lack s or y need the m×m moments.
        wide = config.solver == "auto" and design.phi.n_raw_ >= WIDE and not design.partial
        if config.solver != "iterative" and not wide:
            return super()._solve_rows(training, design, config)
        if self.output_kernel is not None:
            raise ValueError(
                f"output_kernel={self.output_kernel!r} starts from the closed form, which "
                "solver='iterative' does without; use solver='direct' or fewer n_components"
            )
        rows = self._rows(training.source, design, None)
        ridge = partial(feature_ridges, design.features, relative=check_alpha(self.alpha))
        return fit_wide(
            rows, self._spec(design.dtype), ridge, fit_intercept=self.fit_intercept,
            seed=training.seed,
        )  # fmt: skip

    def _learn_dual(self, training: Training) -> dict[str, Any]:
        """Return the attributes of the exact mode, which has no explicit features."""
        seen = 1.0 / check_alpha(self.alpha)["psi"] if self._sees_sensitive() else 0.0
        rows, spec = exact_rows(training, seen), self._spec("float64")
        fit = rows.solve(
            spec.alpha, spec.eta, eps=spec.eps, penalty=spec.penalty,
            fit_intercept=self.fit_intercept,
        )  # fmt: skip
        diagnostics, one = rows.diagnostics(spec.alpha), training.one_target
        warn_of_few_digits(diagnostics, type(self).__name__)
        design = Design(
            Identity().fit(training.sample.x), rows.psi, training.n_targets,
            preparation=training.preparation, sees_sensitive=self._sees_sensitive(),
        )  # fmt: skip
        intercept = np.zeros(training.n_targets) + fit.intercept
        both = learnt(training, design)
        del both["phi_"]
        return both | {
            "_exact_rows": rows, "kernel_": rows.kernel, "eta_": spec.eta,
            "dual_coef_": fit.dual_coef[:, 0] if one else fit.dual_coef,
            "intercept_": float(intercept[0]) if one else intercept,
            "explained_share_": rows.explained_share(fit.predict(rows.K)),
            "n_samples_seen_": rows.n_rows, "diagnostics_": diagnostics,
        }  # fmt: skip

    def _predictor(self) -> Callable[[], Callable[[Chunk], Array]]:
        # What was fitted decides, not the parameters, which may have been set anew since.
        if "dual_coef_" not in vars(self):
            return super()._predictor()
        dual_coef = self.dual_coef_.reshape(len(self.dual_coef_), -1)
        rows, intercept = self._exact_rows, self.intercept_

        def predict(chunk: Chunk) -> Array:
            return np.asarray(rows.cross(chunk.x, chunk.s) @ dual_coef + intercept)

        return lambda: predict
