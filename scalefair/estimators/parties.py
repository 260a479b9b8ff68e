"""Two parties: one holds x and y, the other x and s; nothing that they exchange holds both.

    A: maps φ ──► B: moments of [φ, ψ] ──► A: fit;  A: candidates ──► B: their shares ──► A

No formula of a ridge needs y and s in one row: C_φ and C_φy are A's, C_φψ and C_ψ are B's.
"""

from __future__ import annotations

from copy import copy
from dataclasses import dataclass, replace
from functools import partial, reduce
from numbers import Integral
from operator import add
from typing import Any

import numpy as np
from sklearn.base import clone

from scalefair._config import current_config
from scalefair._hash import balanced_fold, digest
from scalefair._typing import Chunk
from scalefair.data.folds import ALL_ROWS, Folds
from scalefair.data.open import Preparation
from scalefair.data.sources import ChunkSource
from scalefair.errors import InputError
from scalefair.estimators.base import OF_COLUMNS
from scalefair.estimators.certified import Candidates, Judgement, Part, judge
from scalefair.estimators.parameters import check_partial
from scalefair.estimators.ridge_cv import FairKernelRidgeCV
from scalefair.features.base import seed_of
from scalefair.features.design import Design
from scalefair.features.exact import Identity
from scalefair.features.rows import FitRows, open_more_rows, open_predict_rows
from scalefair.features.training import (
    MapSpec,
    group_names,
    learn_design,
    sensitive_map,
    survey_training,
)
from scalefair.moments import Moments
from scalefair.moments.accumulate import Rows
from scalefair.moments.moments import differences
from scalefair.moments.partial import ARRAYS, PartialMoments
from scalefair.penalties import check_known
from scalefair.solve.ridge.search import FoldedMoments, check_folds

SAME_ROWS = 1e-6
"""Difference of means and covariances of φ, in its units, up to which rows are the same."""


@dataclass(frozen=True, eq=False)
class PartyMoments:
    """Moments of [φ, y], or of [φ, ψ], of each fold of one party's rows; `+` adds more rows."""

    folds: tuple[Moments, ...]

    def __add__(self, other: PartyMoments) -> PartyMoments:
        pairs = zip(self.folds, other.folds, strict=True)
        return PartyMoments(tuple(own + more for own, more in pairs))

    @property
    def total(self) -> Moments:
        """Of all rows."""
        return reduce(add, self.folds)


