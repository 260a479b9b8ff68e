"""The common part of all fair estimators: `fit` opens the rows, learns, and assigns once, at the end."""

from __future__ import annotations

import warnings
from abc import abstractmethod
from collections.abc import Callable
from dataclasses import replace
from functools import reduce
from numbers import Integral
from operator import add
from typing import Any, ClassVar, Self

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.callback import CallbackSupportMixin, with_callbacks
from sklearn.utils.validation import check_is_fitted

from scalefair import errors
from scalefair._config import current_config
from scalefair._typing import Array, Chunk
from scalefair.data.folds import Folds, make_folds
from scalefair.data.progress import Callbacks, Progress
from scalefair.data.sources import ArraySource, ChunkSource, StackedSource
from scalefair.errors import InputError
from scalefair.estimators.parameters import check_output_kernel, check_partial
from scalefair.features.base import Stores
from scalefair.features.base_model import BaseModel
from scalefair.features.cross_fit import CrossFit, cross_fit
from scalefair.features.design import Design, Finished
from scalefair.features.exact import Identity
from scalefair.features.nystroem import Nystroem
from scalefair.features.rows import FitRows, TwoTables, open_fit_rows, open_more_rows, open_predict_rows
from scalefair.features.training import MapSpec, Training, group_names, learn_design, survey_training
from scalefair.moments import Moments
from scalefair.moments.accumulate import Rows
from scalefair.penalties import check_control, check_known
from scalefair.solve.fit import MIN_DIGITS, ROUNDING, Spec, single_rounding, warn_of_few_digits
from scalefair.solve.output.fit import with_ridge_curve
from scalefair.solve.ridge.path import FoldedMoments
from scalefair.solve.ridge.search import chance_ratios, check_folds
from scalefair.solve.ridge.system import System

# How attributes begin that scikit-learn sets on estimators for itself
OF_SCIKIT_LEARN = ("_skl", "_callback", "_metadata", "_sklearn", "_parent_callback")
OF_COLUMNS = ("n_features_in_", "feature_names_in_")  # what its checks store of the columns of X
MAX_WHITENED = 2e10  # rows × features² that are whitened row by row: a fraction of a second


