"""The design: it turns a chunk into rows, and coefficients into predictions.

    row = [φ(x), ψ(s), blocks, y],    f = b + Φβ,    Φ = [φ(x), ψ(s) where it is seen, blocks]

A control, a base model's prediction and its curves are blocks in a list.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any, ClassVar

import numpy as np

from scalefair._hash import digest
from scalefair._typing import Array, Chunk, FeatureMap, Rows
from scalefair.data.preparation import Preparation
from scalefair.data.sources import ChunkSource
from scalefair.data.sources.base import cut_chunk
from scalefair.features.base import n_features, row_filler, whitened
from scalefair.features.mixed import Units, for_new_rows, units_of
from scalefair.features.partial import Propensity, lacks
from scalefair.features.transformer import LeafMap

CODED_ROWS = 8192  # rows per chunk where rows are named by codes, and never written out
PREDICT_ROWS = 512  # rows whose features the cache holds


class Block(ABC):
    """Narrow columns of a row beside φ, ψ and y: a control, or another model's prediction."""

    name: ClassVar[str]  # of the block in the moments

    is_feature: ClassVar[bool] = False  # whether they join Φ

    units: Units = ()  # what the columns are, where they are sensitive attributes

    @property
    @abstractmethod
    def width(self) -> int:
        """Number of columns."""

    @property
    def key(self) -> str:
        """Fingerprint of what makes them."""
        return digest(self)

    @abstractmethod
    def rows(self, chunk: Chunk) -> Rows:
        """Return the columns of a numeric chunk, of shape (k, width)."""

    def attach(self, source: ChunkSource) -> ChunkSource:
        """Add to chunks what `rows` needs and must be computed from x as the user gave it."""
        return source

    def for_new_rows(self, encoder: Any) -> Block:  # noqa: ARG002
        """Return the block for predictions; see `mixed.for_new_rows`."""
        return self


