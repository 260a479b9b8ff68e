"""Fair ridge regression, linear and with kernels: the closed form from the moments."""

from __future__ import annotations

from copy import copy
from dataclasses import replace
from functools import partial
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import MultiOutputMixin, RegressorMixin
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import _check_feature_names_in, check_is_fitted

from scalefair import errors
from scalefair._config import current_config
from scalefair._typing import Array, Chunk
from scalefair.data.sources.threads import TINY, one_blas_thread
from scalefair.estimators.base import FairEstimator, feature_ridges
from scalefair.estimators.parameters import described
from scalefair.estimators.path import FairPath
from scalefair.features.design import Design
from scalefair.features.exact import ExpectedGroups, Identity
from scalefair.features.training import Training, learn_design
from scalefair.moments import Moments
from scalefair.moments.moments import CrossMoments
from scalefair.penalties import check_control, check_known
from scalefair.solve.dense.process import exact_rows
from scalefair.solve.fit import MIN_DIGITS, RidgeFit, Spec, warn_of_few_digits
from scalefair.solve.output.fit import fit_with_output_kernel
from scalefair.solve.ridge.direct import WIDE, fit_ridge, fit_wide, ridge_fit, takes_factor
from scalefair.solve.ridge.path import Spectrum, Tridiagonal, best_alpha, default_etas
from scalefair.solve.ridge.system import System, rescale

MIN_ROWS = 400  # for generalised cross-validation


@described
class Regression(MultiOutputMixin, RegressorMixin, FairEstimator):
    """A fair estimator that predicts f itself."""

    def predict(self, X: Any) -> Array:
        """Predict the targets; the sensitive attributes are not needed.

        @@ (k,) or (k, t)
        """
        scores = self._scores(X)
        return scores[:, 0] if self._one_target else scores  # type: ignore[no-any-return]


def _sums_over_rows(estimator: RidgeBase) -> bool:
    """Return True if rows may come in batches; the exact mode needs all of them at once."""
    if estimator.feature_map == "exact":
        raise AttributeError(
            "partial_fit needs a FairKernelRidge with an explicit feature map: feature_map='exact' "
            "needs all rows at once"
        )
    return True


