"""Certified paths and decisions: every candidate tested in one further pass.

Rows are split by their number ("split": those that calibrate touch nothing else), or every row
is judged by the fit without its fold ("cross"). Candidates are tested from the fairest on, up to
the first that fails: no correction for looking at many is needed. All before it are certified.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import dataclass, replace
from functools import partial, reduce
from operator import add
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from scalefair._hash import balanced_fold, digest
from scalefair._typing import Array, Chunk
from scalefair.auditing.certificate import LEAST_ROWS, Certificate, Claim, check_calibration, fingerprint, functions_of
from scalefair.data import Together
from scalefair.data.folds import ALL_ROWS, Folds
from scalefair.data.sources import ArraySource, ChunkSource, Sampler
from scalefair.data.sources.threads import run_each
from scalefair.errors import InputError
from scalefair.features.design import Design, in_blocks
from scalefair.features.exact import Identity
from scalefair.features.partial import lacks
from scalefair.features.rows import FitRows
from scalefair.measures.bounds import ERROR_ROWS, ShareDistribution, pooled, share_distributions
from scalefair.measures.group_metrics import Rate, upper_gap
from scalefair.moments.accumulate import MomentAccumulator
from scalefair.penalties import size_of_block
from scalefair.solve.decisions.fit import DecisionPass, FairDecisions
from scalefair.solve.decisions.rule import DecisionRows, rows_of_cells
from scalefair.solve.limit import path_etas
from scalefair.solve.newton.folds import FoldProblem, LossSearch, Point, Trials
from scalefair.solve.newton.model import Slice
from scalefair.solve.ridge.path import Choice, Spectrum, grid
from scalefair.solve.ridge.search import SearchResult
from scalefair.solve.ridge.system import Solution, System

CALIBRATES, OF = 4, 10  # rows of every ten that calibrate, with a split
LOSS_CANDIDATES, LOSS_REACH = 16, 1.2  # of `path_etas`: their fits take passes over the rows
# Limits, in units of the one asked for, that decisions are learnt under before they are certified
CERTIFIED_LIMITS = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)
PASS_ROWS = 8192


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
        return replace(chunk, weight=np.where(inside, chunk.weights, 0.0))

    def of(self, rows: FitRows) -> FitRows:
        """Return rows of which those of the other part have weight 0."""
        source = rows.source
        if not isinstance(source, ArraySource):
            return rows._replace(source=source.then(self))
        # Samples and base models take weights from the source itself.
        weight = self(Chunk(source.x, weight=source.weight)).weight
        return rows._replace(source=replace(source, weight=weight))


@dataclass(frozen=True, eq=False)
class Candidates:
    """Coefficients of E predictors of t outputs, of shape (m, E·t), for each fold of rows."""

    coefs: tuple[Array, ...]
    outputs: int
    size: float  # a variance far below is rounding
    key: str = ""  # of the maps


@dataclass(frozen=True, eq=False)
class _Judged:
    """Replaces the inputs of chunks by the predictions of the candidates."""

    design: Design
    candidates: Candidates
    folds: Folds

    def __call__(self, chunk: Chunk) -> Chunk:
        """Return the chunk with predictions for x, 0 where the weight is; y is not used."""
        if self.design.partial:  # rows without s cannot be used to evaluate
            chunk = replace(chunk, weight=np.where(lacks(chunk.s), 0.0, chunk.weights))
        fold = self.folds.of_rows(np.arange(chunk.row, chunk.row + chunk.n_rows))
        if chunk.weight is not None:
            fold = np.where(np.asarray(chunk.weight) > 0, fold, -1)
        F = np.zeros((chunk.n_rows, self.candidates.coefs[0].shape[1]))
        for k, coef in enumerate(self.candidates.coefs):
            at = np.flatnonzero(fold == k)
            if len(at):
                start = self.design.predictor(self.design.raw_coef(coef), 0.0)
                F[at] = in_blocks(start)(chunk.take(at))
        return replace(chunk, x=F, y=np.zeros((chunk.n_rows, 1)), h=None)


@dataclass(frozen=True, eq=False)
class Judgement:
    """Distributions of the shares of all candidates, for each ε, and what is said of the rows."""

    distributions: tuple[ShareDistribution, ...]
    n_rows: int
    functions: str  # of s, in words
    moments: str  # their fingerprint
    candidates: str  # their fingerprint

    def probability(self, limit: float) -> Array:
        """Return the largest over ε of P(θ̂ ≤ observed) at the limit; NaN for constants."""
        shares = [np.where(np.isnan(one.share), np.nan, 0.0) for one in self.distributions]
        each = [one.probability(limit) for one in self.distributions]
        return np.asarray(np.max(each, axis=0) + shares[0])


def judge(source: ChunkSource, design: Design, folds: Folds, candidates: Candidates) -> Judgement:
    """Return the shares of all candidates on rows that did not fit them, by one pass."""
    beside = tuple(block for block in design.beside if not block.is_feature)
    phi = Identity().fit(np.zeros((2, candidates.coefs[0].shape[1])))
    narrow = Design(phi, design.psi, whiten_rows=True, beside=beside)
    start: list[tuple[Any, Any]] = [
        (copy, partial(MomentAccumulator, narrow, folds, PASS_ROWS)),
        (copy, partial(Sampler, ERROR_ROWS, 0)),
    ]
    judged = source.then(_Judged(design, candidates, folds))
    moments, sample = judged.fold(partial(Together, start), PASS_ROWS)
    total = reduce(add, moments)
    check_calibration(total)
    fold = folds.of_rows(sample.rows)

    def of_fold(k: int) -> list[ShareDistribution]:
        chunk = sample.chunk.take(np.flatnonzero(fold == k))
        given = narrow.block_rows(chunk), chunk.weights
        return share_distributions(moments[k], *given, outputs=candidates.outputs, size=candidates.size)

    parts = run_each(of_fold, len(moments))
    found = tuple(pooled(some) if len(some) > 1 else some[0] for some in zip(*parts, strict=True))
    said = functions_of(total), digest([total.offset, total.scatter]), digest(candidates)
    return Judgement(found, total.n_rows, *said)


@dataclass(frozen=True, eq=False)
class JudgedPath:
    """Models of one path, from the fairest on, each judged on rows that did not fit it."""

    method: str  # "split" or "cross"
    result: Any  # the search
    choices: Sequence[Choice]  # of the models on its grid
    judgement: Judgement
    coef: Array  # (m, E·t): of the models that predict
    errors: Array  # held out (E,)

    def passed(self, claim: Claim) -> NDArray[np.int64]:
        """Return the models that are certified: all up to the first that fails, constants apart."""
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

    def certificate(self, claim: Claim, model: Any) -> Certificate:
        """Return the certificate of the chosen model, now that it is fitted."""
        at, judged = np.array([self.choose(claim)]), self.judgement
        one = [found[at] for found in judged.distributions]
        said = judged.functions, fingerprint(model), judged.moments
        return claim.certificate(self.method, judged.n_rows, *claim.numbers(one), *said)


Judges = Callable[[Candidates], Judgement]


def judge_path(limit: float, result: SearchResult, system: System, judges: Judges, *, split: bool) -> JudgedPath:
    """Judge the path at the α that a search has chosen; with `split` the rows fitted nothing."""
    at_largest = result.scores.mse.mean(axis=0)[:, int(np.argmax(result.etas))]
    chosen = int(np.argmin(at_largest)) if result.choice is None else result.choice.alpha
    alphas = result.alphas[[chosen]]
    path = Spectrum.of(system).at(float(alphas[0]))
    etas = path_etas(path, limit)
    size, outputs = size_of_block(system.moments, "y"), system.target.shape[1]
    coef = grid(path.spectrum, alphas, etas, size)
    coefs = (coef,) if split else tuple(result.fits.coefs(alphas, etas))
    judgement = judges(Candidates(coefs, outputs, size, system.moments.key))
    scores = result.fits.score(alphas, etas[::-1])
    on_path = replace(result, alphas=alphas, etas=etas[::-1], scores=scores, choice=None)
    errors = scores.mse.mean(axis=0)[0, ::-1]
    choices = [Choice(0, at) for at in reversed(range(len(etas)))]
    return JudgedPath("split" if split else "cross", on_path, choices, judgement, coef, errors)


def judge_fits(limit: float, result: LossSearch, problem: FoldProblem, judges: Judges, *, split: bool) -> JudgedPath:
    """Judge the fits of a general loss at the best ridge; as `judge_path`."""
    result, alpha = _with_fairer_fits(problem, result, limit)
    points = sorted((point for point in result.tried if point.alpha == alpha), reverse=True)
    fits, m = [result.tried[point] for point in points], len(problem.whole.system.ridge)
    parts = [-1] if split else range(len(problem.tested))
    coefs = tuple(np.hstack([fit.theta[k][:m] for fit in fits]) for k in parts)
    size, outputs = size_of_block(problem.whole.system.moments, "y"), problem.whole.loss.n_scores
    judgement = judges(Candidates(coefs, outputs, size))
    row = int(np.searchsorted(result.alphas, alpha))
    choices = [Choice(row, int(np.searchsorted(result.etas, point.eta))) for point in points]
    coef = np.hstack([fit.theta[-1][:m] for fit in fits])
    errors = np.array([fit.losses.mean() for fit in fits])
    return JudgedPath("split" if split else "cross", result, choices, judgement, coef, errors)


def _with_fairer_fits(problem: FoldProblem, result: LossSearch, limit: float) -> tuple[LossSearch, float]:
    """Try weights whose shares are within the limit, which a search on means does not need."""
    trials = Trials(problem, limit)
    trials.fits, trials.constant = dict(result.tried), result.constant
    best = trials.best()
    models = problem.models(result.tried[best].theta[-1])
    path = Slice(problem.whole, models.parts[-1], best.alpha)
    etas = path_etas(path, limit, LOSS_CANDIDATES, LOSS_REACH)
    trials.try_points(models, [Point(best.alpha, eta) for eta in etas])
    alphas, grid, scores = trials.table()
    return replace(result, alphas=alphas, etas=grid, scores=scores, tried=trials.fits, choice=None), best.alpha


class Calibration(NamedTuple):
    """Rows that took no part in a fit, and the fit whose decisions they judge."""

    design: Design
    source: ChunkSource
    scores: Solution
    gains: Callable[[Array], Array]

    def gap(self, decisions: FairDecisions, confidence: float) -> tuple[int, float, float]:
        """Return the rows, the largest gap between groups, and its upper bound, by one pass."""
        raw = self.design.raw_coef(self.scores.coef)
        start = decisions.predictor(self.design, raw, self.scores.intercept)
        judging = partial(DecisionPass, self.design, start, ALL_ROWS, 1, 1.0, len(decisions.intercept))
        rows: DecisionRows = self.source.fold(judging, PASS_ROWS)
        G = len(decisions.groups)
        if len(rows.group) < LEAST_ROWS or np.bincount(rows.group, minlength=G).min() < 2:
            raise InputError(
                f"{len(rows.group)} rows calibrate, and some group may have fewer than two of them",
                "merge rare groups, or give more rows",
            )
        decided = decisions.decide(self.gains, np.hstack([rows.gain, rows.propensity]))
        weight, gaps = np.bincount(rows.group, rows.weight, G), []
        count, every = rows_of_cells(rows.group, rows.weight, G), np.ones(G, dtype=bool)
        for k in range(int(len(decisions.labels) == 2), len(decisions.labels)):
            rate = np.bincount(rows.group, rows.weight * (decided == k), G) / weight
            gaps.append(upper_gap(Rate(count, rate), confidence, every))
        estimates, uppers = zip(*gaps, strict=True)
        return len(rows.group), max(estimates), max(uppers)


def certified_decisions(
    learn: Callable[[float], dict[str, Any]], claim: Claim, calibration: Calibration, model: Any
) -> dict[str, Any]:
    """Return the last decisions of `learn(limit)` that are certified, from the fairest on, or raise an error."""
    certified: dict[str, Any] = {}
    for fraction in CERTIFIED_LIMITS:
        with warnings.catch_warnings():  # the rows that calibrate tell how far rules are from it
            warnings.filterwarnings("ignore", message="no rule that was tried")
            made = learn(fraction * claim.limit)
        decisions = made["decisions_"]
        judged = calibration.gap(decisions, claim.confidence)
        if judged[2] > claim.limit:
            break
        words = f"rates of decisions in the {len(decisions.groups)} groups"
        prints = fingerprint(model), digest(decisions.rule.price)
        certified = made | {"certificate_": claim.certificate("split", *judged, words, *prints)}
    if not certified:
        claim.check_gap(*judged)
    return certified
