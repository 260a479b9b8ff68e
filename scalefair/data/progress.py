"""Who hears of the steps of a fit: nobody, unless an estimator passes its callbacks on."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

from scalefair.data.sources import ChunkSource


class Progress:
    """Hears of the steps of a fit and says nothing."""

    def watched(
        self, source: ChunkSource, rows: int, n_rows: int | None = None
    ) -> AbstractContextManager[ChunkSource]:
        """Give the source back for one pass in chunks of `rows`; every chunk read is a step."""
        del rows, n_rows
        return nullcontext(source)

    def steps(
        self, name: str, count: int | None = None
    ) -> AbstractContextManager[Callable[[], None]]:
        """Give a function that is called after each of `count` steps, from any thread."""
        del name, count
        return nullcontext(nothing)


def nothing() -> None:
    """Nobody listens."""
