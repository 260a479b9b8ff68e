"""Where the explained share comes from: its exact, signed split over the columns of X.

    θ = Cov(f, g) / Var f,   f = Σ_l f_l   ⇒   θ = Σ_l θ_l,   θ_l = Cov(f_l, g) / Var f

A part f_l is what one column of X contributes to f linearly, a base model's prediction, ψ(s) where
the model sees it, or the rest. All are linear functions of the rows z that moments are made of.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from scipy.sparse import csc_array, eye_array
from sklearn.base import BaseEstimator
from sklearn.utils.validation import _check_feature_names_in, check_is_fitted

from scalefair._linalg import inverse_root
from scalefair._typing import Array, Chunk, DataFrame
from scalefair.data import frames
from scalefair.data.sources import ChunkSource
from scalefair.errors import InputError
from scalefair.features.base import n_features, whitened
from scalefair.features.blocks import Control
from scalefair.features.design import Block, Design, Predictor, counted_rows, in_blocks
from scalefair.features.exact import Identity, OneHot
from scalefair.features.mixed import CROSSED, SAMPLE_ROWS, Crossed, Units, all_columns, mixed_map, units_of
from scalefair.features.partial import lacks
from scalefair.features.product import ConcatMap
from scalefair.features.rows import open_predict_rows
from scalefair.features.training import learn_design, open_inputs
from scalefair.measures.split import Split, View, standard_errors
from scalefair.moments import Moments, accumulate
from scalefair.moments.moments import CrossMoments

OTHERS = {
    "psi": "(sensitive attributes)",
    "base": "(base model)",
    "curve": "(base model)",
    "ridge_curve": "(curve)",
    "scores": "(nonlinear rest)",
    "y": "(nonlinear rest)",
}
"""Names of the parts of f that are no columns of X, by block of the rows."""

CUTOFF = 1e-10  # Directions of the correlation matrix of X below it are duplicates of others
COMPONENTS = 100  # Landmarks of the map of one attribute alone


def explain_share(
    model: Any, X: Any = None, *, sensitive_features: Any = None, sample_weight: Any = None,
    control_features: Any = None, baseline: Any = None,
) -> DataFrame:  # fmt: skip
    """Split the explained share into contributions of the columns of X.

    Parameters
    ----------
    model : fitted estimator of scalefair, or array-like of shape (n,) or (n, t)
        Or the predictions of any model for the rows of X, as numbers.
    X : array, frame, dask collection, Scan or BatchSource of shape (n, d), optional
        Rows to explain, as in `predict`. A linear model that has its moments needs none: then its
        training rows are explained, without standard errors.
    sensitive_features : the same, of shape (n,) or (n, p), optional
        Of these rows; None where `sensitive_columns` of the model names columns of X.
    sample_weight : array-like of shape (n,), optional
        Weight 2 is the row twice; standard errors count rows by Kish's (Σw)²/Σw².
    control_features : as in `fit`, optional
        For a model that was fitted with them, or with predictions.
    baseline : as `model`, optional
        What to compare with, as "before". By default the model without its penalty, which ridges
        and :class:`FairGPRegressor` compute from their moments. Other models have none.

    Returns
    -------
    data frame
        Column `attribute`: all sensitive attributes, joined by " × ", then each of several. `column`: of X (those that
        it was encoded to, joined); "(base model)", its prediction (and those of s where s is hidden); "(curve)",
        functions of f that an output kernel brings; "(sensitive attributes)", ψ(s) where the model sees it; "(nonlinear
        rest)", what is not linear in the columns of X. `before`, `before_error`: contribution without the penalty, and
        its standard error. `after`, `after_error`: contribution to the share of the model.

    Notes
    -----
    The contributions to one attribute add up to the share of the variance of the predictions (of a
    classifier, of its scores) that it explains in the rows given, without correction for chance.
    They are signed: a column that works against the others has a negative one. Columns that are
    copies of each other share theirs; nearly equal ones have large contributions of opposite signs.

    A standard error is that of the rows, for the model as it is: of the influence of a row on θ_l, u = [f̂_l g + g_l
    (f̂ − g) − θ_l f̃²] / Var f, g_l being the best function of s for f_l, and f̂ what a control leaves of f. Rows are
    read twice, three times where one of several attributes is a number or there is a control; memory does not grow with
    them. Of a model that was fitted with ``missing_labels="partial"``, rows that lack s are left out.

    Examples
    --------
    >>> import numpy as np
    >>> from scalefair import FairRidge, explain_share
    >>> rng = np.random.default_rng(0)
    >>> sex = rng.choice(["f", "m"], 2000)
    >>> X = rng.normal(size=(2000, 2)) + np.outer(sex == "m", [1.0, 0.0])
    >>> y = X.sum(axis=1) + rng.normal(size=2000)
    >>> model = FairRidge(unfairness=0.01).fit(X, y, sensitive_features=sex)
    >>> explain_share(model, X, sensitive_features=sex)[["column", "before", "after"]].round(3)
      column  before  after
    0     x0   0.112   0.01
    1     x1   0.000   0.00
    """
    given = Chunk(X, sensitive_features, None, sample_weight, c=control_features)
    models = _explained(model, given, before=baseline is None)
    if baseline is not None:
        models = [_explained(baseline, given, before=False)[-1], *models]
    names = list(dict.fromkeys(name for contributions in models for _, name in contributions))
    whens, table = ("before", "after")[-len(models) :], list[dict[str, Any]]()
    for attribute in dict.fromkeys(attribute for attribute, _ in models[-1]):
        cells = [{n: own.get((attribute, n), (0.0, 0.0)) for n in names} for own in models]
        for name in sorted(names, key=lambda name: -abs(cells[0][name][0])):
            row: dict[str, Any] = {"attribute": attribute, "column": name}
            for when, own in zip(whens, cells, strict=True):
                row[when], row[f"{when}_error"] = own[name]
            table.append(row)
    return frames.make_frame({name: [row[name] for row in table] for name in table[0]})


Contributions = dict[tuple[str, str], tuple[float, float]]
"""θ_l and its standard error, by attribute and part."""


def _explained(model: Any, given: Chunk, *, before: bool) -> list[Contributions]:
    """Explain a model, and first what it would be without its penalty if `before` and known."""
    if isinstance(model, BaseEstimator) or hasattr(model, "predict"):
        check_is_fitted(model)
        if "_design" in vars(model):
            plain = model._without_penalty() if before and not model._is_ordinary() else None
            return explain_models([one for one in (plain, model) if one is not None], given)
        raise TypeError(
            f"model={model!r} is not an estimator of scalefair; give its predictions, as in "
            "explain_share(model.predict(X), X, sensitive_features=s)"
        )
    if given.x is None:
        raise TypeError("X=None; give the rows that were predicted, and sensitive_features")
    training = open_inputs(replace(given, y=model), {"y": "model"})
    design = learn_design(training, dtype="float64", sees_sensitive=False)
    design = replace(design, beside=(*design.beside, *_alone(design, training.source)))
    names = [column.name for column in training.survey.parts["x"].columns.columns]
    columns = training.preparation.input_columns(names)
    (moments,) = accumulate(training.source, design)
    form = Form(columns, [{"y": np.eye(design.n_targets)}])
    return _explain(form, design, moments, training.source)


def explain_models(models: Sequence[Any], given: Chunk) -> list[Contributions]:
    """Explain fitted models that share their features by the same passes over the rows."""
    model = models[-1]
    design: Design = model._design
    _check_model(model, design, given)
    coefs = [one._feature_coef() for one in models]
    prepared: Any = design.preparation
    columns = prepared.input_columns([str(name) for name in _check_feature_names_in(model)])
    form = Form(columns, [design.split_coef(coef) for coef in coefs])
    if given.x is None:
        return _explain(form, design, model.moments_.judged, None)
    opened = open_predict_rows(model, given.x, design, s=given.s, weight=given.weight, c=given.c)
    _check_beside(prepared, next(opened.chunks(1)))
    design = replace(design, n_targets=0, dtype=np.float64, partial=False, propensity=None)
    alone = _alone(design, _rows(replace(design, beside=()), opened))
    narrow = replace(design, whiten_rows=True, beside=(*design.beside, *alone))
    if not isinstance(design.phi, Identity):
        narrow, form = _with_scores(narrow, form, [design.raw_coef(coef)["phi"] for coef in coefs])
    source = _rows(narrow, opened)
    (moments,) = accumulate(source, narrow)
    return _explain(form, narrow, moments, source)


def _rows(design: Design, opened: ChunkSource) -> ChunkSource:
    """Return numeric chunks, in which rows that lack s have the weight 0."""
    return design.numbers(opened, sensitive=True).then(without_unknown)


def without_unknown(chunk: Chunk) -> Chunk:
    """Give rows that lack s the weight 0."""
    unknown = lacks(chunk.s)
    return replace(chunk, weight=np.where(unknown, 0.0, chunk.weights)) if unknown.any() else chunk


def _with_scores(design: Design, form: Form, raw: list[Array]) -> tuple[Design, Form]:
    """Replace φ by x, and join φ(x)β of all models, from the coefficients of raw rows of φ."""
    both = np.hstack(raw)
    start = replace(design, beside=()).predictor({"phi": both}, 0.0)
    scores = Columns("scores", both.shape[1], partial(_predicted, start))
    own = np.split(np.eye(both.shape[1]), len(raw), axis=1)
    coefs = [
        {name: part for name, part in coef.items() if name != "phi"} | {"scores": unit}
        for coef, unit in zip(form.coefs, own, strict=True)
    ]
    phi = Identity().fit(np.zeros((1, form.columns[-1][1].stop)))
    return replace(design, phi=phi, beside=(*design.beside, scores)), Form(form.columns, coefs)


def _predicted(start: Callable[[], Predictor], chunk: Chunk) -> Array:
    return in_blocks(start)(chunk)  # with a buffer of its own: threads share the block


def _check_model(model: Any, design: Design, given: Chunk) -> None:
    """Raise ValueError if a model has no share, no features, or too little to do without rows."""
    name, remedy = type(model).__name__, "explain_share(model.predict(X), X, sensitive_features=s)"
    if design.psi is None:
        raise ValueError(
            f"{name} was fitted without sensitive attributes, so it has no share; give its predictions: {remedy}"
        )
    if "moments_" not in vars(model):
        raise ValueError(
            f"{name} with feature_map='exact' has no features that its share could be split by; "
            f"use feature_map='nystroem', or give predictions: {remedy}"
        )
    linear = isinstance(design.phi, Identity) and not isinstance(model.moments_, CrossMoments)
    if given.x is None and not linear:
        what = f"X=None, but {name} is not linear in the columns of X, or has no moments of them"
        raise InputError(what, "give X and sensitive_features", where="X")


def _check_beside(prepared: Any, first: Chunk) -> None:
    """Raise ValueError if attributes or control features are passed, or not, unlike in fit."""
    for name, given, needed in (
        ("sensitive_features", first.s is not None, prepared.sensitive_columns is None),
        ("control_features", first.c is not None, prepared.control_encoder is not None),
    ):
        if given != needed:
            raise ValueError(
                f"{name} {'are missing' if needed else 'are given'}, but the model was fitted "
                f"{'with' if needed else 'without'} them; pass the same to fit and explain_share"
            )


@dataclass(frozen=True, eq=False)
class Columns(Block):
    """Columns that a function makes of a chunk."""

    name: str = ""  # type: ignore[misc]
    width: int = 0
    function: Any = None
    units: Units = ()
    key: str = ""

    def rows(self, chunk: Chunk) -> Any:
        """Return the columns, of shape (k, width)."""
        return self.function(chunk)


def _alone(design: Design, rows: ChunkSource) -> list[Columns]:
    """Return ψ_j(s_j), or ξ_j(s_j, c), of several attributes; none for groups: those of intersections are enough."""
    encoder: Any = design.preparation.sensitive_encoder  # type: ignore[union-attr]
    control = [block.upsilon for block in design.beside if isinstance(block, Control)]
    groups = isinstance(design.psi, OneHot)
    if len(encoder.names_) < 2 or (groups and not control):
        return []
    linear = isinstance(design.psi, Identity | ConcatMap)
    kernel = "linear" if linear else "categorical" if groups else "auto"
    sample, blocks = rows.sample(SAMPLE_ROWS, 0), []
    if sample.weight is not None:
        sample = sample.take(np.flatnonzero(sample.weight))
    for j, name in enumerate(encoder.names_):
        s, levels = sample.s[:, [j]], len(encoder.levels_.get(name, ()))
        made: Any = mixed_map(
            kernel, "median", COMPONENTS, rows=s, weight=sample.weight, seed=0,
            categorical=encoder.categorical_[[j]],
            groups=np.arange(levels, dtype=float)[:, None] if levels else None,
        )  # fmt: skip
        for upsilon in control:
            most = CROSSED * COMPONENTS
            made = Crossed.fit(made, upsilon, s, sample.c, sample.weights, most=most, seed=0)
        width = made.width if control else n_features(made)
        blocks.append(Columns(f"alone {j}", width, partial(_of_one, made, j), units_of(made)))
    return blocks


def _of_one(made: Any, j: int, chunk: Chunk) -> Any:
    """ψ_j(s_j) or ξ_j(s_j, c); zero for rows of weight zero."""

    def of(at: Any) -> Array:
        s = np.ascontiguousarray(chunk.s[at][:, [j]])
        return made.rows(s, chunk.c[at]) if isinstance(made, Crossed) else whitened(made, s)

    return counted_rows(of, chunk, np.arange(chunk.n_rows))


def _views(design: Design, moments: Moments) -> list[View]:
    """Return the views of all attributes together and, where there are several, of each."""
    names = design.preparation.sensitive_encoder.names_  # type: ignore[union-attr]
    unit = eye_array(len(moments.shift), format="csc")
    control = {n: unit[:, moments.span(n)] for n in ("upsilon",) if n in moments.blocks}
    of = "xi" if control else "psi"
    own = unit[:, moments.span(of)]
    views = [View(" × ".join(names), control | {of: own}, dict(moments.units))]
    for j, name in enumerate(names if len(names) > 1 else ()):
        if f"alone {j}" in moments.blocks:
            mine, units = unit[:, moments.span(f"alone {j}")], moments.units[f"alone {j}"]
        elif isinstance(design.psi, OneHot) and not control:
            values = design.psi.combinations_[:, j]
            mine = own @ csc_array(values[:, None] == np.unique(values), dtype=float)
            units = all_columns("groups", mine.shape[1])
        else:  # stored moments do not have it
            continue
        views.append(View(name, control | {of: mine}, {of: units}))
    return views


@dataclass(frozen=True, eq=False)
class Form:
    """What f is made of: columns of x, and coefficients of each block of the rows, by model.

    Without coefficients of x itself, what is linear in it is taken from the last block.
    """

    columns: list[tuple[str, slice]]
    coefs: list[dict[str, Array]]

    def parts(self, m: Moments, coef: dict[str, Array], inverse: Array | None) -> tuple[list[str], Array, Array | None]:
        """Return the names of the parts of f, W (p, k·t), and `member` of `Split.of`."""
        slopes, x = coef.get("phi"), m.span("phi")
        if inverse is not None:
            *_, (last, own) = coef.items()
            slopes = inverse @ m.covariance("phi", last) @ own
        names = [name for name, _ in self.columns]
        names += dict.fromkeys(OTHERS[block] for block in coef if block != "phi")
        W = np.zeros((len(m.shift), len(names), slopes.shape[1]))  # type: ignore[union-attr]
        member = np.zeros((len(x), len(names)))
        for part, (_, columns) in enumerate(self.columns):
            W[x[columns], part], member[columns, part] = slopes[columns], 1.0  # type: ignore[index]
        for block, own in coef.items():
            if block != "phi":
                W[m.span(block), names.index(OTHERS[block])] = own
        if inverse is not None:
            W[x, -1] = -slopes  # type: ignore[operator]
        return names, W.reshape(len(W), -1), None if inverse is None else member


def _explain(form: Form, design: Design, moments: Moments, source: ChunkSource | None) -> list[Contributions]:
    """Explain the models of a form; without a source there are no standard errors."""
    linear, outputs = "phi" in form.coefs[0], next(iter(form.coefs[0].values())).shape[1]
    inverse = None
    if not linear:  # C⁻¹ on the range of C, in units in which its diagonal is 1
        C = moments.covariance("phi", "phi")
        scale = 1 / np.sqrt(np.where(np.diagonal(C) > 0, np.diagonal(C), 1.0))
        root = scale[:, None] * inverse_root(scale[:, None] * C * scale, 0.0, CUTOFF)
        inverse = np.asarray(root @ root.T)
    models = [form.parts(moments, coef, inverse) for coef in form.coefs]
    views = _views(design, moments)
    splits = [Split.of(moments, csc_array(W), outputs, v, own) for _, W, own in models for v in views]
    errors = [np.full(len(split.values), np.nan) for split in splits]
    if source is not None:
        errors = standard_errors(source, design, moments, splits, inverse)
    found, results = zip(splits, errors, strict=True), list[Contributions]()
    for names, _, _ in models:
        own: Contributions = {}
        for view, (split, error) in zip(views, found, strict=False):
            values = zip(split.values.tolist(), error.tolist(), strict=True)
            own |= {(view.name, name): pair for name, pair in zip(names, values, strict=True)}
        results.append(own)
    return results
