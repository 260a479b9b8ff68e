"""Certify any model, from rows that it was not fitted on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from scalefair._hash import digest
from scalefair._typing import Array, Chunk
from scalefair.auditing.certificate import (
    LEAST_ROWS,
    Certificate,
    Claim,
    check_calibration,
    fingerprint,
    functions_of,
    predicts,
)
from scalefair.data import frames, is_stream, open_rows
from scalefair.errors import InputError
from scalefair.features.base_model import container
from scalefair.features.design import Design
from scalefair.features.exact import Identity
from scalefair.features.training import learn_design, open_inputs
from scalefair.measures._pair import UndefinedError
from scalefair.measures.bounds import ERROR_ROWS, ShareDistribution, share_distributions
from scalefair.measures.group_metrics import upper_gap
from scalefair.measures.groups import GroupFrame, group_gaps
from scalefair.measures.share import distributions_of_rows, open_share
from scalefair.moments import Moments, accumulate
from scalefair.moments.output_features import OutputKernel, OutputMap
from scalefair.penalties import variance_of

GIVEN = "given "  # Before the names of control features, and of targets, among those of the attributes


def certify(
    model: Any, X: Any = None, *, sensitive_features: Any, unfairness: float,
    confidence: float = 0.95, limit_on: str = "scores", y_true: Any = None,
    control_features: Any = None, sample_weight: Any = None, threshold: float | None = None,
    sensitive_kernel: Any = "auto", n_sensitive_components: int = 100, random_state: int = 0,
) -> Certificate:  # fmt: skip
    """Certify that a model keeps a limit in the population, from rows that it was not fitted on.

    Parameters
    ----------
    model : fitted model, or array-like of shape (n,) or (n, t)
        Any model, from scalefair or elsewhere; or its predictions, and X is None.
    X : array, data frame, dask collection or scan of shape (n, d), optional
        Inputs of rows that took no part in fitting or choosing the model.
    sensitive_features : array, Series, frame, dask collection or scan of shape (n,) or (n, p)
        Attributes of the same rows.
    unfairness : float
        The limit; for "means" in units of the predictions.
    confidence : float in (0, 1), default=0.95
        A model beyond the limit is certified with at most the remaining probability.
    limit_on : {"scores", "output", "means", "decisions", "odds"}, default="scores"
        The explained share of the scores; that of their whole distribution (`output_share_`); the
        largest difference between groups in mean prediction; in the rate of positive decisions; or
        in that rate at every value of the target (equalised odds).
    y_true : array-like of shape (n,), optional
        Targets of the same rows, for "odds": classes.
    control_features : as `sensitive_features`, optional
        Factors on which predictions may depend: the share is that of the part of the predictions
        that they do not explain, and groups are compared at each level (of categories or few numbers).
    sample_weight : array-like of shape (n,), optional
        Relative; rows are counted by Kish's (Σw)²/Σw².
    threshold : float, optional
        Scores of at least this number are positive decisions, if the model does not predict labels.
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
        With the smallest limit that would be certified, and roughly how many rows the limit needs.
    ValueError
        If no statement is possible: constant predictions, fewer than 50 rows, groups of fewer than
        two, rows that the model was fitted on (if that can be detected).

    Notes
    -----
    For numeric attributes the limit must hold for the ridges 1e-6, 1e-4 and 1e-2 of the function of
    s. Rows that are not in memory are read twice, and memory does not grow with their number.

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
    given = Chunk(X, sensitive_features, _targets(y_true, limit_on), sample_weight)
    given = _opened(model, replace(given, c=control_features), limit_on)
    check_new = partial(_check_new, model, X, sample_weight)
    if limit_on not in ("scores", "output"):
        return _certify_gap(claim, fingerprint(model), given, threshold, check_new)
    try:
        maps = sensitive_kernel, n_sensitive_components, random_state
        moments, found = _distributions(given, *maps, output=limit_on == "output")
    except UndefinedError as error:
        raise InputError(f"nothing can be certified: {error}") from error
    check_calibration(moments)
    check_new(moments.n_rows)
    if not all(one.probability(claim.limit)[0] <= 1 - claim.confidence for one in found):
        raise claim.error(found)
    said = functions_of(moments), fingerprint(model), digest([moments.offset, moments.scatter])
    return claim.certificate("new rows", moments.n_rows, *claim.numbers(found), *said)


