"""The sums of a long pass, written to a file, so that it can go on after a crash."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import reduce
from operator import add
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from scalefair import _files
from scalefair._hash import value_hash
from scalefair._typing import Accumulator, Chunk
from scalefair.data.sources.base import cut_chunk
from scalefair.moments.moments import ARRAYS, FoldMoments, Moments

if TYPE_CHECKING:
    from scalefair.data.folds import Folds


@dataclass(frozen=True, eq=False)
class Counted:
    """Moments of rows (None: of none) and digests of them; `+` joins those of different rows.

    The digests are sums of `value_hash`: of rows that an earlier pass has counted, less what that
    pass says, which is 0 once the same rows have been read again; and of all rows counted.
    """

    moments: FoldMoments | None
    digests: NDArray[np.uint64]

    def __add__(self, other: Counted) -> Counted:
        moments = [part.moments for part in (self, other) if part.moments is not None]
        return Counted(reduce(add, moments) if moments else None, self.digests + other.digests)


class Counting:
    """Accumulator of one thread: counts rows from `first_row` on, and digests all of them."""

    def __init__(self, start: Callable[[], Accumulator], folds: Folds, first_row: int) -> None:
        self._start, self._folds, self._first_row = start, folds, first_row
        self._sums: Accumulator | None = None
        self._digests = np.zeros(2, dtype=np.uint64)

    def add(self, chunk: Chunk) -> None:
        """Add the new rows of one chunk."""
        if chunk.n_rows == 0:
            return
        old = min(max(self._first_row - chunk.row, 0), chunk.n_rows)
        parts = [part for part in chunk.parts.values() if part is not None]
        if self._folds.of is not None:
            parts.append(self._folds.of(np.arange(chunk.row, chunk.row + chunk.n_rows)))
        hashes = value_hash(chunk.row, parts)
        self._digests += np.array([hashes[:old].sum(), hashes[old:].sum()])
        if old < chunk.n_rows:
            self._sums = self._start() if self._sums is None else self._sums
            self._sums.add(cut_chunk(chunk, old, chunk.n_rows) if old else chunk)

    def result(self) -> Counted:
        """Return what has been counted."""
        return Counted(None if self._sums is None else self._sums.result(), self._digests)


@dataclass(frozen=True)
class Checkpoint:
    """A file that holds the moments of the first rows of a pass, how many, and a digest of them.

    A pass that goes on reads those rows again, without their features, and compares the digest: a row that differs in
    one number is always noticed, any other difference but with a chance of 2⁻⁶⁴.
    """

    path: Path  # written atomically; removed when the pass is complete
    seconds: float = 60.0  # at least, between two writes
    chunks: int = 64  # between two moments at which it can be written

    def write(self, counted: Counted, next_row: int) -> None:
        """Keep the moments and the digest of all rows before `next_row`."""
        states = [fold.state() for fold in counted.moments or ()]
        arrays: dict[str, NDArray[Any]] = {
            f"{k}.{name}": array for k, (parts, _) in enumerate(states) for name, array in parts.items()
        }
        arrays["digest"] = counted.digests[1:]
        values = {"next_row": next_row, "raw_folds": [value for _, value in states]}
        _files.write(self.path, "checkpoint", arrays, values)

    def read(self, key: str, n_folds: int) -> tuple[Counted, int]:
        """Return the sums so far and the next row: an empty sum and 0 without a file."""
        if not self.path.exists():
            return Counted(None, np.zeros(2, dtype=np.uint64)), 0
        arrays, values = _files.read(self.path, "checkpoint")
        try:
            states = [({n: arrays[f"{k}.{n}"] for n in ARRAYS}, value) for k, value in enumerate(values["raw_folds"])]
            folds = FoldMoments(Moments.of_state(*state) for state in states)
            next_row = int(values["next_row"])
            (digest,) = arrays["digest"].astype(np.uint64, casting="safe").reshape(1, 1)
        except (KeyError, TypeError, ValueError, ArithmeticError) as error:
            raise ValueError(f"{self.path} holds no valid checkpoint ({error})") from error
        if len(folds) != n_folds or any(fold.key != key for fold in folds):
            raise self._other()
        return Counted(folds, np.concatenate([-digest, digest])), next_row

    def check(self, counted: Counted) -> None:
        """Raise ValueError unless the rows counted before have been read again as they were."""
        if counted.digests[0]:
            raise self._other()

    def _other(self) -> ValueError:
        return ValueError(
            f"checkpoint={str(self.path)!r} was written by a fit with other data or settings; "
            "remove the file to start over, or use the same data, parameters and random_state"
        )

    def remove(self) -> None:
        """Remove the file, if there is one."""
        self.path.unlink(missing_ok=True)
