"""The steps of a fit, for estimators that have callbacks; a fit without has None instead."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Protocol

from scalefair.data.sources import ChunkSource


class Progress(Protocol):
    """Reports the steps of a fit."""

    def watched(self, source: ChunkSource, rows: int, n_rows: int | None = None) -> AbstractContextManager[ChunkSource]:
        """Return the source for one pass in chunks of `rows`; every chunk read is a step."""

    def steps(self, name: str, count: int | None = None) -> AbstractContextManager[Callable[[], None]]:
        """Return a function to call after each of `count` steps, from any thread."""
