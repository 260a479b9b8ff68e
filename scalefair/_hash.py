"""Row hashes, fingerprints of fitted objects, and distinct rows.

Which rows are sampled depends on the hash of their numbers alone, never on the chunking.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

_GOLDEN = 0x9E3779B97F4A7C15
_WORD = 1 << 64
_ROWS_AT_ONCE = 1 << 17
_PLAIN = (str, int, float, np.generic, type)
NOT_DIGESTED = frozenset({"random_state", "n_jobs", "group_weights_"})
"""Parameters that leave no trace once an object is fitted, and what rows do not depend on."""


def row_hash(seed: int, rows: ArrayLike) -> NDArray[np.uint64]:
    """Hash row numbers: output number `row` (from 0) of SplitMix64 seeded with `seed` modulo 2⁶⁴.

        z = seed + (row + 1) · 0x9E3779B97F4A7C15          (all modulo 2⁶⁴)
        z = (z ^ z >> 30) · 0xBF58476D1CE4E5B9
        z = (z ^ z >> 27) · 0x94D049BB133111EB
        hash = z ^ z >> 31

    For a fixed seed it is a bijection of 64-bit words, so distinct rows never tie. Samples that
    people have saved depend on it: it must never change.
    """
    rows = np.asarray(rows)
    # At least one dimension: arithmetic of arrays wraps silently, that of numpy scalars warns.
    z = np.array(rows, dtype=np.uint64, ndmin=1)
    z *= np.uint64(_GOLDEN)
    z += np.uint64((seed + _GOLDEN) % _WORD)
    _mix(z)
    return z.reshape(rows.shape)


def _mix(z: NDArray[np.uint64]) -> None:
    """Mix the bits of each word, by a bijection of words."""
    z ^= z >> np.uint64(30)
    z *= np.uint64(0xBF58476D1CE4E5B9)
    z ^= z >> np.uint64(27)
    z *= np.uint64(0x94D049BB133111EB)
    z ^= z >> np.uint64(31)


def value_hash(first_row: int, parts: Iterable[ArrayLike]) -> NDArray[np.uint64]:
    """Hash consecutive rows, their number and their values: if one value differs, so does the hash."""
    columns = [np.asarray(part, dtype=np.float64) for part in parts]
    z = row_hash(0, np.arange(first_row, first_row + len(columns[0])))
    for part in columns:
        for column in np.ascontiguousarray(part.reshape(len(z), -1).T):
            z ^= column.view(np.uint64)
            _mix(z)
    return z


def hash_uniform(seed: int, rows: ArrayLike) -> NDArray[np.float64]:
    """Return the row hashes as numbers in [0, 1): their upper 53 bits."""
    return np.asarray((row_hash(seed, rows) >> np.uint64(11)) * 2.0**-53)


def smallest_hash(seed: int, first_row: int, count: int, size: int) -> NDArray[np.int64]:
    """Return the `size` rows of smallest hash among `count`, ascending: samples that merge."""
    chosen = np.empty(0, dtype=np.int64)
    for start in range(first_row, first_row + count, _ROWS_AT_ONCE):
        stop = min(start + _ROWS_AT_ONCE, first_row + count)
        rows = np.concatenate([chosen, np.arange(start, stop, dtype=np.int64)])
        if len(rows) > size:
            rows = rows[np.argpartition(row_hash(seed, rows), size)[:size]]
        chosen = rows
    return np.sort(chosen)


def balanced_fold(count: int, seed: int, rows: NDArray[np.int64]) -> NDArray[np.int64]:
    """Fold of each row: every run of `count` rows is dealt out at random, one to each fold."""
    block = (rows // count)[:, None] * count + np.arange(count)
    dealt = row_hash(seed, block.ravel()).reshape(block.shape)
    own = np.take_along_axis(dealt, (rows % count)[:, None], axis=1)
    return np.asarray((dealt < own).sum(axis=1))


def digest(value: Any) -> str:
    """Return a short fingerprint of a fitted object: its class, numbers, texts and arrays."""
    state = hashlib.sha256()
    _feed(state, value)
    return f"{type(value).__name__}:{state.hexdigest()[:12]}"


def _feed(state: Any, value: Any) -> None:
    if isinstance(value, np.ndarray) and value.dtype.kind not in "OU":
        state.update(f"array {value.dtype.str} {value.shape} ".encode())
        state.update(np.ascontiguousarray(value).tobytes())
    elif isinstance(value, np.ndarray | list | tuple):
        state.update(f"list {len(value)} ".encode())
        for item in value:
            _feed(state, item)
    elif isinstance(value, dict):
        state.update(f"dict {len(value)} ".encode())
        for key in sorted(value, key=str):
            _feed(state, key)
            _feed(state, value[key])
    elif value is None or isinstance(value, _PLAIN):
        state.update(f"{value!r} ".encode())
    else:
        state.update(f"{type(value).__name__} ".encode())
        own = vars(value) if hasattr(value, "__dict__") else slots(value)
        _feed(state, {k: v for k, v in own.items() if k not in NOT_DIGESTED})


def slots(value: Any) -> dict[str, Any]:
    """Return the attributes of an object with __slots__."""
    return {name: getattr(value, name) for name in getattr(type(value), "__slots__", ())}


class Distinct(NamedTuple):
    """Distinct rows in lexicographic order."""

    rows: NDArray[Any]
    first: NDArray[np.int64]  # where each is first found
    number: NDArray[np.int64]  # which of them every row is


def distinct(rows: NDArray[Any]) -> Distinct:
    """Return the distinct rows of an array of shape (n, d)."""
    # Not by np.unique(axis=0), which makes a TypeError of an interrupt.
    order = np.lexsort(rows.T[::-1]) if rows.shape[1] else np.arange(len(rows))
    ordered = rows[order]
    new = np.ones(len(rows), dtype=bool)
    new[1:] = (ordered[1:] != ordered[:-1]).any(axis=1)
    number = np.empty(len(rows), dtype=np.int64)
    number[order] = np.cumsum(new) - 1
    return Distinct(ordered[new], order[new], number)
