"""One pass for several statistics: each accumulator sees its own view of every chunk."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from scalefair._typing import Accumulator, Chunk

View = Callable[[Chunk], Chunk]


class Sums(tuple[Any, ...]):
    """Statistics side by side; `+` adds each to its counterpart."""

    def __add__(self, other: Any) -> Any:
        return type(self)(a + b for a, b in zip(self, other, strict=True))


class Together:
    """Accumulator of several statistics in one pass.

    Parameters
    ----------
    parts : sequence of (view, start)
        `start` makes an accumulator, which gets view(chunk) of every chunk.
    """

    def __init__(self, parts: Sequence[tuple[View, Callable[[], Accumulator]]]) -> None:
        self._parts = [(view, start()) for view, start in parts]

    def add(self, chunk: Chunk) -> None:
        """Count the rows of one chunk in."""
        for view, accumulator in self._parts:
            accumulator.add(view(chunk))

    def result(self) -> Sums:
        """Return the statistics, in the order of the parts."""
        return Sums(accumulator.result() for _, accumulator in self._parts)
