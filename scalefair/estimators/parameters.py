"""Parameters of several estimators: their meaning and their valid values, written once."""

from __future__ import annotations

from functools import cache
from inspect import cleandoc, isfunction, signature
from numbers import Integral, Real
from textwrap import indent
from typing import Any, TypeVar

import numpy as np
from sklearn.utils._param_validation import HasMethods, Interval, StrOptions

from scalefair._config import current_config
from scalefair.errors import InputError
from scalefair.features.training import MapSpec
from scalefair.kernels import RBF, Kernel
from scalefair.kernels.stationary import NAMES
from scalefair.penalties import PENALTIES
from scalefair.solve.decisions.fit import Decisions

T = TypeVar("T", bound=type)
POSITIVE = Interval(Real, 0, None, closed="neither")
NOT_NEGATIVE = Interval(Real, 0, None, closed="left")
COUNT = Interval(Integral, 1, None, closed="left")
LENGTH_SCALE = [StrOptions({"median", "standardized"}), POSITIVE, "array-like"]
# What scikit-learn's validation of parameters checks; the rest is checked where it is used
VALID: dict[str, Any] = {
    "feature_map": [StrOptions({"nystroem", "fourier", "exact", "linear"}), HasMethods("raw")],
    "kernel": [StrOptions(set(NAMES)), Kernel],
    "length_scale": LENGTH_SCALE,
    "n_components": [COUNT],
    "sensitive_kernel": [StrOptions({"auto", *NAMES}), Kernel, HasMethods("raw")],
    "sensitive_length_scale": LENGTH_SCALE,
    "n_sensitive_components": [COUNT],
    "alpha": [StrOptions({"auto"}), NOT_NEGATIVE, dict],
    "alphas": [None, "array-like"],
    "eta": [None, Interval(Real, 0, np.inf, closed="both")],
    "etas": [None, "array-like"],
    "unfairness": [None, Interval(Real, 0, 1, closed="both")],
    "confidence": [None, Interval(Real, 0, 1, closed="neither")],
    "guarantee": [StrOptions({"split", "cross"})],
    "limit_on": [StrOptions({"scores", "decisions", "odds"}), Decisions],
    "penalty": [StrOptions(set(PENALTIES))],
    "eps": [None, NOT_NEGATIVE],
    "output_kernel": [None, StrOptions({"rbf"}), RBF],
    "fit_intercept": ["boolean"],
    "hide_sensitive": ["boolean"],
    "missing_labels": [StrOptions({"error", "partial"})],
    "learn_landmarks": ["boolean"],
    "class_weight": [None, StrOptions({"balanced"}), dict],
    "n_jobs": [None, COUNT],
    "random_state": [None, Interval(Integral, 0, None, closed="left"), np.random.RandomState],
    "ridge_ratios": ["array-like"],
    "tol": [NOT_NEGATIVE],
    "max_iter": [COUNT],
    "noise": [StrOptions({"optimize"}), POSITIVE],
    "amplitude": [StrOptions({"optimize"}), POSITIVE],
    "optimizer": [None, StrOptions({"l-bfgs-b"})],
    "n_restarts": [Interval(Integral, 0, None, closed="left")],
}
TEXT = """
loss : {"logistic", "multinomial"} or loss, default="logistic"
    V. "logistic" means the multinomial loss if there are more than two classes. An object of `scalefair.losses`
    gets classes as 0 and 1, or as one-hot rows.
class_weight : None, "balanced" or dict, default=None
    Weight of each class in the loss; "balanced" gives all classes the same total. The penalty and the explained
    share use the rows as they are.
feature_map : {"nystroem", "fourier", "exact", "linear"} or feature map, default="nystroem"
    Features φ(x) of the inputs: Nyström features, random Fourier features, every row as a landmark (for a ridge
    with a weight and for Gaussian process regression, the dense n×n solution; for validation and small n), or
    the inputs themselves.
kernel : str or kernel, default="rbf"
    "rbf", "laplace", "matern12", "matern32", "matern52", "linear", or a kernel object.
length_scale : float, array of shape (d,) or "median", default="median"
    Length scale of the kernel, one per input for ARD.
n_components : int, default=500
    Number of features m. Cost grows with its square; accuracy usually levels off at about 500.
sensitive_kernel : str or kernel, default="auto"
    Kernel on the sensitive attributes. "auto": indicators of the crossed categories, a Gaussian kernel on
    standardised numbers, and their product if there are both.
sensitive_length_scale : float, array or "median", default="median"
    Length scale of that kernel.
n_sensitive_components : int, default=100
    Number of Nyström features of numeric attributes. If they are crossed with groups, ψ has at most four times
    as many columns, but at least five for each group.
alpha : float, "auto" or dict, default="auto"
    Ridge α per row: scikit-learn's `KernelRidge` has nα, `LogisticRegression` has C = 1/(2nα),
    `PoissonRegressor` and `GammaRegressor` have 2α. "auto", for the squared loss, is the one with the least
    generalised cross-validation error without a penalty, from the moments. For other losses, for fewer than 400
    rows, and where there are no m×m moments it is 1/n, but at most 1e-3 and at least 1e-7, times half the mean
    curvature of the loss at the best constant: 1 for the squared loss, p(1 − p)/2 for two classes. A dict gives
    one per block of features, ``{"phi": 1e-3, "psi": 1e-6, "base": 1e-6}``, for φ(x), ψ(s) and ĥ(x), the last
    relative to its variance. A single number is that of φ, and the others get 1e-3 of it.
eta : float or None, default=None
    Weight of the penalty. 0 is an ordinary fit; ``inf`` removes the penalised dependence. None means 1 unless
    `unfairness` is given.
unfairness : float in [0, 1] or None, default=None
    Limit on the explained share: the share of the variance of the predictions (scores) f that the sensitive
    attributes s explain. It is met on the training rows; eta is chosen accordingly.
limit_on : {"scores", "decisions", "odds"} or Decisions, default="scores"
    What `unfairness` limits. "scores": the explained share. "decisions": the largest difference between groups
    in the rate of a decision (fairlearn's demographic parity difference); "odds": that among rows of the same
    class (true and false positive rates). The scores are then fitted with the weight `eta`, 0 by default, and
    decisions use thresholds that depend on the group or, if it is hidden, on what the inputs reveal about it.
    For a regression, give the threshold or the fraction to select as :class:`Decisions`.
penalty : {"normalized", "hsic", "nocco", "nocco_output"}, default="normalized"
    What is penalised: the variance of f that s explains; HSIC; NOCCO of φ and ψ; or NOCCO of the prediction
    itself, the share that s explains. A share has no units, so the eta of the last has those of the variance of
    y: y·c needs eta·c².
eps : float or None, default=None
    Regularisation ε of the normalised penalties. None means 0 for groups, and 1e-6 for numbers, relative to
    their kernel or variance. The explained share does not depend on it. For "nocco_output" it is also added to
    the variance of f, times the variance of y.
output_kernel : None, "rbf" or RBF, default=None
    None: the penalty is on the mean of f given s. "rbf": on the whole distribution of f, through Gaussian
    kernels with length scales of one and of a quarter of its standard deviation, or the one you give, in that
    unit. It has no closed form: every step of L-BFGS is a pass over rows, kept in memory up to 1 GB.
    `unfairness` then limits `output_share_`.
base_estimator : estimator, "trees", CrossFit or None, default=None
    Another model, whose prediction ĥ(x) becomes a feature: any scikit-learn regressor, classifier (its
    probabilities, or log odds in a classifier) or pipeline; "trees" are boosted trees with settings that suit
    most tables and native support for categories. Its input is X as you pass it, without the columns that
    `hide_sensitive` hides. For training rows the prediction of a copy fitted without their fold is used;
    `predict` uses a model fitted on all rows. A fitted model is used as it is, with a warning; wrap it in
    scikit-learn's `FrozenEstimator` to keep the fit in copies, such as those of a grid search.
    :class:`CrossFit` sets how it is fitted.
fit_intercept : bool, default=True
    Whether to fit an intercept b, which is not penalised.
sensitive_columns : list of str or int, optional
    Columns of X that are the sensitive attributes, instead of `sensitive_features` in `fit`. They are visible
    to the model, and their features ψ(s) are added to φ(x).
hide_sensitive : bool, default=False
    If True, the model does not use those columns to predict.
missing_labels : {"error", "partial"}, default="error"
    How to treat rows in which y or a sensitive attribute is missing (NaN, null). "partial": the error uses all
    rows with y, the penalty all rows with s and what these reveal about the others; the share is measured on
    the rows with s. Rows without both are left out.
tol : float, default=1e-10
    Stop when a pass over the rows would decrease the objective by less, relative to half the mean curvature of
    the loss at the start times the square of the unit of f: the standard deviation of y (Huber: at most its δ;
    quantile: at most 20 widths), or 1 for losses with a logarithmic link and for classes.
max_iter : int, default=50
    Largest number of Newton steps; a ConvergenceWarning is raised if they are not enough.
n_jobs : int or None, default=None
    Number of threads, each with a chunk of rows; None means one per core that BLAS may use.
random_state : int, RandomState or None, default=None
    Seed of samples, landmarks, frequencies and restarts.
[gp] length_scale : float, array of shape (d,), "median" or "standardized", default="median"
    Start of the search. A single number is optimised as one; one per input is ARD; "standardized" starts ARD
    from the median heuristic for standardised inputs. A `Nystroem` object as `feature_map` needs
    ``whitening="cholesky"`` if length scales are learnt.
[gp] max_iter : int, default=100
    Largest number of iterations of each search.
[gp] tol : float, default=1e-5
    A search has converged if no component of the gradient of the log evidence per row exceeds it.
[gp] penalty : {"normalized", "hsic"}, default="normalized"
    What is penalised: the variance of f that s explains, or HSIC.
[gp] sensitive_columns : list of str or int, optional
    Columns of X that are the sensitive attributes, instead of `sensitive_features` in `fit`. They are inputs of
    the kernel.
[cv] alphas : array-like, optional
    Ridges to try, as `alpha`; by default relative to the variance of the features and the mean curvature of the loss.
[cv] etas : array-like, optional
    Penalty weights to try; by default from 0 to ∞.
cv : int, splitter or iterable, default=5
    Number of random folds, or anything that splits the rows into disjoint test sets.
[cv] unfairness : float in [0, 1] or None, default=None
    Limit on the explained share, on held-out folds: the share of the variance of the scores f that the
    sensitive attributes s explain.
[gp] cv : int, splitter, iterable or None, default=None
    None: the limit is met on the training rows. A number of folds, or anything that splits the rows into
    disjoint test sets: it is met on these, at the learnt hyperparameters; the mean over the folds plus ¾ of its
    standard error is at most the limit. Has no effect without a limit. Sets `explained_share_cv_`,
    `explained_share_cv_error_` and `cv_results_`.
amplitude : float or "optimize", default="optimize"
    Prior standard deviation a of f without the penalty, for a kernel with k(x, x) = 1.
optimizer : {"l-bfgs-b"} or None, default="l-bfgs-b"
    Unlike in scikit-learn, None still optimises amplitude and noise, unless these are given as numbers; only
    the length scales stay at their start.
n_restarts : int, default=0
    Number of further searches, from random starts.
length_scale_bounds : (float, float) or None, default=None
    None: 1e-3 to 1e3 times the start.

X : array, data frame, dask collection, scan or batches of shape (k, d)
    Inputs as in `fit`; sensitive attributes are needed only if they are columns of X.
classes_ : array of shape (k,)
    The labels, sorted.
coef_ : array of shape (1, m) or (k, m)
    β; for more than two classes one row each, and the rows add up to zero.
loss_ : loss
    The loss V, with class weights.
intercept_ : float or array
    The intercept b.
alpha_ : float
    The ridge of φ.
eta_ : float
    The weight of the penalty, as given or as chosen.
explained_share_ : float
    Explained share of f on the training rows; NaN for a constant prediction.
decisions_ : FairDecisions
    With a limit on decisions: the `gap` and its standard error `gap_error`, and a `table` with the rates and
    the calibration of each group, before and after; held out in classes named CV, in sample otherwise.
    `predict_proba` is not affected.
explained_share_cv_ : float
    Held-out share: the mean over the folds, corrected for chance, at least 0. For numeric attributes it is the
    largest of three values, one for each ridge of the function of s, so it tends to be too large rather than
    too small. NaN for a constant.
explained_share_cv_error_ : float
    Its standard error.
[cv] confidence : float in (0, 1) or None, default=None
    Certify the limit: the probability of returning a model beyond it in the population is at most 1 −
    confidence. Raises NotCertifiedError if no model can be certified.
[cv] guarantee : {"split", "cross"}, default="split"
    How the limit is certified. "split": four rows of ten, chosen by row number, are used only for calibration.
    "cross": cross-fitted statistics and a refit on all rows, which has less error, but is validated by
    simulations instead of a theorem.
[cv] certificate_ : Certificate
    The certificate, if `confidence` is given.
[cv] explained_share_ : float
    Explained share on the training rows: reported, not limited. NaN for a constant.
[cv] alpha_, eta_ : float
    The ridge and the weight that were chosen.
[cv] path_ : LossPathCV
    All fits that were tried, with their held-out scores.
[cv] cv_results_ : dict of arrays of shape (K, A, E)
    Mean loss ("loss") and share ("explained_share") of each fold, and the grid ("alphas", "etas").
output_share_ : float
    Only with `output_kernel` or, for general losses, ``penalty="nocco_output"``: share of the variance of the
    kernel features of f that the sensitive attributes explain on the training rows. 0 means independence.
moments_ : Moments
    Statistics of the training rows.
mean_loss_ : float
    1/n ΣV on the training rows.
n_iter_ : int
    Steps of an iterative solution.
n_passes_ : int
    Passes over the rows, without the one for the moments.
n_samples_seen_ : int
    Rows of positive weight.
diagnostics_ : Diagnostics
    Condition number, jitter, rank of the features, and the number of correct digits; fewer than four raise a
    warning.
base_estimator_ : estimator or None
    The base model that `predict` uses.
n_base_samples_ : int
    Rows that it was fitted on: all, or a sample if they are not in memory; 0 if it was fitted before.
kernel_ : Kernel
    a²k with the learnt length scales, in ``kernel_.length_scale``.
log_marginal_likelihood_value_ : float
    Log evidence at `theta_`.
converged_, n_iter_, n_evaluations_, optimizer_message_
    The outcome of the search; `evidence_history_` has the log evidence of each evaluation.
at_bounds_ : tuple of str
    Hyperparameters that reached a bound, with an explanation.
phi_, psi_ : feature maps
    φ and ψ.
"""


