"""Whatever users pass to a measure, as one source of numeric chunks."""

from __future__ import annotations

import sys
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from narwhals.dependencies import is_into_dataframe, is_into_series

from scalefair import _frames
from scalefair._linalg import check_finite
from scalefair._typing import Array, Chunk
from scalefair.maps.mixed import SAMPLE_ROWS
from scalefair.measures._columns import Facts, Variable
from scalefair.stream import (
    ArraySource,
    ChunkSource,
    DaskSource,
    FileSource,
    Sample,
    Sampler,
    Scan,
    is_dask,
)

LEARN_ROWS = 65536
"""Rows per chunk where no features are computed."""


@dataclass(frozen=True, eq=False)
class Pair:
    """Rows of two variables as numbers.

    Parameters
    ----------
    source : ChunkSource
        Chunks whose x is a and whose s is b, numeric, with an empty y.
    a, b : Variable
        What is known of them.
    n_rows : int
        Number of rows of positive weight.
    weight : float
        Sum of their weights: the n of every formula.
    in_memory : bool
        Whether the rows are arrays.
    seed : int
        Of samples.
    sample : Chunk or None
        SAMPLE_ROWS rows as numbers, where a pass over a stream has drawn them already.
    """

    source: ChunkSource
    a: Variable
    b: Variable
    n_rows: int
    weight: float
    in_memory: bool
    seed: int
    sample: Chunk | None = None

    def rows(self, size: int | None = None) -> Chunk:
        """Return all rows that count, or at most `size` chosen by their number."""
        if size == SAMPLE_ROWS and self.sample is not None:
            return self.sample
        return self.source.sample(sys.maxsize if size is None else size, self.seed)

    def landmark_rows(self, n_components: int) -> Chunk:
        """Return a sample to learn maps from, in which every number varies."""
        chunk = self.rows(max(SAMPLE_ROWS, 4 * n_components))
        sides = ((self.a, chunk.x), (self.b, chunk.s))
        if not any(variable.is_flat(rows).any() for variable, rows in sides):
            return chunk
        x, s = (np.vstack([rows, variable.ends(rows)]) for variable, rows in sides)
        w = (
            chunk.weight
            if chunk.weight is None
            else np.append(chunk.weight, [chunk.weight.mean()] * 2)
        )
        return replace(chunk, x=x, s=s, y=np.empty((len(x), 0)), weight=w)


def open_pair(
    a: Any,
    b: Any,
    sample_weight: Any = None,
    *,
    names: tuple[str, str] = ("a", "b"),
    seed: int = 0,
    least: int = 2,
    every: tuple[bool, bool] = (False, False),
) -> Pair:
    """Check two variables of equal length and learn what their columns hold.

    Parameters
    ----------
    a, b : array-like, Series, frame, Scan or dask collection of shape (n,) or (n, p)
        Or as `a` a pair that was opened before, or a source of chunks with x and s; b is None then.
    sample_weight : array-like, Scan or dask collection of shape (n,), optional
    names : pair of str
        What the arguments are called, for errors.
    seed : int
        Of samples.
    least : int
        Rows that the measure needs.
    every : pair of bool
        Whether the numbers of a variable are categories, too.
    """
    if isinstance(a, Pair):
        return a
    streamed = any(isinstance(part, Scan | ChunkSource) or is_dask(part) for part in (a, b))
    opened = _open_stream if streamed else _open_memory
    pair = opened(a, b, sample_weight, _Asked(names, seed, every))
    if pair.n_rows < least:
        raise ValueError(
            f"{names[0]} and {names[1]} have {pair.n_rows} row(s) of positive weight, this measure "
            f"needs at least {least}; give more rows"
        )
    return pair


class _Asked(NamedTuple):
    """Arguments of `open_pair`."""

    names: tuple[str, str]
    seed: int
    every: tuple[bool, bool]


def _open_memory(a: Any, b: Any, weight: Any, asked: _Asked) -> Pair:
    names = asked.names
    tables = [as_rows(name, part) for name, part in zip(names, (a, b), strict=True)]
    check_lengths(dict(zip(names, tables, strict=True)))
    w = check_weight(weight, _frames.n_rows(tables[0]))
    first, second = (
        Variable.learnt(Facts.of(name, table, w, every=flag), sensitive=name == names[1])
        for name, table, flag in zip(names, tables, asked.every, strict=True)
    )
    x, s = first.numbers(tables[0]), second.numbers(tables[1])
    source = ArraySource(x, s, np.empty((len(x), 0)), w)
    n = len(x) if w is None else int(np.count_nonzero(w))
    return Pair(source, first, second, n, float(n if w is None else w.sum()), True, asked.seed)


def as_rows(name: str, values: Any) -> Any:
    """Return what is in memory as something with rows; a list becomes an array."""
    if is_into_dataframe(values) or is_into_series(values):
        return values
    if isinstance(values, str) or not hasattr(values, "__len__"):
        raise TypeError(
            f"{name}={values!r} is a {type(values).__name__}; give an array, a Series, a frame, a "
            "scan or a dask collection with one row per person"
        )
    array = np.asarray(values)
    if array.dtype.kind in "US" and not isinstance(values, np.ndarray):
        array = np.array(values, dtype=object)
    if array.ndim not in (1, 2) or 0 in array.shape[1:]:
        raise ValueError(
            f"{name} has shape {array.shape}; expected (n,) or (n, columns), at least one column"
        )
    return array


