"""Two parties: A holds x and y, B holds x and s; nothing that they exchange holds both.

A: maps φ ──► B: moments of [φ, ψ] ──► A: fit, candidates ──► B: their shares ──► A: certificate
"""

from __future__ import annotations

from copy import copy
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from sklearn.base import clone

from scalefair._config import current_config
from scalefair._hash import balanced_fold, digest
from scalefair._typing import Chunk
from scalefair.auditing.candidates import Candidates, Judgement, Part, judge
from scalefair.data import SURVEY_ROWS
from scalefair.data.folds import ALL_ROWS, Folds
from scalefair.data.sources import ChunkSource, Sampler
from scalefair.errors import InputError
from scalefair.estimators.base import names_of_columns
from scalefair.estimators.kernel_ridge import FairKernelRidgeCV
from scalefair.estimators.parameters import check_partial
from scalefair.features.base import seed_of
from scalefair.features.design import Design
from scalefair.features.exact import Identity
from scalefair.features.rows import FitRows, open_predict_rows
from scalefair.features.training import MapSpec, Training, group_names, learn_design, sensitive_map, survey_training
from scalefair.held_out import ChanceRatio
from scalefair.moments import Moments
from scalefair.moments.accumulate import Rows
from scalefair.moments.moments import ARRAYS, differences
from scalefair.solve.ridge.path import FoldedMoments
from scalefair.solve.ridge.search import check_folds, ratios_of


@dataclass(frozen=True, eq=False)
class PartyMoments:
    """Moments of [φ, y], or of [φ, ψ], of each fold of the rows."""

    folds: tuple[Moments, ...]
    ratios: tuple[ChanceRatio, ...] = ()  # of each fold, where s is known


@dataclass(frozen=True, eq=False)
class PartyMaps:
    """Maps that the party that holds y sends to the party that holds s of the same rows.

    They hold nothing of y. They and all else that travels are files of :func:`scalefair.save`.

    Parameters
    ----------
    model : FairRidge, FairKernelRidge or FairKernelRidgeCV
        With maps and encodings, but not fitted; :meth:`fit` makes it.
    """

    model: Any

    @classmethod
    def fit(cls, model: Any, X: Any, y: Any, *, sample_weight: Any = None) -> tuple[PartyMaps, PartyMoments]:
        """Return maps to send, and moments of [φ, y] to keep, for a model that may not see s.

        Parameters as in `fit` of the model; the other party must know the weights.
        """
        check_partial(model, controlled=False)
        model._check_parameters()
        folded, cv = isinstance(model, FairKernelRidgeCV), vars(model).get("cv", 2)
        if model.base_estimator or model.sensitive_columns is not None or not isinstance(cv, int):
            raise InputError(
                "base_estimator, sensitive_columns or a splitter as cv needs all columns at once",
                "leave it out; give a number of folds",
            )
        seed, dtype = seed_of(model.random_state), current_config().dtype
        made, ordinary = (clone(model).set_params(random_state=seed) for _ in range(2))
        ordinary.set_params(unfairness=None, **({"etas": [0.0]} if folded else {"eta": 0.0}))
        training = ordinary._train(made, Chunk(X, None, y, sample_weight), dtype)
        design = learn_design(training, dtype=dtype, sees_sensitive=False)
        least = made._least_alpha() if folded else None
        rows = made._rows(training.source, design, training.survey.n_rows, least)
        made.__dict__.update(_design=rows.design, _one_target=training.one_target)
        maps = cls(made)
        return maps, PartyMoments(tuple(rows.moments(maps._folds)))

    def moments(self, X: Any, *, sensitive_features: Any, sample_weight: Any = None) -> PartyMoments:
        """Return the moments of [φ, ψ], per fold; ψ is learnt here, and stays here.

        Parameters as in `fit` of an estimator.
        """
        source, design, training = self._open(X, sensitive_features, sample_weight)
        rows = Rows(source, design, source.n_rows, current_config().chunk_rows)
        folds = rows.moments(self._folds)
        if len(folds) == 1:
            return PartyMoments(tuple(folds))
        check_folds(folds, group_names(design))
        sample = source.fold(partial(Sampler, len(training.sample_rows), training.seed), SURVEY_ROWS)
        ratios = ratios_of(design, sample.chunk, self._folds.of_rows(sample.rows), folds)
        return PartyMoments(tuple(folds), tuple(ratios))

    def solve(self, ours: PartyMoments, theirs: PartyMoments, judgement: Judgement | None = None) -> Any:
        """Return the fitted model from moments of [φ, y], ours, and of [φ, ψ], theirs.

        A model with a `confidence` needs their judgement of its :meth:`candidates`.
        """
        design, moments = self._joined(ours, theirs)
        model, one = copy(self.model), self.model._one_target
        known = names_of_columns(model) | {"_design": design, "_one_target": one}
        known |= {"phi_": design.phi, "psi_": design.psi}
        if isinstance(model, FairKernelRidgeCV):
            attributes = model._choose(design, moments, known, partial(_answer, judgement))
        else:
            fit = model._solve(design, moments.total)
            attributes = known | model._solution(moments.total, fit, design, one_target=one)
        model.__dict__.update(attributes)
        return model

    def candidates(self, ours: PartyMoments, theirs: PartyMoments) -> Candidates:
        """Return coefficients of models, from the fairest on, for the other party to judge."""
        try:
            self.solve(ours, theirs)
        except _NotJudgedError as error:
            return error.candidates
        raise InputError("a model without confidence= has no candidates", "give a confidence")

    def judge(self, candidates: Candidates, X: Any, *, sensitive_features: Any, sample_weight: Any = None) -> Judgement:
        """Return shares of candidates, and their errors, on rows that did not fit them.

        Parameters as in :meth:`moments`: which of the rows calibrate follows from their number.
        """
        source, design, _ = self._open(X, sensitive_features, sample_weight, calibrates=True)
        _check_same("candidates", candidates.key, design.key)
        folds = ALL_ROWS if self.model.guarantee == "split" else self._folds
        return judge(source, design, folds, candidates)

    @property
    def _folds(self) -> Folds:
        if not isinstance(self.model, FairKernelRidgeCV):
            return ALL_ROWS
        return Folds(n := self.model.cv, partial(balanced_fold, n, self.model.random_state + 1))

    def _open(self, X: Any, s: Any, weight: Any, *, calibrates: bool = False) -> tuple[ChunkSource, Design, Training]:
        """Return numeric rows that fit, or calibrate, and the design with ψ of those that fit."""
        own, design = self.model.get_params(deep=False), self.model._design
        fitting = chosen = open_predict_rows(self.model, X, design, s=s, weight=weight)
        if own.get("confidence") is not None and own["guarantee"] == "split":
            parts = (Part(own["random_state"] + 2, calibrates=c) for c in (False, calibrates))
            fitting, chosen = (chosen.then(part) for part in parts)
        alone = fitting.then(lambda chunk: replace(chunk, x=np.zeros((chunk.n_rows, 1))))  # ψ needs no x
        rows = FitRows(alone, None, None, 1, False, True, True, False)
        training = survey_training(rows, MapSpec.of(own))
        encoder = training.preparation.sensitive_encoder
        prepared = replace(design.preparation, sensitive_encoder=encoder)
        design = replace(design, psi=sensitive_map(training), n_targets=0, preparation=prepared)
        return design.numbers(chosen, sensitive=True), design, training

    def _joined(self, ours: PartyMoments, theirs: PartyMoments) -> tuple[Design, FoldedMoments]:
        """Return the design, in which ψ is columns without a meaning, and moments of [φ, ψ, y]."""
        if (k := len(ours.folds)) != len(theirs.folds):
            raise InputError(f"{k} folds and {len(theirs.folds)}", "use the same maps for both")
        folds = [_side_by_side(a, b) for a, b in zip(ours.folds, theirs.folds, strict=True)]
        psi = Identity().fit(np.zeros((2, folds[0].blocks["psi"])))
        design = replace(self.model._design, psi=psi)
        return design, FoldedMoments(folds, None, sum(folds[1:], folds[0]), theirs.ratios)