def _targets(y_true: Any, limit_on: str) -> Any:
    """Return targets for "odds", classes of rows in memory as numbers; None for other limits."""
    if (y_true is None) == (limit_on == "odds"):
        raise TypeError(
            f"limit_on={limit_on!r} {'needs' if y_true is None else 'takes no'} y_true; give "
            "targets with limit_on='odds', and only there"
        )
    if y_true is None or is_stream(y_true):
        return y_true
    return np.unique(np.asarray(y_true), return_inverse=True)[1]


def _opened(model: Any, given: Chunk, limit_on: str) -> Chunk:
    """Put predictions in the place of X; one source of all, of rows not in memory."""
    if not predicts(model):
        if given.x is not None:
            raise TypeError(
                f"model is a {type(model).__name__} that cannot predict, and X is given; give a "
                "fitted model and X, or predictions alone"
            )
        return replace(given, x=model)
    if given.x is None:
        raise TypeError("X=None; give the inputs of rows that the model has not seen")
    predict = Predict(model, limit_on)
    if not is_stream(given.x):
        return replace(given, x=predict.scores(given.x))
    parts = (given.x, given.s, given.y, given.weight, given.c)
    return Chunk(open_rows(*parts).source.then(predict), None)


def _distributions(
    given: Chunk, kernel: Any, size: int, seed: int, *, output: bool
) -> tuple[Moments, list[ShareDistribution]]:
    """Return the moments of [f, ψ, control] and the distributions of the share."""
    controlled = given.c is not None
    if given.s is None and is_stream(given.x):
        controlled = next(given.x.chunks(1)).c is not None
    if not controlled:
        features: Any = open_share(
            given.x, given.s, given.weight, kernel=kernel, length_scale="median", size=size, random_state=seed
        )
        if output:
            features = replace(features, phi=_output_map(*features.moments()))
        (moments,) = features.moments()
        return moments, distributions_of_rows(features, moments)
    training = open_inputs(given, {"x": "model"})
    maps = {"sensitive_kernel": kernel, "n_sensitive_components": size, "random_state": seed}
    training = replace(training, spec=replace(training.spec, **maps))
    design = learn_design(training, dtype="float64", sees_sensitive=False)
    if output:
        design = replace(design, phi=_output_map(*accumulate(training.source, design)))
    (moments,) = accumulate(training.source, design)
    chunk = training.source.sample(ERROR_ROWS, seed)
    rows, outputs = design.block_rows(chunk), moments.blocks["phi"]
    return moments, share_distributions(moments, rows, chunk.weights, outputs=outputs)


def _output_map(moments: Moments) -> OutputMap:
    deviation = np.sqrt(np.diagonal(moments.covariance("phi", "phi")))
    return OutputMap(OutputKernel.gaussian(), deviation)


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
        if labels is not None and self.limit_on in ("decisions", "odds"):
            if len(labels) != 2:
                raise ValueError(
                    f"limit_on={self.limit_on!r} needs two classes, the model has {len(labels)}; "
                    "certify one class against the others, as predictions 0 and 1"
                )
            return np.asarray(np.asarray(model.predict(x)) == labels[1], dtype=np.float64)
        if labels is not None and callable(getattr(model, "decision_function", None)):
            return np.asarray(model.decision_function(x), dtype=np.float64)
        if labels is not None:
            return np.asarray(model.predict_proba(x), dtype=np.float64)[:, 1:]
        # Of a loss with a link, parity is about the scores, not about the means predicted.
        predict = getattr(model, "predict_scores", model.predict)
        return np.asarray(predict(x), dtype=np.float64)


