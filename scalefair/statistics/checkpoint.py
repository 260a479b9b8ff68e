"""The sums of a long pass, kept in a file, so that it can go on after a crash."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from scalefair import _files
from scalefair.statistics.moments import FoldMoments, Moments


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
    """

    path: Path
    seconds: float = 60.0
    chunks: int = 64

    def write(self, moments: FoldMoments, next_row: int, data: str = "") -> None:
        """Keep the moments of all rows before `next_row` of the data with that fingerprint."""
        states = [fold.state() for fold in moments]
        arrays = {
            f"{k}.{name}": array
            for k, (parts, _) in enumerate(states)
            for name, array in parts.items()
        }
        folds = [value for _, value in states]
        values = {"next_row": next_row, "folds": folds, "data": data}
        _files.write(self.path, "checkpoint", arrays, values)

    def read(self, key: str, data: str = "") -> tuple[FoldMoments | None, int]:
        """Return the moments kept and the row to go on from; (None, 0) where there is no file.

        Moments of other maps or encodings than `key` says, or of other data, are a ValueError.
        """
        if not self.path.exists():
            return None, 0
        arrays, values = _files.read(self.path, "checkpoint")
        try:
            found = FoldMoments(
                Moments.of_state(_of_fold(arrays, k), value)
                for k, value in enumerate(values["folds"])
            )
            next_row, same = int(values["next_row"]), values["data"] == data
        except (KeyError, TypeError, ValueError, ArithmeticError) as error:
            raise ValueError(f"{self.path} holds no valid checkpoint ({error})") from error
        if not same or any(fold.key != key for fold in found):
            raise ValueError(
                f"checkpoint={str(self.path)!r} was written by a fit with other data or settings; "
                "remove the file to start anew, or use the same data, parameters, folds and "
                "random_state"
            )
        return found, next_row

    def remove(self) -> None:
        """Remove the file, if there is one."""
        self.path.unlink(missing_ok=True)


def _of_fold(arrays: dict[str, Any], k: int) -> dict[str, Any]:
    prefix = f"{k}."
    return {
        name.removeprefix(prefix): array
        for name, array in arrays.items()
        if name.startswith(prefix)
    }
