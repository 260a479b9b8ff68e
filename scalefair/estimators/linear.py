"""Fair linear regression."""

from __future__ import annotations

from typing import Any

from scalefair._typing import FeatureMap
from scalefair.estimators._data import TrainingData
from scalefair.estimators._ridge import BatchRidgeBase
from scalefair.features import Identity


class FairRidge(BatchRidgeBase):
    """Ridge regression whose predictions do not depend on sensitive attributes.

    Minimises 1/n |y − b − Xβ|² + α|β|² + η|Rᵀβ|², where |Rᵀβ|² measures the dependence between
    the predictions and the sensitive attributes: the paper's Fair Linear Regression.

    Parameters
    ----------
    alpha : float, default=1e-3
        Ridge per row: scikit-learn's `Ridge` has alpha = n times this one.
    eta : float or None, default=None
        Weight of the penalty; 0 is an ordinary ridge regression, ``inf`` the limit in which the
        penalised dependence is gone. None means 1 unless `unfairness` is given.
    unfairness : float in [0, 1] or None, default=None
        Limit on the explained share: the share of the variance of the predictions that the
        sensitive attributes explain. Finds eta itself.
    penalty : {"normalized", "hsic", "nocco", "nocco_output"}, default="normalized"
        What is punished: the variance of f that s explains; HSIC; NOCCO of φ and ψ; or NOCCO of
        the prediction itself, the share that s explains. A share has no units, so that the eta of
        the last has those of the variance of y: y·c needs eta·c².
    eps : float or None, default=None
        Regularisation ε of the normalised penalties. None: none for groups, 1e-6 for numbers, in
        units of their kernel or variance. The explained share is measured without it. For
        "nocco_output" it is added to the variance of f too, times the variance of y.
    output_kernel : None, "rbf" or RBF, default=None
        None: the penalty sees the mean of the predictions given s. "rbf": it sees all of their
        distribution, by Gaussian kernels of one and of a quarter of their standard deviation; or
        of the length scale given, in that unit. Has no closed form: L-BFGS, each step a pass over
        rows that are kept in memory up to 1 GB. `unfairness` then limits `output_share_`.
    sensitive_kernel : str or kernel, default="auto"
        Kernel on the sensitive attributes. "auto": categories are crossed and one-hot, numbers
        standardised with a Gaussian kernel, both together their product.
    sensitive_length_scale : float, array or "median", default="median"
        Its length scale.
    n_sensitive_components : int, default=100
        Nyström features for sensitive attributes that are not categories. Where these are crossed
        with groups, ψ has at most four times as many columns, but at least five for each group.
    base_estimator : estimator or None, default=None
        Another model, whose prediction ĥ(x) joins the features: any scikit-learn regressor,
        classifier (its probabilities) or pipeline. It sees X as given, without the columns that
        `hide_sensitive` hides. Training rows get the prediction of a copy that was fitted without
        their fold; `predict` uses one that was fitted on all rows. A model that is fitted already
        is used as it is, with a warning; wrapped in scikit-learn's `FrozenEstimator` it stays so
        in copies, as a grid search makes them.
    base_sample : int, default=100_000
        Rows that the base model is fitted on where X is not in memory, chosen by row number.
    base_fit : {"sample", "collection"}, default="sample"
        "collection" gives dask collections to the base model's `fit` instead, for models that take
        them; its `predict` must take the rows of a partition.
    fit_intercept : bool, default=True
        Whether to fit b.
    sensitive_columns : list of str or int, optional
        Columns of X that are the sensitive attributes, instead of `sensitive_features` in `fit`.
    hide_sensitive : bool, default=False
        Whether the model may not use those columns.
    dtype : {"float64", "float32"}, default="float64"
        Precision of the feature rows; sums over rows are float64 in any case.
    chunk_rows : int or None, default=None
        Rows per chunk; None chooses them so that the rows in flight fit the cache.
    n_jobs : int or None, default=None
        Chunks in flight at once, each in a thread; None: one per core that BLAS may use.
    checkpoint : path or None, default=None
        File that keeps the sums of a long fit, written every minute. A fit that crashed goes on
        from it, with the same data, parameters and an int as `random_state`; rows that were
        counted and have changed since are a ValueError.
    random_state : int, RandomState or None, default=None
        Seed for samples and landmarks.

    Attributes
    ----------
    coef_ : array of shape (d,) or (t, d)
        β.
    intercept_ : float or array of shape (t,)
        b.
    eta_ : float
        The weight that was used or found.
    explained_share_ : float
        Explained share on the training rows; NaN where there is none.
    moments_ : Moments
        Statistics of the training rows, from which every other (alpha, eta) follows.
    output_share_ : float
        With `output_kernel` only: share of the variance of the features of f, those of the kernel,
        that the sensitive attributes explain on the training rows. 0: independent of them.
    n_iter_ : int
        Steps of an iterative solution.
    n_samples_seen_ : int
        Rows of positive weight.
    diagnostics_ : Diagnostics
        Condition number, jitter, rank of the features, and the digits that rounding has left;
        fewer than four are warned of.
    base_estimator_ : estimator or None
        The base model that `predict` uses.
    n_base_samples_ : int
        Rows that it was fitted on: all, or a sample of those that are not in memory; 0 where it
        was fitted before.

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
        self,
        *,
        alpha: Any = 1e-3,
        eta: float | None = None,
        unfairness: float | None = None,
        penalty: str = "normalized",
        eps: float | None = None,
        output_kernel: Any = None,
        sensitive_kernel: Any = "auto",
        sensitive_length_scale: Any = "median",
        n_sensitive_components: int = 100,
        base_estimator: Any = None,
        base_sample: int = 100_000,
        base_fit: str = "sample",
        fit_intercept: bool = True,
        sensitive_columns: Any = None,
        hide_sensitive: bool = False,
        dtype: str = "float64",
        chunk_rows: int | None = None,
        n_jobs: int | None = None,
        checkpoint: Any = None,
        random_state: Any = None,
    ) -> None:
        self.alpha = alpha
        self.eta = eta
        self.unfairness = unfairness
        self.penalty = penalty
        self.eps = eps
        self.output_kernel = output_kernel
        self.sensitive_kernel = sensitive_kernel
        self.sensitive_length_scale = sensitive_length_scale
        self.n_sensitive_components = n_sensitive_components
        self.base_estimator = base_estimator
        self.base_sample = base_sample
        self.base_fit = base_fit
        self.fit_intercept = fit_intercept
        self.sensitive_columns = sensitive_columns
        self.hide_sensitive = hide_sensitive
        self.dtype = dtype
        self.chunk_rows = chunk_rows
        self.n_jobs = n_jobs
        self.checkpoint = checkpoint
        self.random_state = random_state

    @property
    def _joins_sensitive(self) -> bool:
        # ĥ(x) depends on intersections of groups, which the columns of X alone cannot undo.
        seen = self.sensitive_columns is not None and not self.hide_sensitive
        return seen and self.base_estimator is not None

    def _input_map(self, data: TrainingData) -> FeatureMap:
        return Identity().fit(data.sample.x)
