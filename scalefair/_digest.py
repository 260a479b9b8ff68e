"""Fingerprints of fitted objects: equal for equal maps and encoders, on any machine."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np

SKIPPED = frozenset({"random_state", "n_jobs"})
"""Parameters that leave no trace once an object is fitted."""


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
    elif isinstance(value, str | int | float | bool | np.generic | type | None):
        state.update(f"{value!r} ".encode())
    else:
        state.update(f"{type(value).__name__} ".encode())
        _feed(state, {k: v for k, v in attributes(value).items() if k not in SKIPPED})


def attributes(value: Any) -> dict[str, Any]:
    """Return the attributes of an object, with or without __slots__."""
    if hasattr(value, "__dict__"):
        return dict(vars(value))
    return {name: getattr(value, name) for name in getattr(type(value), "__slots__", ())}