def _check_new(model: Any, X: Any, weight: Any, n_rows: int) -> None:
    """Raise InputError if the rows are those of the fit: as many, and Var f, predicted once more, is the same."""
    own, design = (getattr(model, name, None) for name in ("moments_", "_design"))
    if X is None or not isinstance(own, Moments) or design is None or own.n_rows != n_rows:
        return
    coef = np.atleast_2d(model.coef_).T
    scores = open_rows(X, None, None, weight).source.then(Predict(model, "scores"))
    phi = Identity().fit(np.zeros((2, coef.shape[1])))
    variance = np.diagonal(accumulate(scores, Design(phi, n_targets=0))[0].covariance("phi", "phi"))
    if np.allclose(variance_of(own, design.features, coef), variance, rtol=1e-6, atol=0.0):
        raise InputError(
            f"X holds the {n_rows:,} rows that the model was fitted on: their number, and the "
            "variance of its predictions on them, are the same",
            "give rows that it has not seen",
        )


def _certify_gap(
    claim: Claim, model: str, given: Chunk, threshold: float | None, check_new: Callable[[int], None]
) -> Certificate:
    """Certify the largest gap: all pairs of groups must pass, so each may be tested at the level of the whole."""
    metric = "mean_prediction" if claim.limit_on == "means" else "selection_rate"
    parts = (given.x, given.s, given.y, given.weight, given.c)
    source = open_rows(*parts, names={"x": "model"}).source.then(_with_controls)
    gaps = group_gaps(source, sensitive_features=None, threshold=threshold, metrics=[metric])
    frame = list(gaps.frames.values())[-1]
    rows = int(frame.counts.sum())
    if rows < LEAST_ROWS or frame.counts.min() < 2:
        raise InputError(
            f"{rows} rows in groups of at least {frame.counts.min()} are too few to certify "
            f"anything, at least {LEAST_ROWS} and 2 are needed",
            "merge rare groups, or give more rows",
        )
    check_new(rows)
    estimate, upper = _largest_gap(frame, metric, next(source.chunks(1)), claim.confidence)
    claim.check_gap(rows, estimate, upper)
    return claim.certificate(
        "new rows", rows, estimate, upper, f"means of the {len(frame.counts)} groups of "
        f"{frame.name}", model, digest(frame.estimates[metric].value),
    )  # fmt: skip


def _with_controls(chunk: Chunk) -> Chunk:
    """Put control features and targets beside the attributes, under names that tell them apart."""
    if chunk.c is None and chunk.y is None:
        return chunk
    table: dict[str, Any] = {}
    for name, part in (("s", chunk.s), ("c", chunk.c), ("y", chunk.y)):
        if part is None:
            continue
        for column in frames.columns(frames.as_table(part, one_column=True), name):
            codes, levels = column.codes()
            texts = np.array([*levels, None], dtype=object)[codes]
            numbers = column.kind != "categorical"
            table[GIVEN * (name != "s") + column.name] = column.floats() if numbers else texts
    return replace(chunk, s=frames.make_frame(table), y=None, c=None)


def _largest_gap(frame: GroupFrame, metric: str, first: Chunk, confidence: float) -> tuple[float, float]:
    """Return the largest gap between groups at equal controls, and its upper bound."""
    asked = [c.name for c in frames.columns(frames.as_table(first.s, one_column=True), "s")]
    for name in asked:
        if name.startswith(GIVEN) and name not in frame.attributes:
            raise InputError(
                f"{name.removeprefix(GIVEN)!r} has too many values to compare groups at each",
                "cut it into a few levels",
            )
    at = [j for j, name in enumerate(frame.attributes) if name.startswith(GIVEN)]
    keys = [tuple(levels[j] for j in at) for levels in frame.levels]
    found = []
    for key in dict.fromkeys(keys):
        used = np.array([other == key for other in keys])
        if used.sum() > 1:
            found.append(upper_gap(frame.estimates[metric], confidence, used))
    if not found:
        raise InputError("no two groups have rows at an equal control", "give a coarser control")
    return max(value for value, _ in found), max(high for _, high in found)
