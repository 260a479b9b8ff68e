"""The rows of two variables as numbers, and checks of what no measure can handle."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from scalefair._typing import Array, Chunk
from scalefair.data import Look, PartSurvey, Survey, frames, open_rows, survey_rows
from scalefair.data.columns import TableStatistics
from scalefair.data.encoding import SensitiveEncoder, numbers_or_codes
from scalefair.data.sources import ArraySource, ChunkSource, Sample
from scalefair.errors import CannotJudgeError, UselessColumnError, check_choice, located
from scalefair.features.base import is_map, seed_of
from scalefair.features.mixed import SAMPLE_ROWS
from scalefair.kernels import Kernel
from scalefair.kernels.stationary import NAMES, plain_name
from scalefair.measures.bounds import ERROR_ROWS

MAX_GROUPS = 1000  # Combinations of categories beyond which groups are too small, or the column an identifier
PAIR_METHODS = ("auto", "exact", "features")


class UndefinedError(ValueError):
    """A measure that these rows do not define, though others may be defined."""


class TooFineError(CannotJudgeError):
    """Categories, or combinations of them, that too few rows share to say anything."""


class VariableEncoder(SensitiveEncoder):
    """The same for any variable."""

    role = "measured"

    def _called(self, statistics: TableStatistics, j: int) -> str:
        if statistics.named:
            return super()._called(statistics, j)
        return f"column {j}" if len(statistics.columns) > 1 else "it"


@dataclass(frozen=True, eq=False)
class Variable:
    """One variable of a measure, p columns of numbers and codes."""

    name: str  # of the argument, for errors
    columns: tuple[str, ...]
    categorical: NDArray[np.bool_]  # which columns are codes
    n_levels: tuple[int, ...]  # 0: numbers
    groups: Array | None  # (g, p): combinations of codes
    span: Array  # (2, p): the least and the largest number

    @classmethod
    def of(cls, part: PartSurvey, encoder: SensitiveEncoder) -> Variable:
        """Return the variable of a survey, or raise TooFineError."""
        groups = None if part.groups is None else np.asarray(encoder.transform(part.groups))
        spreads = [column.spread for column in part.columns.columns]
        span = np.array([[spread.low for spread in spreads], [spread.high for spread in spreads]])
        names = tuple(encoder.names_)
        n_levels = tuple(len(encoder.levels_.get(name, ())) for name in names)
        variable = cls(part.look.name, names, encoder.categorical_, n_levels, groups, span)
        return variable.check_groups(part.columns.n_rows)

    def check_groups(self, n_rows: int) -> Variable:
        """Return the variable, or raise TooFineError if too few of the rows share a group."""
        count = 0 if self.groups is None else len(self.groups)
        codes = [c for c, code in zip(self.columns, self.categorical, strict=True) if code]
        problem = ""
        if count > MAX_GROUPS:
            problem = f"have {count:,} combinations, at most {MAX_GROUPS:,} can be compared"
        elif count and count >= n_rows:
            problem = f"are different in each of {n_rows:,} rows, so groups cannot be compared"
        if problem:
            raise TooFineError(
                f"{self.name}: the categories of {', '.join(codes) or 'its columns'} {problem}",
                "merge rare levels, leave identifiers out, or pass numbers as numbers",
            )
        return self


def fitted_encoder(part: PartSurvey, *, numeric: bool = False) -> SensitiveEncoder:
    """Return the encoder of a surveyed variable, or raise ValueError if a column is unusable."""
    for column in part.columns.columns:
        if numeric and column.kind in ("categorical", "datetime"):
            content = "text" if column.kind == "categorical" else "dates"
            raise ValueError(
                f"{part.look.name}: column {column.name!r} is {content}; expected predictions as "
                "numbers: pass scores or probabilities, or code the classes as numbers such as 0 and 1"
            )
    try:
        with located(part.look.name):
            return VariableEncoder().finish(part.columns)
    except UselessColumnError as error:
        raise UndefinedError(f"{error.what}: dependence on a constant is undefined, not 0; leave it out") from error


@dataclass(frozen=True, eq=False)
class Pair:
    """Rows of two variables as numbers: chunks whose x is a and whose s is b."""

    source: ChunkSource
    a: Variable
    b: Variable
    n_rows: int  # of positive weight
    in_memory: bool
    seed: int
    sample: Sample | None = None  # rows that the first pass has drawn
    kernels: tuple[Any, Any] = ("auto", "auto")  # of a and b, as `check_kernel` returns them

    def rows(self, size: int | None = None) -> Chunk:
        """Return all rows that count, or at most `size` chosen by their number."""
        sample = self.sample
        if sample is None or size is None or (size > sample.size and self.n_rows > sample.size):
            return self.source.sample(sys.maxsize if size is None else size, self.seed)
        chunk, index = sample.chunk, np.sort(np.argsort(sample.hashes)[:size])
        weight = None if chunk.weight is None else chunk.weight[index]
        return Chunk(chunk.x[index], chunk.s[index], None, weight)

    def landmark_rows(self, n_components: int) -> Chunk:
        """Return a sample to learn maps from, in which every number varies."""
        chunk = self.rows(max(SAMPLE_ROWS, 4 * n_components))
        sides = [
            (rows, ~variable.categorical & (rows == rows[:1]).all(axis=0), variable.span)
            for variable, rows in ((self.a, chunk.x), (self.b, chunk.s))
        ]
        if not any(constant.any() for _, constant, _ in sides):
            return chunk
        # A rare number may be constant in the sample: two more rows have the ends of its span.
        x, s = (np.vstack([rows, np.where(constant, span, rows[:1])]) for rows, constant, span in sides)
        w = chunk.weight
        return Chunk(x, s, None, None if w is None else np.append(w, [w.mean()] * 2))


def check_kernel(name: str, kernel: Any) -> Any:
    """Return "auto" for None, names for kernels without parameters, others as they are."""
    if kernel is None:
        return "auto"
    if isinstance(kernel, str):
        check_choice(name, kernel, ("auto", *NAMES))
        return kernel
    if isinstance(kernel, Kernel) or is_map(kernel):
        return plain_name(kernel)
    raise TypeError(
        f"{name}={kernel!r} is a {type(kernel).__name__}; give None, one of {', '.join(NAMES)}, or "
        "a kernel of scalefair.kernels"
    )


def open_pair(
    a: Any, b: Any, sample_weight: Any = None, *, names: tuple[str, str] = ("a", "b"),
    random_state: Any = 0, least: int = 2, kernels: tuple[Any, Any] = (None, None),
    method: str = "auto", numeric: bool = False,
) -> Pair:  # fmt: skip
    """Open two variables of equal length and learn what their columns hold.

    `a` may be a pair that was opened before; b is None then. At least `least` rows must count. To a "categorical"
    kernel numbers are categories, too; `numeric`: `a` must be numbers. Method "exact" needs the rows in memory.
    """
    check_choice("method", method, PAIR_METHODS)
    if isinstance(a, Pair):
        return a
    kernels = check_kernel("kernel_a", kernels[0]), check_kernel("kernel_b", kernels[1])
    if (a is None or b is None) and not isinstance(a, ChunkSource):  # whose chunks bring both
        name = names[0 if a is None else 1]
        raise TypeError(f"{name}=None; give an array, a Series or a frame with rows")
    rows = open_rows(a, b, weight=sample_weight, names={"x": names[0], "s": names[1]})
    looks = {
        part: Look(name, groups=True, every=kernel == "categorical")
        for part, name, kernel in zip("xs", names, kernels, strict=True)
    }
    seed = seed_of(random_state)
    survey = survey_rows(rows.source, looks, size=ERROR_ROWS, seed=seed)
    _check_rows(survey, names, least, in_memory=rows.in_memory or method != "exact")
    parts = [survey.parts[part] for part in "xs"]
    encoders = [fitted_encoder(parts[0], numeric=numeric), fitted_encoder(parts[1])]
    message = numbers_or_codes(parts[1].columns.columns, parts[1].columns.n_rows)
    if message and kernels[1] != "categorical":
        warnings.warn(message, UserWarning, stacklevel=3)
    first, second = (Variable.of(part, e) for part, e in zip(parts, encoders, strict=True))
    source, sample = numeric_rows(rows, survey, partial(_numbers, names, encoders))
    return Pair(source, first, second, survey.n_present, rows.in_memory, seed, sample, kernels)


def _check_rows(survey: Survey, names: tuple[str, str], least: int, *, in_memory: bool) -> None:
    if not in_memory:
        raise ValueError(
            "method='exact' compares all pairs of rows, which must be in memory; use "
            "method='features' for scans and dask collections"
        )
    if survey.n_rows and not survey.weight:
        raise ValueError("sample_weight is zero for every row; at least one must be positive")
    if survey.n_present < least:
        raise ValueError(
            f"{names[0]} and {names[1]} have {survey.n_present} row(s) of positive weight, this "
            f"measure needs at least {least}; give more rows"
        )


def numeric_rows(rows: Any, survey: Survey, change: Any) -> tuple[ChunkSource, Sample]:
    """Return rows as numbers, and their sample; every pass over rows in memory finds numbers."""
    source = rows.source.then(change)
    if not rows.in_memory:
        return source, numeric_sample(survey.sample, change)
    (chunk,) = source.chunks(survey.n_rows)
    sample = replace(survey.sample, chunk=chunk.take(survey.sample.rows))
    return ArraySource(chunk.x, chunk.s, None, chunk.weight), sample


def numeric_sample(sample: Sample, change: Any) -> Sample:
    """Return a sample with its rows as numbers."""
    chunk = change(sample.chunk)
    return replace(sample, chunk=Chunk(chunk.x, chunk.s, None, chunk.weight))


def _numbers(names: Sequence[str], encoders: Sequence[SensitiveEncoder], chunk: Chunk) -> Chunk:
    """Numbers and codes of the rows that count; 0 in the others, whose levels may be unknown."""
    index, parts = np.flatnonzero(chunk.weights > 0), []
    for name, encoder, part in zip(names, encoders, (chunk.x, chunk.s), strict=True):
        table = frames.as_table(part, one_column=True)
        rows = np.zeros((chunk.n_rows, encoder.n_features_in_))
        with located(name):
            some = table if len(index) == len(rows) else frames.take_rows(table, index)
            rows[index] = encoder.transform(some)
        parts.append(rows)
    return replace(chunk, x=parts[0], s=parts[1], y=None)
