"""f = φ(x)β + ψ(s)γ + ĥ(x)δ + b on chunks, with curves of ĥ(x) where there are any."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from scalefair._typing import Array, Chunk, FeatureMap

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
    buffer = np.empty((rows, phi.n_raw_), coef["phi"].dtype)

    def predict(chunk: Chunk) -> Array:
        f = phi.raw(chunk.x, out=buffer[: chunk.n_rows]) @ coef["phi"]
        if psi is not None:
            f = f + psi.raw(chunk.s) @ coef["psi"]
        if "base" in coef:
            f = f + chunk.h @ coef["base"]
        if curve is not None:
            f = f + curve.rows(chunk) @ coef["curve"]
        return np.asarray(f + intercept, dtype=np.float64)

    return predict