class FairEstimator(Stores, CallbackSupportMixin, BaseEstimator):
    """The flow of every fair estimator."""

    _own_constraints: ClassVar[dict[str, Any]] = {}
    base_estimator: Any = None
    feature_map: Any = "linear"
    output_kernel: Any = None
    limit_on: Any = "scores"
    _progress: Progress | None = None  # reports the steps of `fit` if there are callbacks
    _design: Design
    _one_target: bool
    _base_scale: ClassVar[str] = "probability"  # what the prediction of a base model is turned into

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    @with_callbacks  # type: ignore[untyped-decorator]
    def fit(
        self, X: Any, y: Any, *, sensitive_features: Any = None, sample_weight: Any = None,
        control_features: Any = None, sensitive_data: Any = None,
    ) -> Self:  # fmt: skip
        """Fit the fair predictor.

        Parameters
        ----------
        X : array, data frame, dask collection, scan or batches of shape (n, d)
            Inputs. Numbers are used as given; a frame with text, categories or missing values is
            encoded. Rows that are not in memory (dask, :func:`scalefair.scan_parquet`,
            :class:`scalefair.BatchSource`) are read chunk by chunk, twice.
        y : array-like of shape (n,) or (n, t)
            Targets; columns of the same scan, if X is one.
        sensitive_features : array, Series or frame of shape (n,) or (n, p), optional
            Sensitive attributes: numbers, categories or both; for ridges :func:`scalefair.group_probabilities`,
            too. Needed unless `sensitive_columns` names them or `eta` is 0. `predict` does not need them.
        sample_weight : array-like of shape (n,), optional
            Weight 2 equals the row twice, in the error and in the penalty.
        control_features : array, Series or frame of shape (n,) or (n, r), optional
            Legitimate factors: only the dependence on the sensitive attributes that remains at each level of them is
            penalised. The target itself requires equalised odds in expectation. `predict` does not need them.
        sensitive_data : pair (X2, S2), optional
            Another table with the columns of X, and the sensitive attributes of its rows. It needs
            no targets, and X then needs no attributes. For ridges.

        Returns
        -------
        self
        """
        given = Chunk(X, sensitive_features, y, sample_weight, c=control_features)
        if sensitive_data is not None:
            given = TwoTables(**given.parts, sensitive_data=sensitive_data)
            check_partial(self, controlled=control_features is not None)
        return self._fit(given)

    def _fit(self, given: Chunk) -> Self:
        self._check_parameters()
        task = self._init_callback_context(max_subtasks=None)
        task.call_on_fit_task_begin(estimator=self)
        # scikit-learn's checks store the names of columns on another object: a fit that fails
        # changes nothing.
        checked = type(self)(**self.get_params(deep=False))
        if vars(self).get("_skl_callbacks"):
            self._progress = Callbacks(self)
        try:
            fitted = self._learn(checked, given)
        finally:
            self.__dict__.pop("_progress", None)
        if fitted["diagnostics_"].digits < MIN_DIGITS:
            warn_of_few_digits(fitted["diagnostics_"], type(self).__name__)
        for name in [*vars(self)]:  # an earlier fit in another mode may have set others
            stale = name.endswith("_") or name.startswith("_")
            if stale and not name.startswith(OF_SCIKIT_LEARN):
                del self.__dict__[name]
        columns = {name: value for name, value in vars(checked).items() if name in OF_COLUMNS}
        self.__dict__.update(columns | fitted)
        task.call_on_fit_task_end(estimator=self)
        return self

    @abstractmethod
    def _learn(self, checked: Self, given: Chunk) -> dict[str, Any]:
        """Return the attributes that a fit sets; `checked` gets the names of columns."""

    def _check_parameters(self) -> None:
        """Raise ValueError or TypeError if parameters do not go together."""
        self._validate_params()
        if self.output_kernel is not None:
            check_output_kernel(self.output_kernel, self.penalty, self.eta)
        if self.base_estimator is not None:
            CrossFit.of(self.base_estimator)
        exact = isinstance(self.feature_map, str) and self.feature_map == "exact"
        if exact and self.penalty in ("nocco", "nocco_output"):
            raise ValueError(
                f"penalty={self.penalty!r} needs finitely many features, which feature_map='exact' "
                "does not have; use feature_map='nystroem', 'fourier' or 'linear'"
            )

    def _is_ordinary(self) -> bool:
        return errors.check_weight_or_limit(self.eta, self.unfairness)[0] == 0

    def _sees_sensitive(self) -> bool:
        """Return True if ψ(s) is part of Φ: where the model may see s as columns of X."""
        return self.sensitive_columns is not None and not self.hide_sensitive

    def _train(self, checked: Self, given: Chunk, dtype: str, rows: FitRows | None = None) -> Training:
        """Open the rows of `fit`, make the first pass over them, and fit the base model."""
        base = self.base_estimator
        rows = rows or open_fit_rows(checked, given, keeps_frames=base is not None)
        if rows.partial or rows.probable is not None:
            check_partial(self, controlled=rows.has_control)
        if rows.probable is not None and not rows.probable.n_known and self.unfairness is not None:
            what = f"unfairness={self.unfairness:g} limits a lower bound of the share"
            warnings.warn(f"{what}; give group_probabilities the groups of some rows", stacklevel=2)
        given_apart = rows.has_sensitive or rows.second is not None
        if not given_apart and self.sensitive_columns is None and not self._is_ordinary():
            raise ValueError(errors.MISSING_SENSITIVE)
        spec = MapSpec.of(vars(self))
        training = survey_training(rows, spec, single=dtype == "float32")
        if base is None:
            return training
        if rows.lacks_y or rows.second is not None:
            raise errors.InputError(
                "base_estimator is fitted on y, which some rows lack",
                "leave these rows out, or use base_estimator=None",
                where="base_estimator",
            )
        return cross_fit(
            training, CrossFit.of(base), self._base_scale, self._base_folds(training), self.n_jobs, self._progress
        )

    def _base_folds(self, training: Training) -> Folds | None:
        """Return the folds that the base model is cross-fitted on; None: its own."""
        del training
        return None

    def _rows(self, source: ChunkSource, design: Design, n_rows: int | None, least_alpha: float | None = None) -> Rows:
        """Return rows to make moments of: few are whitened one by one, which loses no digits."""
        alpha = errors.check_alpha(self.alpha)["phi"] if least_alpha is None else least_alpha
        phi = design.phi
        small = n_rows is not None and n_rows * phi.n_raw_**2 <= MAX_WHITENED
        fine = alpha <= 1e-8 or (isinstance(phi, Nystroem) and phi.cutoff < 1e-8)
        single = np.dtype(design.dtype) == np.float32
        design = replace(design, whiten_rows=small or fine or single)
        return Rows(source, design, n_rows, current_config().chunk_rows, self._progress)

    def _curved_design(self, training: Training, dtype: str) -> Design:
        """Return the design for a kernel on f; one more pass where curves of f need moments."""
        seen = self._sees_sensitive()
        design = learn_design(training, dtype=dtype, sees_sensitive=seen, curved=True)
        linear = isinstance(design.phi, Identity)  # and stays linear
        if design.psi is None or training.base is not None or seen or linear:
            return design
        (moments,) = self._rows(training.source, design, training.survey.n_rows).moments()
        alpha = errors.check_alpha(self.alpha, moments.n_rows)["phi"]
        return with_ridge_curve(design, moments, training.sample, alpha, training.seed)

    def _more_rows(self, given: Chunk, n_targets: int | None = None) -> Rows:
        """Return rows that come after a fit, prepared as its rows were."""
        design = self._design
        count = design.n_targets if n_targets is None else n_targets
        source = open_more_rows(self, given, design, n_targets=count)
        return self._rows(source, design, source.n_rows)

    def _spec(self, dtype: Any, n_rows: int, curvature: float = 2.0) -> Spec:
        """Return what to fit to so many rows; `curvature` is the mean of the loss's."""
        eta, unfairness = self.eta, self.unfairness
        if self.limit_on != "scores":  # a limit on decisions leaves the scores a weight
            eta, unfairness = eta or 0.0, None
        eta, unfairness = errors.check_weight_or_limit(eta, unfairness)
        alpha = errors.check_alpha(self.alpha, n_rows, curvature)["phi"]
        rounding = single_rounding(n_rows) if np.dtype(dtype) == np.float32 else ROUNDING
        return Spec(alpha, eta, unfairness, self.penalty, self.eps, rounding)

    def _system(self, design: Design, moments: Moments) -> System:
        ridge = None
        if len(design.features) > 1:
            ridge = feature_ridges(design.features, moments, errors.check_alpha(self.alpha))
        return System.build(
            moments,
            penalty=self.penalty,
            eps=self.eps,
            fit_intercept=self.fit_intercept,
            features=design.features,
            ridge=ridge,
        )

    @property
    def base_estimator_(self) -> Any:
        """The base model that `predict` uses, fitted on all rows; None where there is none."""
        models = (block.model for block in self._design.beside if isinstance(block, BaseModel))
        return next(models, None)

    @property
    def coef_(self) -> Array:
        """Coefficients β; unless they are those of columns of X, products with them are refused."""
        if "coef_" not in vars(self):
            raise AttributeError(f"{type(self).__name__} has no attribute 'coef_'")
        coef: Array = vars(self)["coef_"]
        linear = isinstance(self._design.phi, Identity) and self._design.features == ("phi",)
        return coef if linear else coef.view(FeatureCoef)

    @coef_.setter
    def coef_(self, coef: Array) -> None:
        self.__dict__["coef_"] = coef

    def _feature_coef(self) -> Array:
        """Return the coefficients of Φ, shape (m, t)."""
        return np.atleast_2d(vars(self)["coef_"]).T

    def _without_penalty(self) -> Self | None:
        """Return the fit at η = 0 where that takes no rows; else None."""
        return None

    def _predictor(self) -> Callable[[], Callable[[Chunk], Array]]:
        return self._design.predictor(self._raw_coef, self.intercept_)

    def _scores(self, X: Any, finish: Callable[[Array], Array] | None = None) -> Any:
        """Return finish(f) on the rows of X, f of shape (k, t); a dask array for dask's rows."""
        check_is_fitted(self)
        start = self._predictor()
        if finish is not None:
            start = Finished(start, finish)
        return self._design.predict(open_predict_rows(self, X, self._design), start)