@dataclass(frozen=True, eq=False)
class PartyMaps:
    """Fitted maps that the party that holds y sends to the party that holds s.

    They hold no y, no coefficients and no moments. Where both parties hold the same rows in the
    same order, what comes out is the fit to all columns in one table; other rows of the same kind
    of people do, too, as with `sensitive_data` of `fit`.

    Parameters
    ----------
    model : FairRidge, FairKernelRidge or FairKernelRidgeCV
        With maps and encodings, but not fitted; made by :meth:`fit`.

    Notes
    -----
    Maps, and what :meth:`moments`, :meth:`candidates` and :meth:`judge` return, travel as files:
    :func:`scalefair.save`, :func:`scalefair.load`.
    """

    model: Any

    @classmethod
    def fit(cls, model: Any, X: Any, y: Any, *, sample_weight: Any = None) -> PartyMaps:
        """Return the maps of a model on its inputs; of y only the number of columns is kept.

        Parameters
        ----------
        model : FairRidge, FairKernelRidge or FairKernelRidgeCV
            What is to be fitted, with its limit; it may not see s.
        X, y, sample_weight
            As in `fit` of the model.
        """
        _check_model(model)
        seed, dtype = seed_of(model.random_state), current_config().dtype
        made, ordinary = (clone(model).set_params(random_state=seed) for _ in range(2))
        folded = isinstance(model, FairKernelRidgeCV)
        ordinary.set_params(unfairness=None, **({"etas": [0.0]} if folded else {"eta": 0.0}))
        training = ordinary._train(made, Chunk(X, None, y, sample_weight), dtype)
        design = learn_design(training, dtype=dtype, sees_sensitive=False)
        least = made._least_alpha() if folded else None
        rows = made._rows(training.source, design, training.survey.n_rows, least)
        made.__dict__.update(_design=rows.design, _one_target=training.one_target)
        return cls(made)

    def moments(
        self, X: Any, y: Any = None, *, sensitive_features: Any = None, sample_weight: Any = None
    ) -> PartyMoments:
        """Return the moments of a party's rows, per fold: of [φ, y], or of [φ, ψ].

        Parameters
        ----------
        X : array, data frame, dask collection or scan of shape (n, d)
            Inputs, with the columns of :meth:`fit`.
        y : array-like of shape (n,) or (n, t), optional
            Targets, of the party that holds them.
        sensitive_features : array, Series or frame of shape (n,) or (n, p), optional
            Attributes, of the party that holds those. ψ is learnt from them, and stays there.
        sample_weight : array-like of shape (n,), optional
            Weights, which both parties must know.
        """
        if (y is None) == (sensitive_features is None):
            raise InputError(
                f"y and sensitive_features are {'neither' if y is None else 'both'} given",
                "give the one that this party holds: moments are of one of them, never of both",
            )
        design = self._design
        if y is None:
            given, design = self._open(X, sensitive_features, sample_weight)
            source = design.numbers(given, sensitive=True)
        else:
            rows = Chunk(X, None, y, sample_weight)
            source = open_more_rows(self.model, rows, design, n_targets=design.n_targets)
        source = _part_of(source, self._part(calibrates=False))
        chunk_rows = current_config().chunk_rows
        folds = Rows(source, design, source.n_rows, chunk_rows).moments(self._folds)
        if y is None and self.model.unfairness is not None and len(folds) > 1:
            check_folds(folds, group_names(design))
        return PartyMoments(tuple(folds))

    def solve(
        self, ours: PartyMoments, theirs: PartyMoments, judgement: Judgement | None = None
    ) -> Any:
        """Return the fitted model from moments of [φ, y] and of [φ, ψ].

        Parameters
        ----------
        ours, theirs : PartyMoments
            Of the party that holds y, and of the one that holds s.
        judgement : Judgement, optional
            What the latter says of the :meth:`candidates`; needed where the model has a
            `confidence`.
        """
        design, moments = self._joined(ours, theirs)
        model, own = copy(self.model), vars(self.model)
        known = {name: own[name] for name in (*OF_COLUMNS, "_one_target") if name in own}
        known |= {"_design": design, "phi_": design.phi, "psi_": design.psi}
        if isinstance(model, FairKernelRidgeCV):
            found = model._choose(design, moments, known, partial(_answer, judgement))
        else:
            fit, one = model._solve(design, moments.total), own["_one_target"]
            found = known | model._solution(moments.total, fit, design, one_target=one)
        model.__dict__.update(found)
        return model

    def candidates(self, ours: PartyMoments, theirs: PartyMoments) -> Candidates:
        """Return coefficients of models, from the fairest on, for the other party to judge."""
        if self._folds is ALL_ROWS or self.model.confidence is None:
            raise InputError(
                "only a FairKernelRidgeCV with unfairness= and confidence= has candidates to judge",
                "fit the maps of one",
            )
        design, moments = self._joined(ours, theirs)
        result = self.model._search(design, moments)
        return self.model._candidates(result, design, moments)[0]  # type: ignore[no-any-return]

    def judge(
        self, candidates: Candidates, X: Any, *, sensitive_features: Any, sample_weight: Any = None
    ) -> Judgement:
        """Return shares, and their errors, of candidates on rows that did not fit them.

        Parameters
        ----------
        candidates : Candidates
            Of the party that holds y.
        X, sensitive_features, sample_weight
            As in :meth:`moments`, all rows: those that calibrate are a function of their number.
        """
        given, design = self._open(X, sensitive_features, sample_weight)
        _check_key("candidates", candidates.key, "the rows here", design.key)
        part = self._part(calibrates=True)
        source = _part_of(design.numbers(given, sensitive=True), part)
        return judge(source, design, self._folds if part is None else ALL_ROWS, candidates)

    @property
    def _design(self) -> Design:
        return self.model._design  # type: ignore[no-any-return]

    @property
    def _folds(self) -> Folds:
        if not isinstance(self.model, FairKernelRidgeCV):
            return ALL_ROWS
        count = int(self.model.cv)
        return Folds(count, partial(balanced_fold, count, self.model.random_state + 1))

    def _part(self, *, calibrates: bool) -> Part | None:
        """Return which rows fit, or calibrate; None: all."""
        own = self.model.get_params(deep=False)
        if own.get("confidence") is None or own["guarantee"] == "cross":
            return None
        return Part(own["random_state"] + 2, calibrates=calibrates)

    def _open(self, X: Any, s: Any, weight: Any) -> tuple[ChunkSource, Design]:
        """Return the rows of the party that holds s, and the design with the ψ learnt of them."""
        given = open_predict_rows(self.model, X, self._design, s=s, weight=weight)
        source = _part_of(given, self._part(calibrates=False)).then(_without_inputs)
        rows = FitRows(source, None, None, 1, False, True, True, False)
        training = survey_training(rows, MapSpec.of(self.model.get_params(deep=False)))
        encoder = training.preparation.sensitive_encoder
        prepared = replace(self._design.preparation or Preparation(), sensitive_encoder=encoder)
        psi = sensitive_map(training)
        return given, replace(self._design, psi=psi, n_targets=0, preparation=prepared)

    def _joined(self, ours: PartyMoments, theirs: PartyMoments) -> tuple[Design, FoldedMoments]:
        """Return the design and the moments of [φ, ψ, y]; ψ is a name for columns here."""
        for name, part, block in (("ours", ours, "y"), ("theirs", theirs, "psi")):
            if not part.folds[0].blocks.get(block):
                blocks = dict(part.folds[0].blocks)
                raise InputError(f"{name} has blocks {blocks}, expected {block!r}", "swap them")
        _check_key("ours", ours.total.key, "theirs", theirs.total.key, ("psi", "sensitive"))
        _check_key("the maps", self._design.key, "ours", ours.total.key)
        pairs = list(zip(ours.folds, theirs.folds, strict=True))
        same = _are_same(ours.total, theirs.total)
        if same and not all(_are_same(*pair) for pair in pairs):
            raise InputError(
                "both parties hold the same rows, in another order", "sort them by a common key"
            )
        if not same and self._part(calibrates=True) is not None:
            raise InputError("the parties hold other rows", "")
        folds = [_side_by_side(a, b, same=same) for a, b in pairs]
        total = reduce(add, folds)
        check_known(total)
        psi = Identity().fit(np.zeros((2, total.blocks["psi"])))
        return replace(self._design, psi=psi), FoldedMoments(folds, None, total)


