"""The sums of a long pass, kept in a file, so that it can go on after a crash."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from scalefair import _files
from scalefair._digest import digest
from scalefair._typing import Source
from scalefair.statistics.moments import FoldMoments, Moments

if TYPE_CHECKING:
    from scalefair.statistics.accumulate import Folds

FIRST_ROWS = 256
"""Rows by which data are told apart."""


@dataclass(frozen=True)
class Checkpoint:
    """A file that holds the moments of the first rows of a pass, and how many they are.

    Parameters
    ----------
    path : path
        Written atomically; removed when the pass is complete.
    seconds : float
        Least time between two writes.
    chunks : int
        Chunks between two moments at which it can be written.
    rows : str
        Fingerprint of the rows, so that other ones do not go on from its sums.
    """

    path: Path
    seconds: float = 60.0
    chunks: int = 64
    rows: str = ""

    def write(self, moments: FoldMoments, next_row: int) -> None:
        """Keep the moments of all rows before `next_row`."""
        states = [fold.state() for fold in moments]
        arrays = {
            f"{k}.{name}": array
            for k, (parts, _) in enumerate(states)
            for name, array in parts.items()
        }
        values = {"next_row": next_row, "rows": self.rows, "folds": [value for _, value in states]}
        _files.write(self.path, "checkpoint", arrays, values)

    def read(self, key: str) -> tuple[FoldMoments | None, int]:
        """Return the moments kept and the row to go on from; (None, 0) where there is no file.

        Moments of other rows, or of other maps or encodings than `key` says, are a ValueError.
        """
        if not self.path.exists():
            return None, 0
        arrays, values = _files.read(self.path, "checkpoint")
        try:
            found = FoldMoments(
                Moments.of_state(_of_fold(arrays, k), value)
                for k, value in enumerate(values["folds"])
            )
            next_row, rows = int(values["next_row"]), str(values["rows"])
        except (KeyError, TypeError, ValueError, ArithmeticError) as error:
            raise ValueError(f"{self.path} holds no valid checkpoint ({error})") from error
        if rows != self.rows or any(fold.key != key for fold in found):
            raise self._other()
        return found, next_row

    def check_end(self, n_rows: int | None, first_row: int) -> None:
        """Complain if there are fewer rows than had been counted before the pass went on."""
        if n_rows is not None and n_rows < first_row:
            raise self._other()

    def _other(self) -> ValueError:
        return ValueError(
            f"checkpoint={str(self.path)!r} was written by a fit with other data or settings; "
            "remove the file to start anew, or use the same data, parameters and random_state"
        )

    def remove(self) -> None:
        """Remove the file, if there is one."""
        self.path.unlink(missing_ok=True)


def fingerprint(source: Source, folds: Folds) -> str:
    """Return what tells the numeric rows of a source from others: the first of them, and folds."""
    first = next(iter(source.chunks(FIRST_ROWS)))
    of_rows = None if folds.of is None else folds.of(np.arange(first.n_rows))
    return digest([folds.count, of_rows, first.x, first.s, first.y, first.weight, first.c])


def _of_fold(arrays: dict[str, Any], k: int) -> dict[str, Any]:
    prefix = f"{k}."
    return {
        name.removeprefix(prefix): array
        for name, array in arrays.items()
        if name.startswith(prefix)
    }