class RidgeBase(Regression):
    """A fair ridge at one (alpha, eta) or under one limit, from the moments of its rows."""

    moments_: Moments
    _may_iterate: ClassVar[bool] = False
    """Whether the system may be solved without being formed, where it is large."""

    def _check_parameters(self) -> None:
        super()._check_parameters()
        errors.check_alpha(self.alpha)
        errors.check_weight_or_limit(self.eta, self.unfairness)
        if self.unfairness is not None and self.output_kernel is None:
            errors.check_closed_form(self.penalty, "unfairness")
        exact = isinstance(self.feature_map, str) and self.feature_map == "exact"
        weighted = self.unfairness is None and self.output_kernel is None
        if self.base_estimator is not None and weighted and exact:
            raise ValueError(
                "base_estimator joins explicit features, which feature_map='exact' with a weight "
                "eta does not have; use feature_map='nystroem', or a limit unfairness="
            )

    def _learn(self, checked: Self, given: Chunk) -> dict[str, Any]:
        config = current_config()
        training = self._train(checked, given, config.dtype)
        weighted = self.unfairness is None and self.output_kernel is None
        # Under control the penalty needs the moments: then every row is a landmark.
        controlled = training.preparation.control_encoder is not None
        if training.spec.is_exact and weighted and not controlled:
            return self._learn_dual(training)
        if self.output_kernel is None:
            seen = self.sensitive_columns is not None and self._sees_sensitive()
            design = learn_design(training, dtype=config.dtype, sees_sensitive=seen)
        else:
            design = self._curved_design(training, config.dtype)
        iterative = {"auto": design.phi.n_raw_ >= WIDE, "iterative": True, "direct": False}
        # Rows that lack s or y need the m×m moments.
        wide = self._may_iterate and iterative[config.solver] and not design.partial
        moments, fit = (self._solve_wide if wide else self._solve_rows)(training, design)
        if "xi" in moments.blocks:
            check_control(moments)
        attributes = self._solution(moments, fit, design, one_target=training.one_target)
        if training.base is not None:
            attributes["n_base_samples_"] = training.n_base_samples
        return attributes

    def _solve_rows(self, training: Training, design: Design) -> tuple[Moments, RidgeFit]:
        rows = self._rows(training.source, design, training.survey.n_rows)
        (moments,) = rows.moments(checkpoint=current_config().checkpoint)
        if design.partial:
            check_known(moments)
        if self.output_kernel is None or design.psi is None:
            return moments, self._solve(design, moments)
        system = self._system(design, moments)
        spec, _ = self._spec_of(design, system)
        return moments, fit_with_output_kernel(rows, system, spec, self.output_kernel)

    def _solve_wide(self, training: Training, design: Design) -> tuple[Moments, RidgeFit]:
        if self.output_kernel is not None:
            raise ValueError(
                f"output_kernel={self.output_kernel!r} starts from the closed form, which "
                "solver='iterative' does not use; use solver='direct' or fewer n_components"
            )
        rows = self._rows(training.source, design, None)
        ridge = partial(feature_ridges, design.features, relative=errors.check_alpha(self.alpha))
        spec = self._spec(design.dtype, training.survey.n_present)
        return fit_wide(rows, spec, ridge, fit_intercept=self.fit_intercept, seed=training.seed)

    def _learn_dual(self, training: Training) -> dict[str, Any]:
        """Return the attributes of the exact mode, which has no explicit features."""
        sees = self._sees_sensitive()
        seen = 1.0 / errors.check_alpha(self.alpha)["psi"] if sees else 0.0
        rows, spec = exact_rows(training, seen), self._spec("float64", training.survey.n_present)
        fit = rows.solve(spec.alpha, spec.eta, eps=spec.eps, penalty=spec.penalty, fit_intercept=self.fit_intercept)
        one = training.one_target
        phi, prepared = Identity().fit(training.sample.x), training.preparation
        design = Design(phi, rows.psi, training.n_targets, preparation=prepared, sees_sensitive=sees)
        intercept = np.zeros(training.n_targets) + fit.intercept
        return {
            "_design": design, "psi_": design.psi, "_one_target": one,
            "_exact_rows": rows, "kernel_": rows.kernel,
            "alpha_": spec.alpha, "eta_": spec.eta,
            "dual_coef_": fit.dual_coef[:, 0] if one else fit.dual_coef,
            "intercept_": float(intercept[0]) if one else intercept,
            "explained_share_": rows.explained_share(fit.predict(rows.K)),
            "n_samples_seen_": rows.n_rows, "diagnostics_": fit.diagnostics,
        }  # fmt: skip

    def _solve(self, design: Design, moments: Moments) -> RidgeFit:
        """Return the fit of these parameters, from moments alone."""
        if design.psi is None and not self._is_ordinary():
            raise ValueError(errors.MISSING_SENSITIVE)
        if self.output_kernel is not None and design.psi is not None:
            raise ValueError(
                f"output_kernel={self.output_kernel!r} needs all rows again, but here are only "
                "their moments; fit on all rows at once, or use output_kernel=None"
            )
        with one_blas_thread(len(moments.shift)):
            system = self._system(design, moments)
            return fit_ridge(system, *self._spec_of(design, system))

    def _spec_of(self, design: Design, system: System) -> tuple[Spec, Spectrum | None]:
        """Return what to fit; where "auto" finds its ridge by eigenvectors that a limit needs, these too."""
        spec = self._spec(design.dtype, system.moments.n_rows)
        if system.moments.effective_rows < MIN_ROWS or not isinstance(self.alpha, str):
            return spec, None
        if takes_factor(spec) and len(system.gram) > TINY:
            return replace(spec, alpha=best_alpha(system, Tridiagonal.of(system))), None
        spectrum = Spectrum.of(system)
        return replace(spec, alpha=best_alpha(system, spectrum)), spectrum

    def _solution(self, moments: Moments, fit: RidgeFit, design: Design, *, one_target: bool) -> dict[str, Any]:
        """Return the attributes of a fit."""
        coef, intercept = fit.solution
        steps: dict[str, Any] = {} if fit.n_iter is None else {"n_iter_": fit.n_iter}
        if isinstance(design.psi, ExpectedGroups) and not design.psi.n_known:
            steps["explained_share_lower_bound_"] = fit.explained_share
        nonlinear = {} if fit.output_share is None else {"output_share_": fit.output_share}
        return {
            "coef_": coef[:, 0] if one_target else coef.T,
            "intercept_": float(intercept[0]) if one_target else intercept,
            "_design": design, "phi_": design.phi, "psi_": design.psi,
            "_one_target": one_target, "moments_": moments, "n_samples_seen_": moments.n_rows,
            "alpha_": fit.alpha, "eta_": fit.eta,
            "explained_share_": fit.explained_share, "diagnostics_": fit.diagnostics,
            "jitter_": fit.diagnostics.jitter, "_raw_coef": design.raw_coef(coef),
            **steps, **nonlinear,
        }  # fmt: skip

    def _take(self, moments: Moments, fit: RidgeFit) -> Self:
        """Set the attributes of another fit with the same design."""
        new = self._solution(moments, fit, self._design, one_target=self._one_target)
        if fit.diagnostics.digits < MIN_DIGITS:
            warn_of_few_digits(fit.diagnostics, type(self).__name__)
        for name in ("n_iter_", "output_share_"):
            self.__dict__.pop(name, None)
        self.__dict__.update(new)
        return self

    def collect(
        self, X: Any, y: Any, *, sensitive_features: Any = None, sample_weight: Any = None, control_features: Any = None
    ) -> Moments:
        """Return the moments of more rows, made with the maps of this fitted estimator.

        Nothing is added to the estimator: parts can be collected on different machines or days,
        saved, added up with `+`, and solved with :meth:`solve_from`. Parameters as in `fit`.
        """
        self._check_has_moments("collect")
        given = Chunk(X, sensitive_features, y, sample_weight, c=control_features)
        (moments,) = self._more_rows(given).moments()
        return moments

    def solve_from(self, moments: Moments) -> Self:
        """Replace the moments of this fitted estimator by others and solve again.

        Parameters
        ----------
        moments : Moments
            Made with the same maps, by :meth:`collect`; or the sum of several such.
        """
        self._check_has_moments("solve_from")
        self._check_parameters()
        self.moments_.check_same_rows(moments)
        moments = moments.calibrated(self.moments_.calibration)
        return self._take(moments, self._solve(self._design, moments))

    def path(self, alphas: Any = None, etas: Any = None) -> FairPath:
        """Return the accuracy–fairness path from the stored moments, without data.

        Parameters
        ----------
        alphas : array-like of shape (A,), optional
            Ridges; by default the one of the estimator.
        etas : array-like of shape (E,), optional
            Penalty weights; by default 25, from 0 to ∞.
        """
        check_is_fitted(self)
        errors.check_closed_form(self.penalty, "a path")
        self._check_has_moments("path")
        if self.output_kernel is not None and self.psi_ is not None:
            raise ValueError(
                f"a path is not available with output_kernel={self.output_kernel!r}, which needs all "
                "rows again; fit one model for each eta, or use output_kernel=None"
            )
        alphas = [self.alpha_] if alphas is None else alphas
        alphas = errors.check_grid("alphas", alphas, high=errors.FINITE)
        if etas is None:
            system = self._system(self._design, self.moments_)
            etas = [0.0] if self.psi_ is None else default_etas(system, alphas.min())
        grid = errors.check_grid("etas", etas)
        if self.psi_ is None and grid.any():
            raise ValueError(errors.MISSING_SENSITIVE)
        return FairPath(self, alphas, grid)

    def _check_has_moments(self, what: str) -> None:
        check_is_fitted(self)
        if "moments_" not in vars(self):
            raise ValueError(
                f"{what} needs moments, which feature_map='exact' does not compute; use "
                "feature_map='nystroem' with at least as many n_components as rows, or unfairness="
            )

    def _at(self, alpha: Any, *, eta: float | None = None, unfairness: float | None = None) -> Self:
        """Return a copy at another point, solved from the same moments."""
        if isinstance(self.alpha, dict) and not isinstance(alpha, dict):
            relative = errors.check_alpha(self.alpha) | {"phi": 1.0}
            alpha = {name: ratio * alpha for name, ratio in relative.items()}
        other: Self = copy(self).set_params(unfairness=unfairness, alpha=alpha, eta=eta)
        other._check_parameters()
        return other._take(self.moments_, other._solve(self._design, self.moments_))

    def _constant(self) -> Self:
        """Return a copy that predicts the best constant."""
        system, none = self._system(self._design, self.moments_), 0.0 * np.atleast_2d(self.coef_).T
        fit = ridge_fit(system, none, self.alpha_, np.inf, self.diagnostics_)
        return copy(self)._take(self.moments_, fit)

    def _without_penalty(self) -> Self | None:
        moments = vars(self).get("moments_")
        if moments is None or isinstance(moments, CrossMoments):
            return None
        plain: Self = copy(self).set_params(output_kernel=None, penalty="normalized")
        return plain._at(self.alpha, eta=0.0)

    def _rescaled(self) -> Self:
        """Take the scale of least error on the training rows, which changes no share."""
        system = self._system(self._design, self.moments_)
        coef = rescale(system, np.atleast_2d(self.coef_).T)
        fit = ridge_fit(system, coef, self.alpha_, self.eta_, self.diagnostics_)
        return self._take(self.moments_, fit)

    @available_if(_sums_over_rows)  # type: ignore[untyped-decorator]
    def partial_fit(
        self, X: Any, y: Any, *, sensitive_features: Any = None, sample_weight: Any = None, control_features: Any = None
    ) -> Self:
        """Add a batch of rows to the previous ones, and solve again.

        The first batch fixes the encoding, the length scales and the landmarks, so it should look
        like the rest; the moments of later batches are added exactly. Parameters as in `fit`.
        """
        beside = {
            "sensitive_features": sensitive_features,
            "sample_weight": sample_weight,
            "control_features": control_features,
        }
        if "moments_" not in vars(self):
            return self.fit(X, y, **beside)  # type: ignore[no-any-return]
        self._check_parameters()
        moments = self.moments_ + self.collect(X, y, **beside)
        return self._take(moments, self._solve(self._design, moments))


