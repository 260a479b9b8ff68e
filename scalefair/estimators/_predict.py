"""f = φ(x)β + ψ(s)γ + ĥ(x)δ + b on chunks, with curves of ĥ(x) where there are any."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from scalefair._typing import Array, Chunk, FeatureMap
from scalefair.statistics import RowMap

PREDICT_ROWS = 512
BASE_ROWS = 4096
"""Rows per chunk with a base model, whose every call costs a millisecond or more."""


def predict_rows(estimator: Any) -> int:
    """Return the rows per chunk of `predict`."""
    return PREDICT_ROWS if estimator._preparation.base is None else BASE_ROWS


def start_predicting(  # noqa: PLR0917
    phi: FeatureMap,
    psi: FeatureMap | None,
    coef: dict[str, Array],
    intercept: Any,
    rows: int = PREDICT_ROWS,
    curve: Any = None,
) -> Callable[[Chunk], Array]:
    """Return f on chunks of at most `rows` rows, with a buffer for those of φ."""
    coded = hasattr(phi, "codes")
    along_phi = _coded(phi, coef["phi"]) if coded else _dense(phi, coef["phi"], rows)

    def predict(chunk: Chunk) -> Array:
        f = along_phi(chunk.x)
        if psi is not None:
            f = f + psi.raw(chunk.s) @ coef["psi"]
        if "base" in coef:
            f = f + chunk.h @ coef["base"]
        if curve is not None:
            f = f + curve.rows(chunk) @ coef["curve"]
        return np.asarray(f + intercept, dtype=np.float64)

    return predict


def _dense(phi: FeatureMap, coef: Array, rows: int) -> Callable[[Any], Array]:
    buffer = np.empty((rows, phi.n_raw_), coef.dtype)
    raw = RowMap(phi, dtype=buffer.dtype).start_phi()

    def along(x: Any) -> Array:
        Phi = buffer[: len(x)]
        raw(x, Phi)
        return np.asarray(Phi @ coef)

    return along


def _coded(phi: Any, coef: Array) -> Callable[[Any], Array]:
    """φ(x)β where φ(x) is 1 in the columns `codes` and 0 elsewhere; code −1 is a row of zeros."""
    padded = np.concatenate([coef, np.zeros_like(coef[:1])])
    return lambda x: np.asarray(padded[phi.codes(x)].sum(axis=0))
