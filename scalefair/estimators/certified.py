"""Estimators on folds, and certified paths: every candidate tested in one further pass.

Rows are split by their number ("split": those that calibrate touch nothing else), or every row
is judged by the fit without its fold ("cross"). Candidates are tested from the fairest on, up to
the first that fails: no correction for looking at many is needed. All before it are certified.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial, reduce
from numbers import Integral
from operator import add
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from scalefair._hash import balanced_fold, digest
from scalefair._typing import Array, Chunk
from scalefair.auditing.certificate import (
    Certificate,
    Claim,
    check_calibration,
    fingerprint,
    functions_of,
)
from scalefair.data import Together
from scalefair.data.folds import ALL_ROWS, Folds, make_folds
from scalefair.data.sources import ArraySource, ChunkSource, Sample, Sampler, StackedSource
from scalefair.errors import InputError
from scalefair.estimators.base import FairEstimator, check_control
from scalefair.features.design import Design, in_blocks
from scalefair.features.exact import Identity
from scalefair.features.rows import FitRows
from scalefair.features.training import Training, group_names
from scalefair.measures.bounds import ERROR_ROWS, ShareDistribution, pooled, share_distributions
from scalefair.moments import Moments
from scalefair.moments.accumulate import MomentAccumulator, Rows, sign
from scalefair.penalties import check_known, size_of_block
from scalefair.solve.ridge.path import AlphaSlice, Choice, Spectrum, side_by_side
from scalefair.solve.ridge.search import FoldedMoments, SearchResult, check_folds
from scalefair.solve.ridge.system import System

CALIBRATES, OF = 4, 10
"""Rows of every ten that calibrate, with a split."""

CANDIDATES = 48
"""Etas on a path, besides 0 and ∞."""

REACH = 4.0
"""Candidates have shares, in sample, of up to so many times the limit."""

PASS_ROWS = 8192


class OnFolds(FairEstimator):
    """A fair estimator that is judged on folds of its rows: `cv` says which."""

    def _folds(self, training: Training) -> tuple[Folds, bool]:
        source, X, y = training.given, range(training.survey.n_rows), range(training.survey.n_rows)
        if isinstance(source, ArraySource):
            X, y = source.x, source.y
        if isinstance(training.source, StackedSource) and not isinstance(self.cv, Integral):
            raise InputError(
                f"cv={self.cv!r} knows the rows of X alone, not those of sensitive_data",
                "give a number of folds", where="cv",
            )  # fmt: skip
        # Not the seed of the sample: landmarks must not gather in one fold.
        return make_folds(self.cv, X, y, training.seed + 1)

    def _fold_moments(
        self,
        rows: Rows,
        training: Training,
        among: Callable[[Folds], Folds] | None = None,
        **options: Any,
    ) -> tuple[Folds, FoldedMoments]:
        """Return the folds and their moments, by one pass; `among` leaves rows out of folds."""
        folds, some_always_train = self._folds(training)
        folds = folds if among is None else among(folds)
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
        return folds, moments


@dataclass(frozen=True)
class Part:
    """The rows that calibrate, or those that fit: a function of the number of the row."""

    seed: int
    calibrates: bool

    def has(self, numbers: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Return which rows are in the part."""
        chosen = balanced_fold(OF, self.seed, numbers) < CALIBRATES
        return chosen if self.calibrates else ~chosen

    def __call__(self, chunk: Chunk) -> Chunk:
        """Return the chunk with weight 0 for rows of the other part; they keep their number."""
        inside = self.has(np.arange(chunk.row, chunk.row + chunk.n_rows))
        weight = np.ones(chunk.n_rows) if chunk.weight is None else chunk.weight
        return replace(chunk, weight=np.where(inside, weight, 0.0))

    def of(self, rows: FitRows) -> FitRows:
        """Return rows of which those of the other part have weight 0."""
        source = rows.source
        if not isinstance(source, ArraySource):
            return rows._replace(source=source.then(self))
        # Base models take weights from the source itself.
        weight = self(Chunk(source.x, weight=source.weight)).weight
        own = ArraySource(
            source.x, source.s, source.y, weight, source.c, n_threads=source.n_threads
        )
        return rows._replace(source=own)

    def folds(self, folds: Folds) -> Folds:
        """Return folds that leave the other rows out."""
        return Folds(folds.count, partial(_inside, self, folds))


