"""Fair Gaussian process classification."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import ClassifierMixin
from sklearn.utils.validation import _check_feature_names_in, check_is_fitted

from scalefair._typing import Array, Chunk
from scalefair.data.labels import OneHotLabels, check_classes, code_labels, decoded
from scalefair.estimators.gp_base import Process
from scalefair.estimators.parameters import described
from scalefair.features.training import Training
from scalefair.moments import Moments
from scalefair.moments.accumulate import Rows
from scalefair.solve.fit import GPClassifierFit, ProcessSpec
from scalefair.solve.gp.classes import LaplaceEvidence, at_weight, fit_classes, ridge_of
from scalefair.solve.gp.distribution import LatentDistribution
from scalefair.solve.newton.folds import FoldProblem, search_loss
from scalefair.solve.newton.model import Problem
from scalefair.solve.ridge.system import System


@described
class FairGPClassifier(ClassifierMixin, Process):
    """Gaussian process classification whose scores do not depend on sensitive attributes.

    P(y = 1 | f) = 1/(1 + exp(−f)), where f is a Gaussian process of mean zero and kernel a²k(x, x') that is
    conditioned on being fair: functions that depend on s on the training rows, as the penalty measures it, are
    less likely by exp(−nη · penalty). In the features, the prior precision of β is I/a² + 2nηRRᵀ. Laplace's
    approximation: the mode of f given y is the fit of :class:`FairKernelClassifier` without intercept at alpha =
    1/(2na²) and the same eta; around it f is approximated by a normal distribution. Probabilities are averaged
    over that distribution. Amplitude and length scales maximise the evidence. Rows are read in passes, about ten
    for each set of hyperparameters, so memory does not grow with their number.

    Parameters
    ----------
    @ *
    amplitude_bounds : (float, float) or None, default=None
        None: 1e-3 to 1e3.
    eta : float or None, default=None
        Weight of the penalty, as in :class:`FairKernelClassifier`; fixed while the evidence is
        maximised. With ``inf`` hyperparameters are learnt at a large finite weight.
    unfairness : float in [0, 1] or None, default=None
        Limit on the explained share of the mean scores. Hyperparameters are learnt at the weight that meets it at their
        start; weight and amplitude are then optimised again at the learnt length scales, the weight last.

    Attributes
    ----------
    classes_ : array of shape (k,)
        The labels, sorted.
    @ kernel_
    amplitude_, eta_ : float
        a and η, as learnt or given.
    theta_ : array of shape (n_hyper + 1,)
        log length scales and log a.
    @ log_marginal_likelihood_value_ converged_ n_passes_ at_bounds_ explained_share_
    coef_ : array of shape (1, m) or (k, m)
        Mean of β, amplitude included.
    @ phi_ moments_ n_samples_seen_ diagnostics_

    Notes
    -----
    More than two classes are learnt one against the rest, with one kernel, amplitude and eta for
    all: the evidence is the sum of theirs, and probabilities are made to add up to 1.

    There is no intercept, as the prior of f has mean zero: with rare classes a constant must come
    from the kernel, such as ``RBF(1.0) + Scaled(...)``, or the amplitude grows to reach it.

    The penalty promises parity of the mean scores in expectation: E[f | s] does not depend on s.
    Probabilities and decisions are functions of them, and may.

    Examples
    --------
    >>> from scalefair import FairGPClassifier
    >>> from scalefair.datasets import make_toy1
    >>> toy = make_toy1(200, random_state=0)
    >>> high = toy.target > 0
    >>> model = FairGPClassifier(n_components=30, unfairness=0.05, random_state=0)
    >>> model = model.fit(toy.data, high, sensitive_features=toy.sensitive_features)
    >>> round(model.explained_share_, 6) <= 0.05
    True
    >>> model.predict_proba(toy.data).shape
    (200, 2)
    """

    classes_: NDArray[Any]
    _distribution: LatentDistribution
    _evidence: LaplaceEvidence | None = None

    def __init__(
        self, *, feature_map: Any = "nystroem", kernel: Any = "rbf", length_scale: Any = "median",
        n_components: int = 500, sensitive_kernel: Any = "auto",
        sensitive_length_scale: Any = "median", n_sensitive_components: int = 100,
        amplitude: Any = "optimize", optimizer: str | None = "l-bfgs-b", n_restarts: int = 0,
        max_iter: int = 100, tol: float = 1e-5, length_scale_bounds: Any = None,
        amplitude_bounds: Any = None, eta: float | None = None, unfairness: float | None = None,
        cv: Any = None, penalty: str = "normalized", eps: float | None = None,
        sensitive_columns: Any = None, hide_sensitive: bool = False, n_jobs: int | None = None,
        random_state: Any = None,
    ) -> None:  # fmt: skip
        self._store(locals())

    def _learn(self, checked: Self, given_rows: Chunk) -> dict[str, Any]:
        coded = code_labels(checked, given_rows.x, given_rows.y, given_rows.weight)
        if coded is None:
            self._train(checked, given_rows, "float64")  # raises ValueError: y is missing
            raise ValueError("y is None; give the class labels of the rows")
        check_classes(coded)
        training = self._train(checked, replace(given_rows, y=coded.y), "float64")
        inputs = training.preparation.input_names(list(_check_feature_names_in(checked)))
        k = len(coded.classes)
        as_targets = OneHotLabels(coded.numbers, one_hot=k > 2)
        training = replace(
            training,
            source=training.source.then(as_targets),
            sample=as_targets(training.sample),
            n_targets=1 if k == 2 else k,
        )
        rows, spec = self._start(training), self._gp_spec(training, inputs)
        fit, held_out = fit_classes(spec, rows), dict[str, Any]()
        if self.cv is not None and self.unfairness is not None:
            fit, held_out = self._held_out(spec, rows, fit, training)
        design = replace(rows.design, phi=fit.phi or rows.design.phi)
        return self._process(fit, training, inputs, design) | held_out | {
            "classes_": coded.classes, "coef_": fit.distribution.coef.T,
            "n_passes_": fit.n_passes, "_evidence": fit.evidence,
        }  # fmt: skip

    def _held_out(
        self, spec: ProcessSpec, start: Rows, fit: GPClassifierFit, training: Training
    ) -> tuple[GPClassifierFit, dict[str, Any]]:
        """Return the process at the weight that meets the limit on folds, and its scores."""
        rows = replace(start, design=replace(start.design, phi=fit.phi or start.design.phi))
        folds, moments = self._fold_moments(rows, training)
        total, width = moments.total.weight, moments.total.blocks["phi"]

        def system(part: Moments) -> System:
            # The prior does not depend on the number of rows: α = 1/(2na²) does.
            ridge = np.full(width, total / part.weight)
            return System.build(part, fit_intercept=False, penalty=self.penalty, eps=self.eps, ridge=ridge)

        loss = LaplaceEvidence(spec, rows).loss
        whole = Problem(rows.source, rows.design, loss, system(moments.total), rows.chunk_rows)
        problem = FoldProblem.build(whole, folds, moments, system)
        alpha = np.array([ridge_of(fit.amplitude, total)])
        result = search_loss(problem, alpha, None, self.unfairness, finer=False)
        eta, held_out = self._on_folds(result.scores, result.etas, "loss")
        return at_weight(spec, rows, fit, eta), held_out

    def decision_function(self, X: Any, return_std: bool = False) -> Any:
        """Return the mean of f given y: log odds of the second class, or of each against the rest.

        Parameters
        ----------
        @ X
        return_std : bool
            Also return the standard deviation of f.

        Returns
        -------
        mean : array of shape (k,) or (k, number of classes)
            A lazy dask array for a dask collection; so is the standard deviation.
        std : array of the same shape, with `return_std`
        """
        check_is_fitted(self)
        if not return_std:
            return self._columns(self._predicted(X, self._distribution.mean), 0)
        mean, variance = self.latent_mean_and_variance(X)
        return mean, np.sqrt(variance)

    def latent_mean_and_variance(self, X: Any) -> tuple[Any, Any]:
        """Return the mean and the variance of f given y, as in scikit-learn.

        Parameters
        ----------
        @ X

        Returns
        -------
        mean, variance : arrays of shape (k,) or (k, number of classes)
        """
        check_is_fitted(self)
        both = self._predicted(X, self._distribution.mean_and_variance)
        return self._columns(both, 0), self._columns(both, self._distribution.coef.shape[1])

    def predict_proba(self, X: Any) -> Any:
        """Return the probabilities of the classes, in their order, averaged over f given y.

        The integral of the logistic function over the normal distribution of f is exact to 1e-13.

        @@ (k, number of classes)
        """
        check_is_fitted(self)
        return self._predicted(X, self._distribution.probabilities)

    def predict_log_proba(self, X: Any) -> Any:
        """Return the logarithms of :meth:`predict_proba`; −∞ where a probability is 0."""
        with np.errstate(divide="ignore"):
            return np.log(self.predict_proba(X))

    def predict(self, X: Any) -> Any:
        """Return the most likely class of each row.

        @@ (k,)
        """
        check_is_fitted(self)
        return decoded(self._predicted(X, self._distribution.codes), self.classes_)

    def _evidence_at(self, theta: Array, gradient: bool) -> tuple[float, Array | None]:
        if self._evidence is None:
            raise ValueError(
                "other hyperparameters and gradients need the training rows, which a saved model "
                "does not hold; fit it again"
            )
        return self._evidence.fixed(theta, self.eta_, gradient=gradient)

    def _columns(self, columns: Any, start: int) -> Array:
        """Return one number a row, or one for each class, from a column on."""
        k = self._distribution.coef.shape[1]
        return columns[:, start] if k == 1 else columns[:, start : start + k]  # type: ignore[no-any-return]
