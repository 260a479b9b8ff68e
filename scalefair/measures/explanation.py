"""Where the explained share comes from: its exact, signed split over the columns of X.

    θ = Cov(f, g) / Var f,   f = Σ_l f_l   ⇒   θ = Σ_l θ_l,   θ_l = Cov(f_l, g) / Var f

A part f_l is what one column of X contributes to f linearly, a base model's prediction, ψ(s) where
the model sees it, or the rest. All are linear functions of the rows z that moments are made of.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.utils.validation import _check_feature_names_in, check_is_fitted

from scalefair._linalg import inverse_root, positive_eigh
from scalefair._typing import Array, Chunk, FeatureMap, Rows
from scalefair.data import frames
from scalefair.data.open import Preparation
from scalefair.data.sources import ChunkSource
from scalefair.features.base import n_features, whitened
from scalefair.features.blocks import Control
from scalefair.features.design import Block, Design, Predictor, counted_rows, in_blocks
from scalefair.features.exact import Identity, OneHot
from scalefair.features.mixed import (
    CROSSED,
    SAMPLE_ROWS,
    Crossed,
    Units,
    all_columns,
    mixed_map,
    units_of,
)
from scalefair.features.product import ConcatMap
from scalefair.features.rows import open_predict_rows
from scalefair.features.training import learn_design, open_inputs
from scalefair.measures._pair import UndefinedError
from scalefair.moments import Moments, accumulate
from scalefair.moments.accumulate import ChunkSum
from scalefair.penalties import (
    CONTROL_EPS,
    control_factor,
    share_of_variance,
    size_of_block,
    whitening,
)

if TYPE_CHECKING:
    import pandas as pd

SEEN, BASE, REST = "(sensitive attributes)", "(base model)", "(nonlinear rest)"
"""Parts of f that are no columns of X."""

CUTOFF = 1e-10
"""Directions of the correlation matrix of X below it are duplicates of others."""

COMPONENTS = 100
"""Landmarks of the map of one attribute alone."""


def explain_share(
    model: Any, X: Any = None, *, sensitive_features: Any = None, sample_weight: Any = None,
    control_features: Any = None, baseline: Any = None,
) -> pd.DataFrame:  # fmt: skip
    """Split the explained share over the columns of X that carry it.

    Parameters
    ----------
    model : fitted estimator of scalefair, or array-like of shape (n,) or (n, t)
        Or the predictions of any model for the rows of X, as numbers.
    X : array, frame, dask collection, Scan or BatchSource of shape (n, d), optional
        Rows to explain, as in `predict`. A linear model that still has its moments needs none:
        then its training rows are explained, without standard errors.
    sensitive_features : the same, of shape (n,) or (n, p), optional
        Of these rows; None where `sensitive_columns` of the model names columns of X.
    sample_weight : array-like of shape (n,), optional
        Weight 2 is the row twice; standard errors count rows by Kish's (Σw)²/Σw².
    control_features : as in `fit`, optional
        For a model that was fitted with them, or with predictions.
    baseline : as `model`, optional
        What to compare with, as "before". By default the model without its penalty, which the
        ridges and :class:`FairGPRegressor` compute from their moments. Others have none.

    Returns
    -------
    data frame with the columns
        attribute : a sensitive attribute, or all of them joined by " × "
        column : of X (those that it was encoded to, joined); "(base model)": its prediction;
            "(sensitive attributes)": ψ(s), where the model sees it; "(nonlinear rest)": what is
            not linear in the columns
        before, before_error : contribution without the penalty, and its standard error
        after, after_error : contribution to the share of the model

    Notes
    -----
    The contributions to one attribute add up to the share of the variance of the predictions (of a
    classifier, of its scores) that it explains in the rows given, without correction for chance.
    They are signed: a column that works against the others has a negative one. Columns that are
    copies of each other share theirs; nearly equal ones have large contributions of opposite signs.

    A standard error is that of the rows, for the model as it is: of the influence of a row on θ_l,
    u = [f̂_l g + g_l (f̂ − g) − θ_l f̃²] / Var f, g_l being the best function of s for f_l, and f̂
    what a control leaves of f. Rows are read twice, three times where an attribute among several
    is a number; memory does not grow with them.

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
    0     x0   0.128  0.011
    1     x1  -0.001 -0.001
    """
    given = Chunk(X, sensitive_features, None, sample_weight, c=control_features)
    after = _explained(model, given, before=baseline is None)
    if baseline is not None:
        (own,) = _explained(baseline, given, before=False)
        after = [own, *after]
    return _table(after)


class Explained(NamedTuple):
    """Contributions of one model and their errors, by attribute and column."""

    columns: list[str]
    parts: dict[str, tuple[Array, Array]]


def _table(models: list[Explained]) -> pd.DataFrame:
    """Lay models side by side, the columns of the largest contributions first."""
    names, both = list(dict.fromkeys(c for one in models for c in one.columns)), len(models) > 1
    table: dict[str, list[Any]] = {"attribute": [], "column": []}
    for attribute in models[-1].parts:
        numbers = [dict(zip(m.columns, zip(*m.parts[attribute]), strict=True)) for m in models]
        names.sort(key=lambda c: -abs(numbers[0].get(c, (0.0, 0.0))[0]))
        for name in names:
            table["attribute"].append(attribute)
            table["column"].append(name)
            for when, own in zip(("before", "after") if both else ("after",), numbers, strict=True):
                value, error = own.get(name, (0.0, 0.0))
                table.setdefault(when, []).append(value)
                table.setdefault(f"{when}_error", []).append(error)
    return frames.make_frame(table)


@dataclass(frozen=True, eq=False)
class Scores(Block):
    """φ(x)β of one or several models with the same φ."""

    start: Callable[[], Predictor]
    width: int = 0  # type: ignore[assignment]
    name: str = "scores"  # type: ignore[misc]
    key: str = ""  # type: ignore[assignment]

    def rows(self, chunk: Chunk) -> Rows:
        """Return them, of shape (k, width)."""
        return in_blocks(self.start)(chunk)


@dataclass(frozen=True, eq=False)
class Attribute(Block):
    """ψ_j(s_j) of one of several attributes; under control ξ_j(s_j, c)."""

    name: str  # type: ignore[misc]
    column: int
    psi: FeatureMap
    xi: Crossed | None
    key: str = ""  # type: ignore[assignment]

    @property
    def width(self) -> int:
        """Number of columns."""
        return n_features(self.psi) if self.xi is None else self.xi.width

    @property
    def units(self) -> Units:  # type: ignore[override]
        """What the columns are."""
        return units_of(self.psi if self.xi is None else self.xi)

    def rows(self, chunk: Chunk) -> Rows:
        """Return the columns of a chunk; zero for rows of weight zero."""

        def of(at: Any) -> Array:
            s = np.ascontiguousarray(chunk.s[at][:, [self.column]])
            return whitened(self.psi, s) if self.xi is None else self.xi.rows(s, chunk.c[at])

        return counted_rows(of, chunk, np.arange(chunk.n_rows))


def _alone(design: Design, sample: Callable[[], Chunk]) -> tuple[Attribute, ...]:
    """Return the blocks of each of several attributes, fitted on a sample of rows.

    Functions of one of several groups are sums of those of their intersections: they need none.
    """
    encoder: Any = (design.preparation or Preparation()).sensitive_encoder
    control = [block.upsilon for block in design.beside if isinstance(block, Control)]
    if len(encoder.names_) < 2 or (isinstance(design.psi, OneHot) and not control):
        return ()
    rows, linear = sample(), isinstance(design.psi, Identity | ConcatMap)
    kernel = "linear" if linear else "categorical" if isinstance(design.psi, OneHot) else "auto"
    blocks = []
    for j, name in enumerate(encoder.names_):
        s, levels = rows.s[:, [j]], len(encoder.levels_.get(name, ()))
        psi = mixed_map(
            kernel, "median", COMPONENTS, rows=s, weight=rows.weight, seed=0,
            categorical=encoder.categorical_[[j]],
            groups=np.arange(levels, dtype=float)[:, None] if levels else None,
        )  # fmt: skip
        most = CROSSED * COMPONENTS
        xi = [Crossed.fit(psi, u, s, rows.c, rows.weight, most=most, seed=0) for u in control]
        blocks.append(Attribute(f"psi {j}", j, psi, *(xi or [None])))
    return tuple(blocks)


class View(NamedTuple):
    """A set of attributes: its name, and its blocks as linear functions of the rows z."""

    name: str
    blocks: dict[str, Array]
    units: dict[str, Units]


def _views(design: Design, moments: Moments) -> list[View]:
    """Return the views of all attributes together and, where there are several, of each."""
    encoder: Any = (design.preparation or Preparation()).sensitive_encoder
    unit, names = np.eye(len(moments.shift)), encoder.names_
    control = {n: unit[:, moments.span(n)] for n in ("upsilon",) if n in moments.blocks}
    of = "xi" if control else "psi"
    own = unit[:, moments.span(of)]
    views = [View(" × ".join(names), control | {of: own}, dict(moments.units))]
    for block in design.beside:
        if isinstance(block, Attribute):
            mine = unit[:, moments.span(block.name)]
            views.append(View(names[block.column], control | {of: mine}, {of: block.units}))
    if len(names) > 1 and isinstance(design.psi, OneHot) and not control:
        for j, values in enumerate(design.psi.combinations_.T):
            member = (values[:, None] == np.unique(values)).astype(float)
            units = {of: all_columns("groups", member.shape[1])}
            views.append(View(names[j], {of: own @ member}, units))
    return views


@dataclass(frozen=True, eq=False)
class Split:
    """θ_l (k,) of f = Σ_l f_l, and what gives the influence of a row on them.

    `matrices` turn columns `at` of a row z into f̂_l, g_l, (h_l,) f and r: f̂ and g are as in
    `explain_share`, and h_l r is the influence of slopes that are regressions, r the last part.
    """

    values: Array
    variance: float
    freedom: tuple[float, float]  # tr P, tr P², P = C(C + ε)⁻¹
    chance: Array  # n² times the variance of θ_l where s explains nothing
    at: NDArray[np.intp]
    mean: Array
    matrices: Array
    shape: tuple[int, int, int]  # parts, outputs, matrices of both

    @classmethod
    def of(
        cls, moments: Moments, W: Array, view: View, slopes: tuple[Array, Array] | None = None
    ) -> Split:
        """Split the share of f_l = zᵀW_l, W of shape (p, k, t).

        `slopes`: where those of x are regressions, C_x⁻¹ and which part each column of x is in.
        """
        (p, k, t), total = W.shape, W.sum(axis=1)
        m = moments.mapped({"phi": W.reshape(p, k * t), "f": total, **view.blocks}, view.units)
        names, root = whitening(m, None)
        attributes = np.hstack([view.blocks[name] for name in names]) @ root
        R, along = (m.covariance(name, names) @ root for name in ("phi", "f"))
        variance = float(np.trace(m.covariance("f", "f")))
        explained = np.einsum("ltr,tr->l", R.reshape(k, t, -1), along)
        values = share_of_variance(explained, variance, size_of_block(m))
        left = W.reshape(p, k * t)
        if "upsilon" in view.blocks:
            whiten = inverse_root(m.covariance("upsilon", "upsilon"), CONTROL_EPS)
            left = left - view.blocks["upsilon"] @ whiten @ control_factor(m, "phi").T
        matrices = [left, attributes @ R.T]
        if slopes is not None:
            inverse, member = slopes
            x = moments.span("phi")
            H = np.zeros((p, k, t))
            to_g = moments.scatter[x] @ attributes @ along.T / moments.weight
            H[x] = np.einsum("de,el,et->dlt", inverse, member, to_g)
            H[:, -1] = -H.sum(axis=1)
            matrices.append(H.reshape(p, k * t))
        both = np.hstack([*matrices, total, W[:, -1]])
        P = root.T @ m.covariance(names, names) @ root
        squares = float(np.sum(P**2))
        at = np.flatnonzero(both.any(axis=1))
        return cls(
            values, variance, (float(np.trace(P)), squares), squares * _products(m, k, t), at,
            (moments.shift + moments.offset)[at], both[at], (k, t, len(matrices)),
        )  # fmt: skip

    def influence(self, z: Array) -> Array:
        """Return u of rows z, shape (n, k)."""
        k, t, count = self.shape
        made = (z[:, self.at] - self.mean) @ self.matrices
        f, rest = np.split(made[:, count * k * t :], 2, axis=1)
        left, g, *slopes = made[:, : count * k * t].reshape(len(z), count, k, t).swapaxes(0, 1)
        best = g.sum(axis=1)
        u = np.einsum("nlt,nt->nl", left, best)
        u += np.einsum("nlt,nt->nl", g, left.sum(axis=1) - best)
        for h in slopes:
            u += np.einsum("nlt,nt->nl", h, rest)
        u -= np.sum(f**2, axis=1)[:, None] * self.values
        return np.asarray(u / self.variance)


def _products(m: Moments, k: int, t: int) -> Array:
    """Return [tr(S_ll S) + tr(S_lf S_lf)]/tr(S)²: the variance of products of noise, shape (k,)."""
    S, C = m.covariance("f", "f"), m.covariance("phi", "phi").reshape(k, t, k, t)
    own = np.einsum("ltlu->ltu", C)
    cross = m.covariance("phi", "f").reshape(k, t, t)
    both = np.einsum("ltu,tu->l", own, S) + np.einsum("ltu,lut->l", cross, cross)
    return np.asarray(both / np.trace(S) ** 2)


@dataclass(frozen=True, eq=False)
class Influences:
    """Σw[u, u²] of the rows of a chunk, for each of several splits, side by side."""

    design: Design
    splits: tuple[Split, ...]

    def __call__(self, chunk: Chunk) -> Array:
        """Return the sums, shape (2, number of parts)."""
        design, weight = self.design, np.ones(chunk.n_rows)
        weight = weight if chunk.weight is None else chunk.weight
        z = np.hstack([
            whitened(design.phi, chunk.x), design.psi_rows(chunk),
            *(block.rows(chunk) for block in design.beside),
            *([chunk.y] if design.n_targets else []),
        ])  # fmt: skip
        u = np.hstack([split.influence(z) for split in self.splits])
        return np.stack([weight @ u, weight @ u**2])


def standard_errors(
    source: ChunkSource, design: Design, moments: Moments, splits: Sequence[Split]
) -> list[Array]:
    """Return √(Var u/n + 2nd order) of each split by one pass; n is Kish's count."""
    function, rows = Influences(design, tuple(splits)), design.chunk_rows
    mean, square = source.fold(partial(ChunkSum, function, 0.0), rows) / moments.weight
    n, chance = moments.effective_rows, np.concatenate([split.chance for split in splits])
    errors = np.sqrt(np.maximum(square - mean**2, 0.0) / n + chance / n**2)
    return np.split(errors, np.cumsum([len(split.values) for split in splits])[:-1])