class OnFolds(FairEstimator):
    """A fair estimator that is judged on folds of its rows: `cv` says which."""

    def _folds(self, training: Training) -> tuple[Folds, bool]:
        source, X, y = training.given, range(training.survey.n_rows), range(training.survey.n_rows)
        if isinstance(source, ArraySource):
            X, y = source.x, source.y
        if isinstance(training.source, StackedSource) and not isinstance(self.cv, Integral):
            raise InputError(
                f"cv={self.cv!r} splits the rows of X only, not those of sensitive_data",
                "give a number of folds",
                where="cv",
            )
        # Not the seed of the sample: landmarks must not gather in one fold.
        return make_folds(self.cv, X, y, training.seed + 1)

    def _fold_moments(self, rows: Rows, training: Training, **options: Any) -> tuple[Folds, FoldedMoments]:
        """Return the folds and their moments, by one pass."""
        folds, some_always_train = self._folds(training)
        parts = rows.moments(folds, **options)
        tested, always = (parts[:-1], parts[-1]) if some_always_train else (parts, None)
        if not all(fold.weight for fold in tested):
            raise ValueError(
                f"cv={self.cv!r} makes a fold in which sample_weight is zero for every row; use "
                "fewer folds, or leave those rows out"
            )
        moments = FoldedMoments(tested, always, reduce(add, parts))
        if "xi" in moments.total.blocks:
            check_control(moments.total)
        if rows.design.partial:
            check_known(moments.total)
        if rows.design.psi is not None and self.unfairness is not None:
            judged = [fold.judged for fold in moments.folds]
            check_folds(judged, group_names(rows.design))
        return folds, replace(moments, ratios=chance_ratios(training, rows.design, folds, tested))


