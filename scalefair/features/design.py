"""What turns a chunk into rows of [φ(x), ψ(s), beside, y]."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from scalefair._digest import digest
from scalefair._typing import Chunk, FeatureMap, Rows
from scalefair.features._base import Buffer, start_raw
from scalefair.features.units import Units, units_of

CODED_ROWS = 8192
"""Rows per chunk where rows are named by codes, and never written out."""


def chunk_rows(width: int, dtype: Any) -> int:
    """Rows per chunk: enough for BLAS, few enough that the rows in flight stay small."""
    return int(np.clip(2**24 // (width * np.dtype(dtype).itemsize), 256, 8192))


@dataclass(frozen=True)
class Block:
    """Narrow columns of a row beside φ, ψ and y: another model's prediction, or a control.

    Parameters
    ----------
    name : str
        By which the moments know them.
    width : int
        How many.
    rows : callable
        Makes them from a chunk: array of shape (k, width).
    key : str
        Fingerprint of what makes them.
    units : Units
        What the columns are, where they are sensitive attributes.
    """

    name: str
    width: int
    rows: Callable[[Chunk], Rows]
    key: str
    units: Units = ()


@dataclass(frozen=True)
class Design:
    """What turns a chunk into rows: the maps, the number of targets, and the dtype of φ.

    Parameters
    ----------
    phi, psi : FeatureMap
        Maps of the inputs and of the sensitive attributes (None: there are none).
    n_targets : int
        Columns of y.
    dtype : numpy dtype
        float64, or float32 for rows (sums are float64 in any case).
    whiten_rows : bool
        Apply the linear part of φ to every row instead of to the moments: n·m² more work, no
        digits lost (the moments lose them as machine precision over the cut-off). That of ψ is
        always applied to the rows: it is narrow,
        and the penalty divides by its smallest eigenvalues.
    preparation : str
        Fingerprints of what happens to the data before the maps see it.
    beside : tuple of Block
        More columns, between ψ and y.
    """

    phi: FeatureMap
    psi: FeatureMap | None = None
    n_targets: int = 1
    dtype: Any = np.float64
    whiten_rows: bool = False
    preparation: str = "encoding=none"
    beside: tuple[Block, ...] = ()

    @property
    def blocks(self) -> dict[str, int]:
        """Widths of the blocks of a row."""
        phi = {"phi": _width(self.phi, whiten=self.whiten_rows)}
        psi = {} if self.psi is None else {"psi": _width(self.psi, whiten=True)}
        beside = {block.name: block.width for block in self.beside}
        return {**phi, **psi, **beside, "y": self.n_targets}

    @cached_property
    def units(self) -> dict[str, Units]:
        """What the columns of the blocks of sensitive attributes are."""
        psi = {} if self.psi is None else {"psi": units_of(self.psi)}
        return psi | {block.name: block.units for block in self.beside if block.units}

    @property
    def codes(self) -> Callable[[Any], NDArray[np.int32]] | None:
        """What names the columns in which φ(x) is 1, where it is 0 in all others; else None."""
        return getattr(self.phi, "codes", None)

    @property
    def chunk_rows(self) -> int:
        """Rows per chunk, by default."""
        return CODED_ROWS if self.codes else chunk_rows(self.blocks["phi"], self.dtype)

    def rows_of(self, name: str, chunk: Chunk) -> Rows:
        """Return the rows of ψ or of a block beside it."""
        if name == "psi":
            return self.psi_rows(chunk)
        (block,) = (block for block in self.beside if block.name == name)
        return block.rows(chunk)

    def start_phi(self) -> Callable[[Any, Rows], None]:
        """Return the function that writes rows of φ into `out`, for one thread and one pass."""
        return _started(self.phi, self.dtype, whiten=self.whiten_rows)

    def start_psi(self) -> Callable[[Chunk, Rows], None]:
        """The same for ψ; zero for rows of weight zero, whose groups ψ need not know."""
        if self.psi is None:
            return _no_rows
        rows_of = _started(self.psi, np.float64, whiten=True)

        def fill(chunk: Chunk, out: Rows) -> None:
            if chunk.weight is None or np.all(chunk.weight):
                rows_of(chunk.s, out)
            else:
                out[...] = self.psi_rows(chunk)

        return fill

    def psi_rows(self, chunk: Chunk) -> Rows:
        """Return the rows of ψ; zero for rows of weight zero, whose groups ψ need not know."""
        if self.psi is None:
            return np.empty((chunk.n_rows, 0))
        return counted_rows(partial(whitened, self.psi), chunk, chunk.s)

    @property
    def key(self) -> str:
        """Fingerprints of all that turns data into rows; only moments of equal keys add up."""
        psi = "none" if self.psi is None else digest(self.psi)
        beside = "".join(f"{block.name}={block.key};" for block in self.beside)
        return f"phi={digest(self.phi)};psi={psi};{beside}{self.preparation}"


def _started(feature_map: Any, dtype: Any, *, whiten: bool) -> Callable[[Any, Rows], None]:
    """Return what fills rows, raw or whitened: all that a pass needs once is made here."""
    raw, linear = start_raw(feature_map, dtype), feature_map.linear_
    if not whiten or linear is None:
        return raw
    matrix, buffer = linear.astype(dtype), Buffer(feature_map.n_raw_, dtype)

    def fill(values: Any, out: Rows) -> None:
        rows = buffer.rows(len(values))
        raw(values, rows)
        np.matmul(rows, matrix, out=out)

    return fill


def _no_rows(chunk: Chunk, out: Rows) -> None:
    """There is no ψ to write."""


def _width(feature_map: FeatureMap, *, whiten: bool) -> int:
    linear = feature_map.linear_ if whiten else None
    return int(feature_map.n_raw_ if linear is None else linear.shape[1])


def counted_rows(rows_of: Callable[[Any], Rows], chunk: Chunk, values: Any) -> Rows:
    """Return rows_of(values), but zero for rows of weight zero: their levels need not be known."""
    if chunk.weight is None or np.all(chunk.weight):
        return rows_of(values)
    counted = np.flatnonzero(chunk.weight)
    some = rows_of(np.asarray(values)[counted])
    rows = np.zeros((chunk.n_rows, some.shape[1]))
    rows[counted] = some
    return rows


def whitened(feature_map: FeatureMap, values: Any, dtype: Any = np.float64) -> Rows:
    """φ(x) = raw(x) @ linear_, without validation."""
    raw = feature_map.raw(values, out=np.empty((len(values), feature_map.n_raw_), dtype))
    return raw if feature_map.linear_ is None else raw @ feature_map.linear_.astype(dtype)