@dataclass(frozen=True, eq=False)
class Form:
    """What f is made of: columns of x, and coefficients of each block of the rows, by model.

    Where there is a block of `scores`, its part that is linear in x is split over the columns.
    """

    columns: list[tuple[str, slice]]
    coefs: list[dict[str, Array]]
    scores: str | None = None

    def parts(self, m: Moments, coef: dict[str, Array]) -> tuple[list[str], Array, Any]:
        """Return the names of the parts of f, W (p, k, t), and `slopes` of `Split.of`."""
        slopes, inverse, x = coef.get("phi"), None, m.span("phi")
        if self.scores is not None:
            inverse = _inverse(m.covariance("phi", "phi"))
            slopes = inverse @ m.covariance("phi", self.scores) @ coef[self.scores]
        others = {"psi": SEEN, "base": BASE, "curve": BASE, self.scores: REST}
        beside = [others[block] for block in coef if block in others]
        names = [name for name, _ in self.columns] + list(dict.fromkeys(beside))
        W = np.zeros((len(m.shift), len(names), next(iter(coef.values())).shape[1]))
        member = np.zeros((len(x), len(names)))
        for part, (_, columns) in enumerate(self.columns):
            W[x[columns], part], member[columns, part] = slopes[columns], 1.0
        for block, name in zip([block for block in coef if block in others], beside, strict=True):
            W[m.span(block), names.index(name)] = coef[block]
        if inverse is None:
            return names, W, None
        W[x, -1] = -slopes
        return names, W, (inverse, member)


