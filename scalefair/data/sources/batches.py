"""Rows that a program passes batch by batch."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from scalefair._typing import Chunk, Shaped
from scalefair.data import frames
from scalefair.data.sources.base import ARGUMENTS, ChunkSource, cut_chunk, finite_columns, regrouped, weights

_KEYS = ("X", "y", "sensitive_features", "sample_weight", "control_features")

Batches = Iterable[Any] | Callable[[], Iterable[Any]]


class BatchSource(ChunkSource):
    """Batches of rows, created again for every pass.

    Parameters
    ----------
    batches : callable or iterable
        A function that returns a fresh iterator of batches each time, always of the same rows in
        the same order; or a list, or another iterable that starts from the beginning each time.
        A batch is a tuple ``(X, y, sensitive_features, sample_weight, control_features)``, of which
        the last ones may be left out or None, or a dict with these keys.
    n_threads : int or None
        Number of chunks read at once; None means one per core that BLAS may use.
    """

    def __init__(self, batches: Batches, *, n_threads: int | None = None) -> None:
        self.n_threads = n_threads
        if isinstance(batches, Iterator):
            raise ValueError(
                f"batches is a {type(batches).__name__}, which can be read only once, but several "
                "passes are made; give the function that makes it: BatchSource(make_batches) or "
                "BatchSource(lambda: make_batches(path))"
            )
        table = isinstance(batches, str | bytes | Mapping | Shaped)
        if table or not (callable(batches) or isinstance(batches, Iterable)):
            raise TypeError(
                f"batches is a {type(batches).__name__}; expected a function that returns batches, or a list of them"
            )
        self._batches = batches
        # One for all copies that `then` makes.
        self._counted: list[int] = []

    @property
    def n_rows(self) -> int | None:
        """Number of rows, None until a pass has counted them."""
        return self._counted[0] if self._counted else None

    def _read(self, rows: int) -> Iterator[Chunk]:
        count = 0
        for batches in regrouped(self._checked(), rows, _cut, _length):
            where, chunk = _stacked(batches)
            y, weight = (finite_columns(chunk.y, "y", where, count), weights(chunk.weight, where, count))
            yield replace(chunk, y=y, weight=weight, row=count, where=where)
            count += chunk.n_rows
        self._check_count(count)

    def _checked(self) -> Iterator[tuple[int, Chunk]]:
        """Yield the batches with their numbers; parts or columns that differ are a ValueError."""
        first: dict[str, str] = {}
        made = self._batches() if callable(self._batches) else self._batches
        for number, batch in enumerate(made):
            chunk = _chunk_of(number, batch)
            layout = {name: _layout(part) for name, part in chunk.parts.items()}
            first = first or layout
            for name, shown in layout.items():
                if shown != first[name]:
                    raise ValueError(
                        f"batch {number}: {ARGUMENTS[name]} is {shown}, in the first batch "
                        f"{first[name]}; give every batch the same parts and columns"
                    )
            yield number, chunk

    def _check_count(self, count: int) -> None:
        before = self.n_rows
        if before is not None and count != before:
            raise ValueError(
                f"batches gave {count} rows in this pass and {before} before; several passes are "
                "made: give a function that returns a fresh iterator of the same rows each time"
            )
        if count == 0:
            raise ValueError(
                "batches gave no rows; give at least one batch with a row, and a function that "
                "returns a fresh iterator each time"
            )
        self._counted[:] = [count]


def _chunk_of(number: int, batch: Any) -> Chunk:
    """Return the rows of a tuple or a dict."""
    if isinstance(batch, Mapping):
        if set(batch) - set(_KEYS) or "X" not in batch:
            raise ValueError(
                f"batch {number} has the keys {list(batch)}; expected 'X' and, where there are "
                f"any, {', '.join(map(repr, _KEYS[1:]))}"
            )
        batch = tuple(batch.get(key) for key in _KEYS)
    if not isinstance(batch, tuple) or not 1 <= len(batch) <= len(_KEYS):
        count = f" of {len(batch)} parts" if isinstance(batch, tuple) else ""
        raise ValueError(
            f"batch {number} is a {type(batch).__name__}{count}; expected a tuple "
            "(X, y, sensitive_features, sample_weight, control_features), of which the last "
            "ones may be left out, or a dict with these keys"
        )
    x, y, s, weight, c = [*batch, None, None, None, None][: len(_KEYS)]
    chunk = Chunk(x if isinstance(x, Shaped) else frames.as_table(x), s, y, weight, c=c)
    for name, part in zip(_KEYS[1:], (y, s, weight, c), strict=True):
        if part is not None and frames.n_rows(part) != chunk.n_rows:
            raise ValueError(
                f"batch {number}: {name} has {frames.n_rows(part)} rows but X has "
                f"{chunk.n_rows}; give one row for each row of X"
            )
    return chunk


def _layout(part: Any) -> str:
    if part is None:
        return "absent"
    one = not isinstance(part, Shaped) or len(part.shape) == 1
    width = "one column" if one else f"{frames.n_columns(part)}"
    names = frames.column_names(part)
    return f"{type(part).__name__} with {width if names is None else names}"


def _cut(batch: tuple[int, Chunk], start: int, stop: int) -> tuple[int, Chunk]:
    return batch[0], cut_chunk(batch[1], start, stop)


def _length(batch: tuple[int, Chunk]) -> int:
    return batch[1].n_rows


def _stacked(batches: list[tuple[int, Chunk]]) -> tuple[str, Chunk]:
    (first, chunk), (last, _) = batches[0], batches[-1]
    if len(batches) == 1:
        return f"batch {first}", chunk
    where = f"batches {first} to {last}"
    each = [part.parts for _, part in batches]
    try:
        stacked = {
            name: frames.stack_rows([parts[name] for parts in each])
            for name, part in each[0].items()
            if part is not None
        }
    except Exception as error:
        raise ValueError(
            f"{where}: cannot be put one below the other ({error}); give every batch the same types"
        ) from error
    return where, replace(chunk, **stacked)
