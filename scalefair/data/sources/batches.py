"""Rows that a program hands over batch by batch."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from scalefair._typing import Chunk
from scalefair.data import frames
from scalefair.data.sources.base import ChunkSource, targets, weights

_KEYS = ("X", "y", "sensitive_features", "sample_weight", "control_features")

Parts = tuple[Any, Any, Any, Any, Any]

Batches = Iterable[Any] | Callable[[], Iterable[Any]]


class BatchSource(ChunkSource):
    """Batches of rows, made anew for every pass.

    Parameters
    ----------
    batches : callable or iterable
        A function that returns a fresh iterator of batches each time, always of the same rows in
        the same order; or a list, or another iterable that starts from the beginning each time.
        A batch is a tuple ``(X, y, sensitive_features, sample_weight, control_features)``, of which
        the last ones may be left out or None, or a dict with these keys.
    n_threads : int or None
        Chunks in flight at once; None: one per core that BLAS may use.
    """

    def __init__(self, batches: Batches, *, n_threads: int | None = None) -> None:
        self.n_threads = n_threads
        self._batches = _check_batches(batches)
        # One for all copies that `then` makes.
        self._counted: list[int] = []

    @property
    def n_rows(self) -> int | None:
        """Number of rows, None until a pass has counted them."""
        return self._counted[0] if self._counted else None

    def _read(self, rows: int) -> Iterator[Chunk]:
        count = 0
        for where, parts in _regrouped(self._checked(), rows):
            x, y, s, weight, c = parts
            y, weight = targets(y, where, count), weights(weight, where, count)
            yield Chunk(x, s, y, weight, count, where, c)
            count += frames.n_rows(x)
        self._check_count(count)

    def _checked(self) -> Iterator[_Batch]:
        first: _Batch | None = None
        made = self._batches() if callable(self._batches) else self._batches
        for number, batch in enumerate(made):
            checked = _Batch.of(number, batch)
            first = first or checked
            checked.check_like(first)
            yield checked

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


@dataclass(frozen=True)
class _Batch:
    """Rows as given: X, y, sensitive attributes, weights and controls of equal length."""

    number: int
    parts: Parts

    @classmethod
    def of(cls, number: int, batch: Any) -> _Batch:
        """Read a tuple or a dict."""
        if isinstance(batch, Mapping):
            unknown = set(batch) - set(_KEYS)
            if unknown or "X" not in batch:
                raise ValueError(
                    f"batch {number} has the keys {list(batch)}; expected 'X' and, where there are "
                    f"any, {', '.join(map(repr, _KEYS[1:]))}"
                )
            batch = tuple(batch.get(key) for key in _KEYS)
        if not isinstance(batch, tuple) or not 1 <= len(batch) <= len(_KEYS):
            found = f" of {len(batch)} parts" if isinstance(batch, tuple) else ""
            raise ValueError(
                f"batch {number} is a {type(batch).__name__}{found}; expected a tuple "
                "(X, y, sensitive_features, sample_weight, control_features), of which the last "
                "ones may be left out, or a dict with these keys"
            )
        return cls(number, _read_parts(number, batch))

    @property
    def n_rows(self) -> int:
        return frames.n_rows(self.parts[0])

    def check_like(self, first: _Batch) -> None:
        """Raise ValueError where parts or columns differ from those of the first batch."""
        for name, part, other in zip(_KEYS, self.parts, first.parts, strict=True):
            if _layout(part) != _layout(other):
                raise ValueError(
                    f"batch {self.number}: {name} is {_layout(part)}, in the first batch "
                    f"{_layout(other)}; give every batch the same parts and columns"
                )


def _check_batches(batches: Any) -> Any:
    if isinstance(batches, Iterator):
        raise ValueError(
            f"batches is a {type(batches).__name__}, which can be read only once, but several "
            "passes are made; give the function that makes it: BatchSource(make_batches) or "
            "BatchSource(lambda: make_batches(path))"
        )
    if isinstance(batches, str | bytes | Mapping) or hasattr(batches, "shape"):
        raise TypeError(
            f"batches is a {type(batches).__name__}; expected a function that returns batches, or "
            "a list of them"
        )
    if not (callable(batches) or isinstance(batches, Iterable)):
        raise TypeError(f"batches={batches!r}; expected a function that returns batches, or a list")
    return batches


def _read_parts(number: int, batch: tuple[Any, ...]) -> Parts:
    x, y, s, weight, c = [*batch, None, None, None, None][: len(_KEYS)]
    if isinstance(x, list):
        x = frames.as_table(x)
    for name, part in zip(_KEYS[1:], (y, s, weight, c), strict=True):
        if part is not None and frames.n_rows(part) != frames.n_rows(x):
            raise ValueError(
                f"batch {number}: {name} has {frames.n_rows(part)} rows but X has "
                f"{frames.n_rows(x)}; give one row for each row of X"
            )
    return x, y, s, weight, c


def _layout(part: Any) -> str:
    if part is None:
        return "absent"
    width = "one column" if len(getattr(part, "shape", (0,))) == 1 else f"{frames.n_columns(part)}"
    names = frames.column_names(part)
    return f"{type(part).__name__} with {width if names is None else names}"


def _regrouped(batches: Iterable[_Batch], rows: int) -> Iterator[tuple[str, tuple[Any, ...]]]:
    """Yield ("batch 3" or "batches 3 to 5", parts) of `rows` rows, the last of them fewer."""
    pending: list[_Batch] = []
    room = rows
    for batch in batches:
        start = 0
        while start < batch.n_rows:
            stop = min(start + room, batch.n_rows)
            pending.append(_Batch(batch.number, _sliced(batch.parts, start, stop)))
            room -= stop - start
            start = stop
            if room == 0:
                yield _stacked(pending)
                pending, room = [], rows
    if pending:
        yield _stacked(pending)


def _sliced(parts: Parts, start: int, stop: int) -> Parts:
    x, y, s, weight, c = (
        None if part is None else frames.slice_rows(part, start, stop) for part in parts
    )
    return x, y, s, weight, c


def _stacked(batches: list[_Batch]) -> tuple[str, tuple[Any, ...]]:
    first, last = batches[0].number, batches[-1].number
    if len(batches) == 1:
        return f"batch {first}", batches[0].parts
    where = f"batches {first} to {last}"
    columns = zip(*(batch.parts for batch in batches), strict=True)
    try:
        return where, tuple(None if c[0] is None else frames.stack_rows(c) for c in columns)
    except Exception as error:
        raise ValueError(
            f"{where}: cannot be put one below the other ({error}); give every batch the same types"
        ) from error