def _inverse(C: Array) -> Array:
    """C⁻¹ on the range of C, in units in which its diagonal is 1."""
    scale = np.sqrt(np.diagonal(C))
    root = np.where(scale > 0, 1 / np.where(scale > 0, scale, 1.0), 0.0)
    values, vectors = positive_eigh(root[:, None] * C * root)
    keep = values > CUTOFF * values.max(initial=0.0)
    half = root[:, None] * vectors[:, keep] / np.sqrt(values[keep])
    return np.asarray(half @ half.T)


def _explain(
    form: Form, design: Design, moments: Moments, source: ChunkSource | None
) -> list[Explained]:
    """Explain the models of a form; without a source there are no standard errors."""
    views, results = _views(design, moments), []
    names, splits = [], []
    for coef in form.coefs:
        parts, W, slopes = form.parts(moments, coef)
        names.append(parts)
        splits += [Split.of(moments, W, view, slopes) for view in views]
    if any(np.isnan(split.values).any() for split in splits):
        raise UndefinedError(
            "the predictions are constant, so that no share of their variance is defined, not 0; "
            "explain a model whose predictions differ between rows"
        )
    if source is None:
        errors = [np.full(len(split.values), np.nan) for split in splits]
    else:
        errors = standard_errors(source, design, moments, splits)
    for i, parts in enumerate(names):
        at = range(i * len(views), (i + 1) * len(views))
        own = {v.name: (splits[j].values, errors[j]) for v, j in zip(views, at, strict=True)}
        results.append(Explained(parts, own))
    return results