def _check_model(model: Any) -> None:
    """Raise ValueError if a model cannot be fitted by two parties."""
    check_partial(model, controlled=False)
    model._check_parameters()
    cv = vars(model).get("cv", 2)
    for what, refused in (
        (f"sensitive_columns={model.sensitive_columns!r}", model.sensitive_columns is not None),
        ("base_estimator", model.base_estimator is not None),
        (f"cv={cv!r}", not isinstance(cv, Integral)),
    ):
        if refused:
            raise InputError(
                f"{what} needs y, s or the rows of both parties at once",
                "leave it out; cv is a number of folds", where=what,
            )  # fmt: skip


def _part_of(source: ChunkSource, part: Part | None) -> ChunkSource:
    return source if part is None else source.then(part)


def _without_inputs(chunk: Chunk) -> Chunk:
    """Return the chunk without x, which says nothing of ψ."""
    return replace(chunk, x=np.zeros((chunk.n_rows, 1)))


def _check_key(name: str, key: str, other: str, its_key: str, free: tuple[str, ...] = ()) -> None:
    """Raise InputError if two keys differ in other parts than those that may."""
    if differ := [part for part in differences(key, its_key) if part not in free]:
        raise InputError(
            f"{name} and {other} were made with different maps: {', '.join(differ)} differ",
            "use one PartyMaps for all",
        )


def _are_same(a: Moments, b: Moments) -> bool:
    """Return True if the rows of two parties are the same: as many, with the same φ."""
    means, spreads = zip(
        *((m.mean("phi"), m.covariance("phi", "phi")) for m in (a, b)), strict=True
    )
    size = np.sqrt(np.diagonal(spreads[0]) + means[0] ** 2)
    near = np.abs(means[0] - means[1]) <= SAME_ROWS * size
    return bool(
        a.n_rows == b.n_rows
        and near.all()
        and (np.abs(spreads[0] - spreads[1]) <= SAME_ROWS * np.outer(size, size)).all()
    )


def _side_by_side(a: Moments, b: Moments, *, same: bool) -> Moments:
    """Return the moments of [φ, ψ, y] from those of [φ, y] and [φ, ψ].

    Of the same rows all are known but the covariance of ψ and y, which is NaN; of other rows
    they are those of two tables.
    """
    blocks = {"phi": a.blocks["phi"], "psi": b.blocks["psi"], "y": a.blocks["y"]}
    ours, theirs = _widened(a, blocks), _widened(b, blocks)
    if same:
        joined = {name: np.where(np.isnan(ours[name]), theirs[name], ours[name]) for name in ARRAYS}
        return replace(b, blocks=blocks, **joined)
    own: dict[str, Any] = {"blocks": blocks, "key": b.key, "units": b.units}
    scored = replace(a, **own | {name: np.nan_to_num(ours[name]) for name in ARRAYS})
    known = replace(b, **own | {name: np.nan_to_num(theirs[name]) for name in ARRAYS})
    return PartialMoments.of(scored, known, Moments.empty(blocks, b.key), known)


def _widened(part: Moments, blocks: dict[str, int]) -> dict[str, Any]:
    """Return the arrays of moments with more blocks, NaN for those."""
    at = Moments.empty(blocks).span(*(name for name, width in part.blocks.items() if width))
    width = sum(blocks.values())
    made = {name: np.full((width,) * vars(part)[name].ndim, np.nan) for name in ARRAYS}
    for name, array in made.items():
        array[np.ix_(*[at] * array.ndim)] = vars(part)[name]
    return made


def _answer(judgement: Judgement | None, candidates: Candidates) -> Judgement:
    """Return the judgement, if it is of these candidates."""
    if judgement is None:
        raise InputError(
            "confidence= asks for a certificate, and the other party has judged no candidates",
            "send it those of PartyMaps.candidates, and give what its PartyMaps.judge returns",
        )
    if judgement.candidates != digest(candidates):
        raise InputError("judgement is about other candidates", "send these candidates again")
    return judgement
