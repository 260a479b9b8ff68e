"""f = φ(x)β + ψ(s)γ + ĥ(x)δ + b on chunks, with curves of ĥ(x) where there are any."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from scalefair._typing import Array, Chunk, FeatureMap
from scalefair.data.sources.base import ChunkSource, cut_chunk
from scalefair.features.design import Design

PREDICT_ROWS = 512
"""Rows whose features the cache holds."""

TABLE_ROWS = 8192
"""Rows per chunk that is encoded, or given to a base model: every call costs milliseconds."""


def predictions(
    estimator: Any, source: ChunkSource, start: Callable[[], Callable[[Chunk], Array]]
) -> Array:
    """Return function(chunk) of all rows, stacked; `start` makes the function of each thread."""
    prepared = estimator._preparation
    if prepared.base is None and prepared.encoder is None:
        return source.map(start, PREDICT_ROWS)
    return source.map(partial(_start_blocks, start), TABLE_ROWS)


def _start_blocks(start: Callable[[], Callable[[Chunk], Array]]) -> Callable[[Chunk], Array]:
    """Return the function on chunks of any size, block by block."""
    function = start()

    def run(chunk: Chunk) -> Array:
        starts = range(0, chunk.n_rows, PREDICT_ROWS) or [0]
        return np.concatenate([
            function(cut_chunk(chunk, first, min(first + PREDICT_ROWS, chunk.n_rows)))
            for first in starts
        ])  # fmt: skip

    return run


def start_predicting(
    phi: FeatureMap,
    psi: FeatureMap | None,
    coef: dict[str, Array],
    intercept: Any,
    curve: Any = None,
) -> Callable[[Chunk], Array]:
    """Return f on chunks of at most `PREDICT_ROWS` rows, with a buffer for those of φ."""
    along_phi = (_coded if hasattr(phi, "codes") else _dense)(phi, coef["phi"])

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


def _dense(phi: FeatureMap, coef: Array) -> Callable[[Any], Array]:
    buffer = np.empty((PREDICT_ROWS, phi.n_raw_), coef.dtype)
    raw = Design(phi, dtype=buffer.dtype).start_phi()

    def along(x: Any) -> Array:
        Phi = buffer[: len(x)]
        raw(x, Phi)
        return np.asarray(Phi @ coef)

    return along


def _coded(phi: Any, coef: Array) -> Callable[[Any], Array]:
    """φ(x)β where φ(x) is 1 in the columns `codes` and 0 elsewhere; code −1 is a row of zeros."""
    padded = np.concatenate([coef, np.zeros_like(coef[:1])])
    return lambda x: np.asarray(padded[phi.codes(x)].sum(axis=0))