def _inside(part: Part, folds: Folds, numbers: NDArray[np.int64]) -> NDArray[np.int64]:
    return np.where(part.has(numbers), folds.of_rows(numbers), -1)


def only(folds: Folds, count: int) -> Folds:
    """Return the first so many folds: rows of others always train and are not judged."""
    return folds if folds.count == count else Folds(count, partial(_among, folds, count))


def _among(folds: Folds, count: int, numbers: NDArray[np.int64]) -> NDArray[np.int64]:
    fold = folds.of_rows(numbers)
    return np.where(fold < count, fold, -1)


def path_etas(at: AlphaSlice, limit: float) -> Array:
    """Etas from ∞ down to where the share in sample is several times the limit.

    Their shares are about equidistant in √share, which is what an error is linear in.
    """
    strength = at.strength.max(initial=0.0)
    grid = np.append(0.0, np.logspace(-4, 8, 481) / (strength if strength > 0 else 1.0))
    shares = np.nan_to_num(at.shares(grid), nan=0.0)
    envelope = np.maximum.accumulate(shares[::-1])[::-1]  # the share is not monotone in η
    wanted = np.linspace(0.0, np.sqrt(min(envelope[0], REACH * limit)), CANDIDATES + 1) ** 2
    first = [int(np.argmax(envelope <= level * (1 + 1e-9))) for level in wanted[1:]]
    return np.append(np.inf, np.unique(grid[first])[::-1])


class Candidates(NamedTuple):
    """Coefficients of E predictors of t outputs, of shape (m, E·t), for each fold of rows.

    A share does not depend on intercepts. `folds` tells which rows are judged by which.
    """

    coefs: Sequence[Array]
    folds: Folds
    outputs: int


@dataclass(frozen=True, eq=False)
class _Judged:
    """Replaces the inputs of chunks by the predictions of the candidates."""

    design: Design
    candidates: Candidates

    def __call__(self, chunk: Chunk) -> Chunk:
        """Return the chunk with predictions for x; 0 where the weight is."""
        numbers = np.arange(chunk.row, chunk.row + chunk.n_rows)
        fold = self.candidates.folds.of_rows(numbers)
        if chunk.weight is not None:
            fold = np.where(np.asarray(chunk.weight) > 0, fold, -1)
        F = np.zeros((chunk.n_rows, self.candidates.coefs[0].shape[1]))
        for k, coef in enumerate(self.candidates.coefs):
            at = np.flatnonzero(fold == k)
            if len(at):
                start = self.design.predictor(self.design.raw_coef(coef), 0.0)
                F[at] = in_blocks(start)(chunk.take(at))
        return replace(chunk, x=F, h=None)


class Judgement(NamedTuple):
    """Distributions of the shares of all candidates, for each ε, and the moments of the rows."""

    distributions: list[ShareDistribution]
    moments: Moments

    def probability(self, limit: float) -> Array:
        """Return the largest over ε of P(θ̂ ≤ observed) at the limit; NaN for constants."""
        shares = [np.where(np.isnan(one.share), np.nan, 0.0) for one in self.distributions]
        each = [one.probability(limit) for one in self.distributions]
        return np.asarray(np.max(each, axis=0) + shares[0])


def judge(source: ChunkSource, design: Design, candidates: Candidates, size: float) -> Judgement:
    """Return the shares of all candidates on rows that did not fit them, by one pass.

    Chunks are numeric. Moments of [f, ψ, …] of all rows, and a sample of them for variances.
    """
    width = candidates.coefs[0].shape[1]
    beside = tuple(block for block in design.beside if not block.is_feature)
    narrow = Design(
        Identity().fit(np.zeros((2, width))), design.psi, design.n_targets, whiten_rows=True,
        beside=beside,
    )  # fmt: skip
    folds = candidates.folds
    start: list[tuple[Any, Any]] = [
        (_same, partial(MomentAccumulator, narrow, folds, PASS_ROWS)),
        (_same, partial(Sampler, ERROR_ROWS, 0)),
    ]
    judged = source.then(_Judged(design, candidates))
    sums, sample = judged.fold(partial(Together, start), PASS_ROWS)
    moments = sign(narrow, sums)
    total = reduce(add, moments)
    check_calibration(total)
    fold = folds.of_rows(sample.rows)
    parts = [
        share_distributions(
            own, *_rows_of(narrow, sample, np.flatnonzero(fold == k)),
            outputs=candidates.outputs, size=size,
        )
        for k, own in enumerate(moments)
    ]  # fmt: skip
    each = list(zip(*parts, strict=True))
    return Judgement([pooled(some) if len(some) > 1 else some[0] for some in each], total)