PREDICTS = """Parameters
----------
@ X

Returns
-------
array of shape {}
    A lazy dask array for a dask collection."""


@cache
def _entries(text: str = TEXT) -> dict[str, str]:
    entries: dict[str, list[str]] = {}
    lines: list[str] = []
    for line in text.strip("\n").split("\n"):
        if line and not line.startswith(" "):
            name = line.split(" : ")[0].split(",")[0]
            entries[name.replace("[gp] ", "gp.").replace("[cv] ", "cv.")] = lines = []
        if line:
            lines.append(line.removeprefix("[gp] ").removeprefix("[cv] "))
    return {name: "\n".join(lines) for name, lines in entries.items()}


def described(cls: T) -> T:
    """Give a class the constraints of its parameters, and the texts of "@ name name ..." lines.

    "@ *" stands for all arguments of the class, in their order, with the texts below it or these.
    A line "@@ shape" is replaced by the parameters and the result of a method that predicts.
    """
    own: dict[str, Any] = cls._own_constraints  # type: ignore[attr-defined]
    names = [name for name in signature(cls).parameters if name in VALID]
    cls._parameter_constraints = {name: VALID[name] for name in names} | own  # type: ignore[attr-defined]
    for documented in (cls, *filter(isfunction, vars(cls).values())):
        doc: str = documented.__doc__ or ""
        if "@ " in doc:
            documented.__doc__ = _written_out(_with_arguments(cls, cleandoc(doc)))
    return cls