def _explained(model: Any, given: Chunk, *, before: bool) -> list[Explained]:
    """Explain a model, and first what it would be without its penalty if `before` and known."""
    if isinstance(model, BaseEstimator) or hasattr(model, "predict"):
        check_is_fitted(model)
        if "_design" in vars(model):
            return _explain_model(model, given, before=before)
        raise TypeError(
            f"model={model!r} is no estimator of scalefair; give its predictions, as in "
            "explain_share(model.predict(X), X, sensitive_features=s)"
        )
    if given.x is None:
        raise TypeError("X=None; give the rows that were predicted, and sensitive_features")
    training = open_inputs(replace(given, y=model), {"y": "model"})
    design = learn_design(training, dtype="float64", sees_sensitive=False)
    alone = _alone(design, lambda: training.sample)
    design = replace(design, beside=(*design.beside, *alone))
    columns = training.preparation.input_columns(training.survey.parts["x"].columns.names)
    form = Form(columns, [{"y": np.eye(design.n_targets)}], "y")
    (moments,) = accumulate(training.source, design)
    return _explain(form, design, moments, training.source)


def _explain_model(model: Any, given: Chunk, *, before: bool) -> list[Explained]:
    design: Design = model._design
    _check_model(model, design, given)
    plain = model._without_penalty() if before else None
    coefs = [one._feature_coef() for one in (plain, model) if one is not None]
    prepared: Any = design.preparation
    columns = prepared.input_columns([str(name) for name in _check_feature_names_in(model)])
    form = Form(columns, [_by_block(design, coef) for coef in coefs])
    if given.x is None:
        return _explain(form, design, model.moments_, None)
    opened = open_predict_rows(model, given.x, design, s=given.s, weight=given.weight, c=given.c)
    _check_beside(prepared, next(opened.chunks(1)))
    plain_rows = replace(design, beside=()).numbers(opened, sensitive=True)
    beside = (*design.beside, *_alone(design, lambda: plain_rows.sample(SAMPLE_ROWS, 0)))
    narrow = Design(design.phi, design.psi, 0, beside=beside, preparation=prepared)
    if not isinstance(design.phi, Identity):
        narrow, form = _with_scores(narrow, form, [design.raw_coef(coef)["phi"] for coef in coefs])
    source = narrow.numbers(opened, sensitive=True)
    (moments,) = accumulate(source, narrow)
    return _explain(form, narrow, moments, source)