def check_lengths(tables: dict[str, Any]) -> None:
    """Complain of variables of different lengths."""
    lengths = {name: _frames.n_rows(table) for name, table in tables.items()}
    if len(set(lengths.values())) > 1:
        found = " but ".join(f"{name} has {n} rows" for name, n in lengths.items())
        raise ValueError(f"{found}; give one row each, in the same order")


def check_weight(weight: Any, n: int) -> Array | None:
    """Return the weights, finite, not negative and not all zero; None for None."""
    if weight is None:
        return None
    try:
        w = np.asarray(weight, dtype=np.float64)
    except (TypeError, ValueError):
        raise ValueError("sample_weight holds values that are not numbers; convert it") from None
    w = w[:, 0] if w.ndim == 2 and w.shape[1] == 1 else w
    if w.shape != (n,):
        raise ValueError(f"sample_weight has shape {w.shape}; expected ({n},), one per row")
    if not (np.isfinite(w).all() and (w >= 0).all() and w.any()):
        raise ValueError(
            "sample_weight must be finite, not negative, and positive somewhere; set rows that "
            "should not count to 0"
        )
    check_finite("sample_weight", w)
    return w


@dataclass(frozen=True, eq=False)
class _Learned:
    n_rows: int
    weight: float
    a: Facts
    b: Facts
    sample: Sample

    def __add__(self, other: _Learned | None) -> _Learned:
        if other is None:
            return self
        return _Learned(
            self.n_rows + other.n_rows, self.weight + other.weight,
            self.a + other.a, self.b + other.b, self.sample + other.sample,
        )  # fmt: skip

    def __radd__(self, other: None) -> _Learned:
        return self


class _Learner:
    """Accumulator of what must be known before rows become numbers, and of a sample."""

    def __init__(self, asked: _Asked) -> None:
        self._asked = asked
        self._learned: _Learned | None = None

    def add(self, chunk: Chunk) -> None:
        """Count the rows of one chunk in; an error says where they come from."""
        if chunk.n_rows == 0:
            return
        try:
            new = self._of(chunk)
            self._learned = new if self._learned is None else self._learned + new
        except ValueError as error:
            raise ValueError(f"{chunk.where}: {error}" if chunk.where else str(error)) from error

    def _of(self, chunk: Chunk) -> _Learned:
        w = chunk.weight
        if w is not None:
            check_finite("sample_weight", np.asarray(w))
        n = chunk.n_rows if w is None else int(np.count_nonzero(w))
        parts = zip(self._asked.names, (chunk.x, chunk.s), self._asked.every, strict=True)
        a, b = (Facts.of(name, part, w, every=flag) for name, part, flag in parts)
        sampler = Sampler(SAMPLE_ROWS, self._asked.seed)
        sampler.add(chunk)
        return _Learned(n, float(n if w is None else w.sum()), a, b, sampler.result())

    def result(self) -> _Learned | None:
        """Return what all rows seen have told."""
        return self._learned


def _open_stream(a: Any, b: Any, weight: Any, asked: _Asked) -> Pair:
    names = asked.names
    source = stream_source(a, b, weight, names)
    learned: _Learned | None = source.fold(partial(_Learner, asked), LEARN_ROWS)
    if learned is None:
        raise ValueError(f"{names[0]} has no rows; give at least a few")
    if learned.weight == 0:
        raise ValueError("sample_weight is zero for every row; at least one must be positive")
    first, second = Variable.learnt(learned.a), Variable.learnt(learned.b, sensitive=True)
    numeric = source.then(partial(_numbers, first, second))
    sample = _numbers(first, second, learned.sample.chunk())
    return Pair(numeric, first, second, learned.n_rows, learned.weight, False, asked.seed, sample)


def _numbers(a: Variable, b: Variable, chunk: Chunk) -> Chunk:
    y = np.empty((chunk.n_rows, 0))
    return replace(chunk, x=a.numbers(chunk.x), s=b.numbers(chunk.s), y=y)


def stream_source(a: Any, b: Any, weight: Any, names: tuple[str, str]) -> ChunkSource:
    """Return the source of rows in files or in dask collections; chunks hold x = a and s = b."""
    if isinstance(a, ChunkSource):
        return a
    scans = [isinstance(part, Scan) for part in (a, b)]
    if any(scans) and any(is_dask(part) for part in (a, b)):
        raise TypeError(
            f"{names[0]} and {names[1]} are a scan of files and a dask collection; give both as "
            "one or the other"
        )
    if any(scans):
        a, b = (
            p if isinstance(p, Scan) else as_rows(n, p) for n, p in zip(names, (a, b), strict=True)
        )
        if scans[0]:
            return FileSource(a, b, None, weight)
        return FileSource(b, a, None, weight).then(_swapped)
    a, b = (p if is_dask(p) else as_rows(n, p) for n, p in zip(names, (a, b), strict=True))
    return DaskSource(_two_dimensional(a), b, None, weight)


def _two_dimensional(part: Any) -> Any:
    """A Series as a frame, a vector as a column: what a source takes for its inputs."""
    if len(part.shape) == 2:
        return part
    return part.to_frame() if hasattr(part, "to_frame") else part[:, None]


def _swapped(chunk: Chunk) -> Chunk:
    return replace(chunk, x=chunk.s, s=chunk.x)