def _same(chunk: Chunk) -> Chunk:
    return chunk


def _rows_of(
    design: Design, sample: Sample, index: NDArray[np.int64]
) -> tuple[dict[str, Array], Array]:
    """Rows of the predictions, ψ and the control of a part of the sample, and their weights."""
    chunk = sample.chunk.take(index)
    names = [name for name in design.blocks if name not in ("phi", "y")]
    rows = {"phi": chunk.x} | {name: np.asarray(design.rows_of(name, chunk)) for name in names}
    return rows, np.ones(len(index)) if chunk.weight is None else chunk.weight


@dataclass(frozen=True, eq=False)
class JudgedPath:
    """Models of one path, from the fairest on, each judged on rows that did not fit it.

    - `coef` (m, E·t): of the models that predict; `errors` (E,): held-out errors.
    - `method`: "split" or "cross"; `result`: the search, on the path.
    """

    method: str
    result: SearchResult
    judgement: Judgement
    coef: Array
    errors: Array

    def passed(self, claim: Claim) -> NDArray[np.int64]:
        """Return the models that are certified: all up to the first that fails.

        Constants, which the fit alone decides on, are passed over.
        """
        probability = self.judgement.probability(claim.limit)
        tested = np.flatnonzero(~np.isnan(probability))
        failed = np.flatnonzero(probability[tested] > 1 - claim.confidence)
        return tested[: failed[0]] if len(failed) else tested

    def choose(self, claim: Claim) -> int:
        """Return the least error among the certified, or raise NotCertifiedError."""
        passed = self.passed(claim)
        if not len(passed):
            tested = np.flatnonzero(~np.isnan(self.judgement.probability(claim.limit)))
            first = tested[:1] if len(tested) else np.zeros(1, dtype=np.int64)
            raise claim.error([one[first] for one in self.judgement.distributions])
        return int(passed[np.argmin(self.errors[passed])])

    def chosen(self, claim: Claim) -> SearchResult:
        """Return the search with the certified choice."""
        at = len(self.errors) - 1 - self.choose(claim)
        return replace(self.result, choice=Choice(0, at))

    def certificate(self, claim: Claim, model: Any) -> Certificate:
        """Return the certificate of the chosen model, now that it is fitted."""
        at, moments = np.array([self.choose(claim)]), self.judgement.moments
        one = [found[at] for found in self.judgement.distributions]
        return claim.certificate(
            self.method, moments.n_rows, max(float(part.share[0]) for part in one),
            max(float(part.upper(claim.confidence)[0]) for part in one), functions_of(moments),
            fingerprint(model), digest([moments.offset, moments.scatter]),
        )  # fmt: skip


def judge_path(
    limit: float, result: SearchResult, system: System, design: Design, source: ChunkSource,
    *, folds: Folds | None,
) -> JudgedPath:  # fmt: skip
    """Judge the path at the α that a search has chosen.

    Without `folds` the rows of the source have fitted nothing: all judge the fit of `system`.
    """
    alphas = np.array([result.alphas[result.path_alpha]])
    path = Spectrum.of(system).at(float(alphas[0]))
    etas = path_etas(path, limit)
    coef = side_by_side(system, path.coef(etas)[None], etas, rescaled=True)
    coefs = [coef] if folds is None else result.fits.coefs(alphas, etas)
    candidates = Candidates(coefs, folds or ALL_ROWS, system.target.shape[1])
    judgement = judge(source, design, candidates, size_of_block(system.moments, "y"))
    scores = result.fits.score(alphas, etas[::-1])
    on_path = replace(result, alphas=alphas, etas=etas[::-1], scores=scores, choice=None)
    errors = scores.mse.mean(axis=0)[0, ::-1]
    return JudgedPath("cross" if folds else "split", on_path, judgement, coef, errors)