class FeatureCoef(np.ndarray[Any, np.dtype[np.float64]]):
    """Coefficients of features φ(x); `np.dot(coef, x)`, which SHAP calls first, is an error."""

    def __array_function__(self, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        """Refuse that product; all other functions see an ordinary array."""
        if func is np.dot and isinstance(args[0], FeatureCoef):
            raise TypeError(
                "coef_ are coefficients of features, not of the columns of X: the model is not "
                "linear in these; explain its predictions, as in shap.Explainer(model.predict, X)"
            )
        return super().__array_function__(func, types, args, kwargs)


def names_of_columns(checked: Any) -> dict[str, Any]:
    """Return what scikit-learn's checks have stored of the columns of X."""
    return {name: vars(checked)[name] for name in OF_COLUMNS if name in vars(checked)}


def learnt(training: Training, design: Design) -> dict[str, Any]:
    """Return the attributes of a fit that do not depend on the solution."""
    based = {} if training.base is None else {"n_base_samples_": training.n_base_samples}
    return {"_design": design, "phi_": design.phi, "psi_": design.psi, **based}


def feature_ridges(features: tuple[str, ...], moments: Moments, relative: dict[str, float]) -> Array:
    """Ridge of each feature relative to α, for ĥ in units of its variance."""
    of = relative | {"phi": 1.0, "ridge_curve": 1.0, "curve": relative["base"]}
    parts = {name: np.full(moments.blocks[name], of[name]) for name in features}
    if "base" in parts:
        spread = np.diagonal(moments.covariance("base", "base"))
        parts["base"] = parts["base"] * np.where(spread > 0, spread, 1.0)
    return np.concatenate(list(parts.values()))