@dataclass(frozen=True, eq=False)
class Design:
    """What turns a chunk into rows, and coefficients into predictions; ψ None: no attributes.

    With `whiten_rows` the linear part of φ is applied to every row instead of to the moments, which
    would lose digits. That of ψ always is: the penalty divides by its smallest eigenvalues.
    """

    phi: FeatureMap
    psi: FeatureMap | None = None
    n_targets: int = 1
    dtype: Any = np.float64  # of the rows of φ; sums are float64
    whiten_rows: bool = False
    beside: tuple[Block, ...] = ()  # columns between ψ and y
    preparation: Preparation | None = None
    sees_sensitive: bool = False  # whether ψ(s) is part of Φ
    partial: bool = False  # rows may lack s or y, which are NaN there
    propensity: Propensity | None = None  # where the probability to have s depends on x

    @cached_property
    def blocks(self) -> dict[str, int]:
        """Widths of the blocks of a row."""
        width = n_features(self.phi) if self.whiten_rows else int(self.phi.n_raw_)
        phi = {"phi": width}
        psi = {} if self.psi is None else {"psi": n_features(self.psi)}
        beside = {block.name: block.width for block in self.beside}
        return {**phi, **psi, **beside, "y": self.n_targets}

    @cached_property
    def features(self) -> tuple[str, ...]:
        """The blocks that make up Φ."""
        psi = ("psi",) * (self.sees_sensitive and self.psi is not None)
        return ("phi", *psi, *(block.name for block in self.beside if block.is_feature))

    @cached_property
    def units(self) -> dict[str, Units]:
        """What the columns of the blocks of sensitive attributes are."""
        psi = {} if self.psi is None else {"psi": units_of(self.psi)}
        return psi | {block.name: block.units for block in self.beside if block.units}

    def chunk_rows(self, width: int | None = None, dtype: Any = None) -> int:
        """Return the rows of a chunk of so many columns (None: x or φ, the wider): enough for BLAS, few in memory."""
        if width is None and isinstance(self.phi, LeafMap):
            return CODED_ROWS
        inputs = int(vars(self.phi).get("n_features_in_", 1))  # a map of the user's may lack it
        width = max(self.blocks["phi"], inputs) if width is None else width
        itemsize = np.dtype(self.dtype if dtype is None else dtype).itemsize
        return int(np.clip(2**24 // (width * itemsize), 256, 8192))

    @cached_property
    def key(self) -> str:
        """Fingerprints of all that turns data into rows; only moments of equal keys add up."""
        made: dict[str, Any] = {"phi": self.phi, "psi": self.psi}
        made |= {block.name: block.key for block in self.beside}
        prepared = self.preparation
        made["encoding"] = None if prepared is None else prepared.encoder
        if prepared is not None:
            made["sensitive"] = prepared.sensitive_encoder
            made["columns"] = f"{prepared.sensitive_columns} hidden={prepared.hide_sensitive}"
            made |= {"control": prepared.control_encoder} if prepared.control_encoder else {}
        made |= {} if self.propensity is None else {"known": self.propensity}
        return ";".join(
            f"{name}={'none' if part is None else part if isinstance(part, str) else digest(part)}"
            for name, part in made.items()
        )

    def numbers(self, given: ChunkSource, *, sensitive: bool = False) -> ChunkSource:
        """Return the source of numeric chunks; s that the model does not see if `sensitive`."""
        prepared = self.preparation or Preparation()
        if not (sensitive or self.sees_sensitive):
            columns = None if prepared.hide_sensitive else prepared.sensitive_columns
            prepared = replace(prepared, sensitive_encoder=None, sensitive_columns=columns)
        source = given.then(prepared.split)
        for block in self.beside:
            source = block.attach(source)
        return source.then(prepared.encode)

    def rows_of(self, name: str, chunk: Chunk) -> Rows:
        """Return the rows of ψ or of a block beside it."""
        if name == "psi":
            return self.psi_rows(chunk)
        (block,) = (block for block in self.beside if block.name == name)
        return block.rows(chunk)

    def block_rows(self, chunk: Chunk) -> dict[str, Array]:
        """Return the rows of φ, whitened, of ψ and of the blocks beside it, by name."""
        phi = {"phi": whitened(self.phi, chunk.x)}
        names = (name for name in self.blocks if name not in ("phi", "y"))
        return phi | {name: np.asarray(self.rows_of(name, chunk), np.float64) for name in names}

    def psi_rows(self, chunk: Chunk) -> Rows:
        """Return the rows of ψ: zero for rows of weight zero, NaN for rows that lack s."""
        if self.psi is None:
            return np.empty((chunk.n_rows, 0))
        if chunk.weight is None and not self.partial:
            return whitened(self.psi, chunk.s)
        if not self.partial:
            return counted_rows(partial(whitened, self.psi), chunk, chunk.s)
        known = np.flatnonzero(~lacks(chunk.s))
        rows = np.full((chunk.n_rows, n_features(self.psi)), np.nan)
        rows[known] = replace(self, partial=False).psi_rows(chunk.take(known))
        return rows

    def split_coef(self, coef: Array) -> dict[str, Array]:
        """Cut coefficients of Φ, of shape (m, t), into those of each block."""
        widths = self.blocks | {"phi": n_features(self.phi)}
        stops = np.cumsum([widths[name] for name in self.features])[:-1]
        return dict(zip(self.features, np.split(coef, stops), strict=True))

    def raw_coef(self, coef: Array) -> dict[str, Array]:
        """Coefficients of the raw rows of each map, so that predictions skip the linear part."""
        linear = {"phi": self.phi.linear_, "psi": None if self.psi is None else self.psi.linear_}
        parts = self.split_coef(coef).items()
        return {n: p if linear.get(n) is None else linear[n] @ p for n, p in parts}  # type: ignore[operator]

    def predictor(self, coef: dict[str, Array], intercept: Any) -> Callable[[], Predictor]:
        """Return what makes f of each thread; only what it needs, since dask sends it around."""
        typed = {name: part.astype(self.dtype) for name, part in coef.items()}
        encoder = None if self.preparation is None else self.preparation.sensitive_encoder
        seen = for_new_rows(self.psi, encoder) if "psi" in coef else None
        blocks = (block for block in self.beside if block.name in coef)
        beside = tuple(block.for_new_rows(encoder) for block in blocks)
        slim = Design(self.phi, seen, dtype=self.dtype, beside=beside)
        return partial(_start_predicting, slim, typed, intercept)

    def predict(self, given: ChunkSource, start: Callable[[], Predictor]) -> Array:
        """Return function(chunk) of all rows as given, stacked; a dask array for dask's rows."""
        source = self.numbers(given)
        encoded = self.preparation is not None and self.preparation.encoder is not None
        if encoded or any(block.is_feature for block in self.beside):
            return source.map(partial(in_blocks, start), max(PREDICT_ROWS, self.chunk_rows()))
        return source.map(start, PREDICT_ROWS)


Predictor = Callable[[Chunk], Array]


@dataclass(frozen=True, eq=False)
class Finished:
    """Makes finish(f) of each thread."""

    start: Callable[[], Predictor]
    finish: Callable[[Array], Array]

    def __call__(self) -> Predictor:
        """Return the function of one thread."""
        predict = self.start()
        return lambda chunk: self.finish(predict(chunk))


def in_blocks(start: Callable[[], Predictor]) -> Predictor:
    """Return the function on chunks of any size, block by block."""
    function = start()

    def run(chunk: Chunk) -> Array:
        starts = range(0, chunk.n_rows, PREDICT_ROWS) or [0]
        return np.concatenate(
            [function(cut_chunk(chunk, first, min(first + PREDICT_ROWS, chunk.n_rows))) for first in starts]
        )

    return run


def _start_predicting(design: Design, coef: dict[str, Array], intercept: Any) -> Predictor:
    """Return f on chunks of at most `PREDICT_ROWS` rows, with a buffer for those of φ."""
    along_phi = (_coded if isinstance(design.phi, LeafMap) else _dense)(design, coef["phi"])

    def predict(chunk: Chunk) -> Array:
        f = along_phi(chunk.x)
        if design.psi is not None:
            f = f + design.psi.raw(chunk.s) @ coef["psi"]
        for block in design.beside:
            f = f + block.rows(chunk) @ coef[block.name]
        return np.asarray(f + intercept, dtype=np.float64)

    return predict


def _dense(design: Design, coef: Array) -> Callable[[Any], Array]:
    buffer = np.empty((PREDICT_ROWS, design.phi.n_raw_), coef.dtype)
    raw = row_filler(design.phi, design.dtype, whiten=False)

    def along(x: Any) -> Array:
        Phi = buffer[: len(x)]
        raw(x, Phi)
        return np.asarray(Phi @ coef)

    return along


def _coded(design: Design, coef: Array) -> Callable[[Any], Array]:
    """φ(x)β where φ(x) is 1 in the columns `codes` and 0 elsewhere; code −1 is a row of zeros."""
    padded = np.concatenate([coef, np.zeros_like(coef[:1])])
    phi: Any = design.phi
    return lambda x: np.asarray(padded[phi.codes(x)].sum(axis=0))


def counted_rows(rows_of: Callable[[Any], Rows], chunk: Chunk, values: Any) -> Rows:
    """Return rows_of(values), but zero for rows of weight zero: their levels need not be known."""
    if chunk.weight is None or np.all(chunk.weight):
        return rows_of(values)
    counted = np.flatnonzero(chunk.weight)
    some = rows_of(np.asarray(values)[counted])
    rows = np.zeros((chunk.n_rows, some.shape[1]))
    rows[counted] = some
    return rows