def _with_scores(design: Design, form: Form, raw: list[Array]) -> tuple[Design, Form]:
    """Replace φ by x, and join φ(x)β of all models, from the coefficients of raw rows of φ."""
    both, outputs = np.hstack(raw), raw[0].shape[1]
    scores = Scores(design.predictor({"phi": both}, 0.0), both.shape[1])
    unit = np.eye(both.shape[1]).reshape(-1, len(raw), outputs)
    coefs = [
        {name: part for name, part in coef.items() if name != "phi"} | {"scores": unit[:, i]}
        for i, coef in enumerate(form.coefs)
    ]
    phi = Identity().fit(np.zeros((1, form.columns[-1][1].stop)))
    narrow = replace(design, phi=phi, beside=(*design.beside, scores))
    return narrow, replace(form, coefs=coefs, scores="scores")


def _by_block(design: Design, coef: Array) -> dict[str, Array]:
    """Cut the coefficients of Φ into those of its blocks."""
    widths = design.blocks | {"phi": n_features(design.phi)}
    stops = np.cumsum([widths[name] for name in design.features])[:-1]
    return dict(zip(design.features, np.split(coef, stops), strict=True))


def _check_model(model: Any, design: Design, given: Chunk) -> None:
    """Raise ValueError if a model has no share, no features, or too little to do without rows."""
    name = type(model).__name__
    if design.psi is None:
        raise ValueError(
            f"{name} was fitted without sensitive attributes, so that it has no share; give its "
            "predictions: explain_share(model.predict(X), X, sensitive_features=s)"
        )
    if "moments_" not in vars(model):
        raise ValueError(
            f"{name} with feature_map='exact' has no features that its share could be split by; "
            "use feature_map='nystroem', or give predictions: explain_share(model.predict(X), X, …)"
        )
    kept = isinstance(design.phi, Identity) and type(model.moments_) is Moments
    if given.x is None and not kept:
        raise ValueError(
            f"X=None, but {name} is not linear in the columns of X, or did not keep their moments; "
            "give X and sensitive_features"
        )


def _check_beside(prepared: Preparation, first: Chunk) -> None:
    """Raise ValueError if attributes or control features stand beside X, or not, unlike in fit."""
    for name, given, needed in (
        ("sensitive_features", first.s is not None, prepared.sensitive_columns is None),
        ("control_features", first.c is not None, prepared.control_encoder is not None),
    ):
        if given != needed:
            raise ValueError(
                f"{name} {'are missing' if needed else 'are given'}, but the model was fitted "
                f"{'with' if needed else 'without'} them; pass the same to fit and explain_share"
            )