@described
class FairRidge(RidgeBase):
    """Ridge regression whose predictions do not depend on sensitive attributes.

    Minimises 1/n |y − b − Xβ|² + α|β|² + η|Rᵀβ|², where |Rᵀβ|² measures the dependence between
    the predictions and the sensitive attributes: the paper's Fair Linear Regression.

    Parameters
    ----------
    @ *
    alpha : float or "auto", default="auto"
        Ridge per row: scikit-learn's `Ridge` has alpha = n times this one. "auto" is the one with the least generalised
        cross-validation error without a penalty; for fewer than 400 rows, 1e-3.

    Attributes
    ----------
    coef_ : array of shape (d,) or (t, d)
        β.
    @ intercept_ alpha_ eta_ explained_share_ moments_ output_share_ n_iter_ n_samples_seen_
    @ diagnostics_ base_estimator_ n_base_samples_

    Examples
    --------
    >>> from scalefair import FairRidge
    >>> from scalefair.datasets import make_toy1
    >>> toy = make_toy1(500, random_state=0)
    >>> model = FairRidge(unfairness=0.05)
    >>> model = model.fit(toy.data, toy.target, sensitive_features=toy.sensitive_features)
    >>> round(model.explained_share_, 6) <= 0.05
    True
    """

    def __init__(
        self, *, alpha: Any = "auto", eta: float | None = None, unfairness: float | None = None,
        penalty: str = "normalized", eps: float | None = None, output_kernel: Any = None,
        sensitive_kernel: Any = "auto", sensitive_length_scale: Any = "median",
        n_sensitive_components: int = 100, base_estimator: Any = None, fit_intercept: bool = True,
        sensitive_columns: Any = None, hide_sensitive: bool = False, missing_labels: str = "error",
        n_jobs: int | None = None, random_state: Any = None,
    ) -> None:  # fmt: skip
        self._store(locals())

    def get_feature_names_out(self, input_features: Any = None) -> NDArray[Any]:
        """Return the names of the columns of `coef_`: the inputs, encoded, then what joins them."""
        check_is_fitted(self)
        design, names = self._design, list(_check_feature_names_in(self, input_features))
        inputs = names if design.preparation is None else design.preparation.input_names(names)
        joined = [f"{n}{j}" for n in design.features[1:] for j in range(self.moments_.blocks[n])]
        return np.array([*inputs, *joined], dtype=object)

    def _sees_sensitive(self) -> bool:
        # ĥ(x) depends on intersections of groups, which the columns of X alone cannot undo.
        return super()._sees_sensitive() and self.base_estimator is not None
