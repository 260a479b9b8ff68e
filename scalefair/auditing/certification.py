"""Certify any model, from rows that it has not seen."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from scalefair._hash import digest
from scalefair._typing import Array, Chunk
from scalefair.auditing.certificate import (
    LEAST_ROWS,
    LIMITS,
    Certificate,
    Claim,
    check_calibration,
    fingerprint,
    functions_of,
    predicts,
)
from scalefair.data import is_stream, open_rows
from scalefair.errors import InputError, NotCertifiedError
from scalefair.features.base_model import container
from scalefair.measures._pair import UndefinedError
from scalefair.measures.group_metrics import difference
from scalefair.measures.groups import group_gaps
from scalefair.measures.share import distributions_of_rows, open_share
from scalefair.moments import Moments
from scalefair.moments.output_features import OutputKernel, OutputMap
from scalefair.penalties import variance_of


def certify(
    model: Any, X: Any = None, *, sensitive_features: Any, unfairness: float,
    confidence: float = 0.95, limit_on: str = "scores", sample_weight: Any = None,
    threshold: float | None = None, sensitive_kernel: Any = "auto",
    n_sensitive_components: int = 100, random_state: int = 0,
) -> Certificate:  # fmt: skip
    """Certify that a model keeps a limit on the population, from rows that it has not seen.

    Parameters
    ----------
    model : fitted model, or array-like of shape (n,) or (n, t)
        Anything that predicts, of scalefair or not; or its predictions, and X is None.
    X : array, data frame, dask collection or scan of shape (n, d), optional
        Inputs of rows that took no part in fitting or choosing the model.
    sensitive_features : array, Series, frame, dask collection or scan of shape (n,) or (n, p)
        Attributes of the same rows.
    unfairness : float
        The limit; for "means" in units of the predictions.
    confidence : float in (0, 1), default=0.95
        A model beyond the limit is certified with at most the remaining probability.
    limit_on : {"scores", "output", "means", "decisions"}, default="scores"
        The explained share of the scores; that of their whole distribution (`output_share_`); the
        largest difference between groups in mean prediction; or in the rate of positive decisions.
    sample_weight : array-like of shape (n,), optional
        Relative; rows are counted by Kish's (Σw)²/Σw².
    threshold : float, optional
        Scores from here on are positive decisions, where the model does not predict labels.
    sensitive_kernel, n_sensitive_components
        Functions of the attributes, as in the estimators.
    random_state : int
        Of landmarks and samples.

    Returns
    -------
    Certificate

    Raises
    ------
    NotCertifiedError (a ValueError)
        With the least limit that would be certified, and about how many rows the limit needs.
    ValueError
        Where nothing can be said: constant predictions, fewer than 50 rows, groups of fewer than
        two, rows that the model was fitted on (where that can be known).

    Notes
    -----
    For numeric attributes the limit must hold for the ridges 1e-6, 1e-4 and 1e-2 of the function of
    s. Rows that are not in memory are read twice, and memory does not grow with them.

    Examples
    --------
    >>> import numpy as np
    >>> from scalefair import certify
    >>> rng = np.random.default_rng(0)
    >>> sex, score = rng.choice(["f", "m"], 2000), rng.normal(size=2000)
    >>> certificate = certify(score, sensitive_features=sex, unfairness=0.01)
    >>> certificate.upper_bound <= 0.01
    True
    """
    claim = Claim.of(unfairness, confidence, limit_on)
    f, s, weight = _opened(model, X, sensitive_features, sample_weight, limit_on)
    if limit_on in ("means", "decisions"):
        return _certify_gap(claim, model, f, s, weight, threshold)
    try:
        features = open_share(
            f, s, weight, kernel=sensitive_kernel, length_scale="median",
            size=n_sensitive_components, random_state=random_state,
        )  # fmt: skip
    except UndefinedError as error:
        raise InputError(f"nothing can be certified: {error}") from error
    if limit_on == "output":
        (moments,) = features.moments()
        deviation = np.sqrt(np.diagonal(moments.covariance("phi", "phi")))
        features = replace(features, phi=OutputMap(OutputKernel.gaussian(), deviation))
    (moments,) = features.moments()
    check_calibration(moments)
    if _has_seen(model, moments):
        raise InputError(
            f"X holds the {moments.n_rows:,} rows that the model was fitted on: their number, and "
            "mean and variance of its predictions on them, are the same",
            "give rows that it has not seen",
        )
    found = distributions_of_rows(features, moments)
    if any(one.probability(claim.limit)[0] > 1 - claim.confidence for one in found):
        raise claim.error(found)
    return claim.certificate(
        "new rows", moments.n_rows, max(float(one.share[0]) for one in found),
        max(float(one.upper(claim.confidence)[0]) for one in found), functions_of(moments),
        fingerprint(model), digest([moments.offset, moments.scatter]),
    )  # fmt: skip


def _opened(model: Any, X: Any, s: Any, weight: Any, limit_on: str) -> tuple[Any, Any, Any]:
    """Return predictions, attributes and weights; one source of all, of rows not in memory."""
    if not predicts(model):
        if X is not None:
            raise TypeError(
                f"model is a {type(model).__name__} that cannot predict, and X is given; give a "
                "fitted model and X, or predictions alone"
            )
        return model, s, weight
    if X is None:
        raise TypeError("X=None; give the inputs of rows that the model has not seen")
    predict = Predict(model, limit_on)
    if not is_stream(X):
        return predict.scores(X), s, weight
    return open_rows(X, s, weight=weight).source.then(predict), None, None


@dataclass(frozen=True, eq=False)
class Predict:
    """Replaces the inputs of chunks by scores, or by decisions 0 and 1."""

    model: Any
    limit_on: str

    def __call__(self, chunk: Chunk) -> Chunk:
        """Return the chunk with predictions for x."""
        return replace(chunk, x=self.scores(chunk.x).reshape(chunk.n_rows, -1))

    def scores(self, X: Any) -> Array:
        """Return what the limit is about, for some inputs."""
        model, x = self.model, container(X)
        labels = getattr(model, "classes_", None)
        if labels is not None and self.limit_on == "decisions":
            if len(labels) != 2:
                raise ValueError(
                    f"limit_on='decisions' needs two classes, the model has {len(labels)}; certify "
                    "one class against the others, as predictions 0 and 1"
                )
            return np.asarray(np.asarray(model.predict(x)) == labels[1], dtype=np.float64)
        if labels is not None and callable(getattr(model, "decision_function", None)):
            return np.asarray(model.decision_function(x), dtype=np.float64)
        if labels is not None:
            return np.asarray(model.predict_proba(x), dtype=np.float64)[:, 1:]
        # Of a loss with a link, parity is about the scores, not about the means predicted.
        predict = getattr(model, "predict_scores", model.predict)
        return np.asarray(predict(x), dtype=np.float64)


def _has_seen(model: Any, moments: Moments) -> bool:
    """Return True if the rows are those of the fit: as many, and f has the same mean and variance.

    Of the fit's own moments they are b + mean(Φ)β and βᵀCβ.
    """
    own, design = (getattr(model, name, None) for name in ("moments_", "_design"))
    if not isinstance(own, Moments) or design is None or own.n_rows != moments.n_rows:
        return False
    coef = np.atleast_2d(model.coef_).T
    if coef.shape[1] != moments.blocks["phi"]:
        return False
    mean = own.mean(*design.features) @ coef + model.intercept_
    variance = variance_of(own, design.features, coef)
    found = np.diagonal(moments.covariance("phi", "phi"))
    return bool(
        np.allclose(variance, found, rtol=1e-6)
        and np.allclose(mean, moments.mean("phi"), atol=1e-6 * float(np.sqrt(variance.max())))
    )


def _certify_gap(  # noqa: PLR0917
    claim: Claim, model: Any, f: Any, s: Any, weight: Any, threshold: float | None
) -> Certificate:
    """Certify the largest gap between groups: every pair must be within the limit.

    All must pass, so that each may be tested at the level of the whole.
    """
    metric = {"means": "mean_prediction", "decisions": "selection_rate"}[claim.limit_on]
    gaps = group_gaps(
        f, sensitive_features=s, sample_weight=weight, threshold=threshold, metrics=[metric]
    )
    frame = list(gaps.frames.values())[-1]
    rows = int(frame.counts.sum())
    if rows < LEAST_ROWS or frame.counts.min() < 2:
        raise InputError(
            f"{rows} rows in groups of at least {frame.counts.min()} are too few to certify "
            f"anything, at least {LEAST_ROWS} and 2 are needed",
            "merge rare groups, or give more rows",
        )

    def bound(confidence: float) -> float:
        # `difference` divides what is left of the level among all pairs, and both ends.
        pairs = len(frame.counts) * (len(frame.counts) - 1) // 2
        level = 1 - 2 * (1 - confidence) * pairs
        return float(difference(frame.estimates[metric], level, frame.comparable).high)

    estimate, upper = float(np.ptp(frame.estimates[metric].value)), bound(claim.confidence)
    if not upper <= claim.limit:
        # Half of what the bound adds needs four times the rows.
        left = claim.limit - estimate
        needed = rows * ((upper - estimate) / left) ** 2 if left > 0 else np.inf
        raise NotCertifiedError(
            LIMITS[claim.limit_on], claim.limit, claim.confidence, upper, needed
        )
    return claim.certificate(
        "new rows", rows, estimate, upper, f"means of the {len(frame.counts)} groups of "
        f"{frame.name}", fingerprint(model), digest(frame.estimates[metric].value),
    )  # fmt: skip