def _check_same(what: str, key: str, other: str, *free: str) -> None:
    """Raise InputError if keys differ in more than the `free` parts."""
    if differ := set(differences(key, other)) - set(free):
        raise InputError(
            f"{what} were made with different maps: {', '.join(sorted(differ))} differ",
            "use the same maps, and the same rows, throughout",
        )


def _side_by_side(a: Moments, b: Moments) -> Moments:
    """[φ, y] and [φ, ψ] become [φ, ψ, y]; the covariance of ψ and y, which no party has, is NaN."""
    _check_same("moments", a.key, b.key, "psi", "sensitive")
    m, q, t = b.blocks["phi"], b.blocks.get("psi", 0), a.blocks["y"]
    size = np.sqrt(np.diagonal(a.covariance("phi", "phi")) + a.mean("phi") ** 2)
    near = np.abs(a.mean("phi") - b.mean("phi")) <= 1e-6 * size
    if not (q and t and a.n_rows == b.n_rows and near.all()):
        raise InputError(
            f"moments of {dict(a.blocks)} of {a.n_rows} rows and of {dict(b.blocks)} of {b.n_rows}",
            "give first those of y, then those of psi, of the same rows in the same order",
        )
    at, arrays = np.r_[:m, m + q : m + q + t], dict[str, Any]()
    for name in ARRAYS:
        ours = vars(a)[name]
        arrays[name] = np.full((m + q + t,) * ours.ndim, np.nan)
        arrays[name][(slice(m + q),) * ours.ndim] = vars(b)[name]
        arrays[name][np.ix_(*[at] * ours.ndim)] = ours
    return replace(b, blocks={"phi": m, "psi": q, "y": t}, **arrays)


class _NotJudgedError(InputError):
    candidates: Candidates


def _answer(judgement: Judgement | None, candidates: Candidates) -> Judgement:
    if judgement is not None and judgement.candidates == digest(candidates):
        return judgement
    what = "confidence needs a judgement of these candidates by the other party"
    error = _NotJudgedError(what, "send it PartyMaps.candidates, which its PartyMaps.judge evaluates")
    error.candidates = candidates
    raise error
