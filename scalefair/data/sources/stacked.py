"""Rows of two tables, one below the other, each read as its own source does."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from copy import copy
from dataclasses import replace
from typing import Any, Self

from scalefair._typing import Accumulator, Chunk
from scalefair.data.sources.base import Change, ChunkSource

SECOND = 2**40
"""Number of the first row of the second table: samples and folds need not know how long the first
is."""


class StackedSource(ChunkSource):
    """The rows of two sources; those of the second are numbered from `SECOND` on."""

    def __init__(self, first: ChunkSource, second: ChunkSource) -> None:
        self.n_threads = first.n_threads
        self.first, self.second = first, second.then(_numbered)

    @property
    def n_rows(self) -> int | None:
        """Number of rows, None if unknown before a pass."""
        counts = [self.first.n_rows, self.second.n_rows]
        return None if None in counts else sum(counts)  # type: ignore[arg-type]

    def then(self, change: Change) -> Self:
        """Return the same rows with `change` applied, after what was before, to every chunk."""
        other = copy(self)
        other.first, other.second = self.first.then(change), self.second.then(change)
        return other

    def _read(self, rows: int) -> Iterator[Chunk]:
        yield from self.first.chunks(rows)
        yield from self.second.chunks(rows)

    def fold(self, start: Callable[[], Accumulator], rows: int) -> Any:
        """Feed every chunk once to accumulators that `start` makes; return the sum of results."""
        return self.first.fold(start, rows) + self.second.fold(start, rows)

    def rounds(
        self, start: Callable[[], Accumulator], rows: int, chunks: int, first_row: int = 0
    ) -> Iterator[tuple[Any, int]]:
        """Fold so many chunks at a time; yield each sum and the row that comes next."""
        if first_row < SECOND:
            yield from self.first.rounds(start, rows, chunks, first_row)
        behind = max(first_row - SECOND, 0)
        for part, row in self.second.rounds(start, rows, chunks, behind):
            yield part, SECOND + row


def _numbered(chunk: Chunk) -> Chunk:
    return replace(chunk, row=SECOND + chunk.row)