def _with_arguments(cls: type, doc: str) -> str:
    if "@ *" not in doc:
        return doc
    names, entries = signature(cls).parameters, _entries()
    kind = "gp." if "optimizer" in names else "cv." if "alphas" in names else ""
    head, _, rest = doc.partition("@ *")
    section, end, tail = rest.partition("\n\n")
    texts = [_entries(section).get(name) or entries.get(kind + name) or entries.get(name, "") for name in names]
    return head + "\n".join(filter(None, texts)) + end + tail


def _written_out(doc: str) -> str:
    entries, lines = _entries(), []
    doc = "\n".join(PREDICTS.format(line[3:]) if line.startswith("@@ ") else line for line in doc.split("\n"))
    for line in doc.split("\n"):
        names = line[2:].split() if line.startswith("@ ") else []
        lines += [entries[name] for name in names] if names else [line]
    return indent("\n".join(lines), "    ").strip() + "\n    "


def check_output_kernel(kernel: Any, penalty: str, eta: float | None) -> None:
    """Raise ValueError if other parameters cannot be combined with a kernel on f."""
    if not isinstance(kernel, str) and np.ndim(kernel.length_scale):
        raise ValueError(
            f"output_kernel={kernel!r}: give RBF(length_scale) with one length scale, in units of "
            "the standard deviation of the predictions"
        )
    if penalty not in ("normalized", "nocco_output"):
        raise ValueError(
            f"penalty={penalty!r} cannot be combined with output_kernel={kernel!r}; use 'normalized' or 'nocco_output'"
        )
    if eta is not None and np.isinf(eta):
        raise ValueError(
            f"eta={eta!r} with output_kernel={kernel!r} has no limit that can be computed; use a "
            "large eta such as 1e4, or unfairness="
        )


def check_partial(estimator: Any, *, controlled: bool) -> None:
    """Raise InputError if a parameter needs y and s in every row."""
    own = estimator.get_params(deep=False)
    needs = {
        type(estimator).__name__: "missing_labels" not in own,
        f"output_kernel={estimator.output_kernel!r}": estimator.output_kernel is not None,
        "feature_map='exact'": MapSpec.of(own).is_exact,
        f"solver={current_config().solver!r}": current_config().solver == "iterative",
        "control_features": controlled,
        f"sensitive_columns={estimator.sensitive_columns!r} without hide_sensitive": estimator.sensitive_columns
        is not None
        and not estimator.hide_sensitive,
    }
    for what in (name for name, is_set in needs.items() if is_set):
        raise InputError(
            f"{what} needs y and s in every row, which missing_labels='partial', "
            "sensitive_data and probabilities of groups do not provide",
            "use FairRidge, FairKernelRidge or FairKernelRidgeCV with other parameters, where "
            "a model that may not see s does not need it to predict",
            where=what,
        )
