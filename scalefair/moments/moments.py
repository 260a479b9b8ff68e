"""Moments of the rows [φ(x), ψ(s), y]: small, mergeable, and all that the closed forms need."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from itertools import accumulate as running_sums
from itertools import combinations_with_replacement
from typing import Any, ClassVar, Literal, Self

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csc_array, hstack

from scalefair import _files
from scalefair._linalg import add_outer
from scalefair._typing import Array
from scalefair.data import Sums
from scalefair.errors import InputError
from scalefair.features.mixed import Units, check_units

ARRAYS = ("shift", "offset", "scatter")


@dataclass(frozen=True, eq=False)
class Moments:
    """Weight, mean and centred scatter of rows z = [φ, ψ, y], with `+` and an empty element.

    Parameters
    ----------
    blocks : mapping from str to int
        Names and widths of the blocks of z, in order, such as {"phi": 500, "psi": 2, "y": 1}.
    n_rows : int
        Number of rows of positive weight.
    weight : float
        Sum of the weights: the n of every formula.
    shift, offset : arrays of shape (p,)
        The mean is shift + offset. Two numbers keep the digits of a mean that is large against the
        deviation: `shift` is near the data, `offset` is the small rest.
    scatter : array of shape (p, p)
        Σ w (z − mean)(z − mean)ᵀ.
    key : str
        Fingerprints of the maps and encodings behind the rows, as "name=fingerprint;…". Only equal keys merge.
    squared_weight : float
        Sum of the squared weights; 0 where it is not known.
    units : mapping from str to Units
        What the columns of a block of sensitive attributes are; see `features.mixed.units_of`.

    Notes
    -----
    `a + b` is Chan's pairwise update: with δ = mean_b − mean_a,
    scatter = scatter_a + scatter_b + (w_a w_b / w) δδᵀ. It is exact, commutative up to rounding,
    and `Moments.empty(blocks)` is its neutral element. `sum(parts)` adds up many.
    """

    blocks: Mapping[str, int]
    n_rows: int
    weight: float
    shift: Array = field(repr=False)
    offset: Array = field(repr=False)
    scatter: Array = field(repr=False)
    key: str = field(default="", repr=False)
    squared_weight: float = 0.0
    units: Mapping[str, Units] = field(default_factory=dict, repr=False)
    calibration: ClassVar[Any] = None  # of rows that lack s

    @classmethod
    def empty(cls, blocks: Mapping[str, int], key: str = "") -> Self:
        """Return the moments of no rows."""
        zeros, scatter = np.zeros(sum(blocks.values())), np.zeros(cls._scatter_shape(blocks))
        return cls(dict(blocks), 0, 0.0, zeros, zeros, scatter, key)

    @staticmethod
    def _scatter_shape(blocks: Mapping[str, int]) -> tuple[int, int]:
        return (sum(blocks.values()),) * 2

    @classmethod
    def of_rows(cls, rows: Mapping[str, Array], weight: Array, units: Mapping[str, Units] | None = None) -> Moments:
        """Return the moments of rows in memory: arrays of shape (n, width) by block."""
        Z, n = np.hstack(list(rows.values())), float(weight.sum())  # a copy, which what follows changes in place
        shift = Z[0].copy()
        Z -= shift
        offset = weight @ Z / n
        Z -= offset
        Z *= np.sqrt(weight)[:, None]
        return cls(
            {name: part.shape[1] for name, part in rows.items()}, int(np.count_nonzero(weight)), n,
            shift, offset, Z.T @ Z, "", float(weight @ weight), units or {},
        )  # fmt: skip

    def __add__(self, other: Moments) -> Self:
        if type(other) is not type(self):
            return NotImplemented
        self.check_same_rows(other)
        if self.weight == 0 or other.weight == 0:
            return self if other.weight == 0 else other
        weight = self.weight + other.weight
        delta = (other.shift - self.shift) + (other.offset - self.offset)
        scatter = self.scatter + other.scatter
        between = delta * (self.weight * other.weight / weight)
        add_outer(scatter, delta, between[len(delta) - scatter.shape[1] :])
        known = self.squared_weight > 0 and other.squared_weight > 0
        return replace(
            self,
            n_rows=self.n_rows + other.n_rows,
            weight=weight,
            squared_weight=self.squared_weight + other.squared_weight if known else 0.0,
            offset=self.offset + delta * (other.weight / weight),
            scatter=scatter,
        )

    def __radd__(self, zero: Literal[0]) -> Self:
        """Begin `sum(parts)`, which starts at 0."""
        return self if zero == 0 else NotImplemented

    def check_same_rows(self, other: Moments) -> None:
        """Raise InputError if moments were made with other maps, which cannot be added."""
        if type(other) is not type(self):
            raise InputError(
                f"cannot add {type(self).__name__} and {type(other).__name__}",
                "collect all with missing_labels='partial', or none",
            )
        if dict(self.blocks) != dict(other.blocks):
            raise InputError(
                f"cannot add moments with blocks {dict(self.blocks)} and {dict(other.blocks)}",
                "accumulate both with the same feature maps",
            )
        unsigned = any(part.weight == 0 and not part.key for part in (self, other))
        if self.key != other.key and not unsigned:
            differ = differences(self.key, other.key)
            raise InputError(
                f"cannot add moments made with different settings: {', '.join(differ)} differ "
                f"(keys {self.key!r} and {other.key!r})",
                "accumulate both with the same maps",
            )

    def span(self, *names: str) -> NDArray[np.intp]:
        """Return the columns of z that the named blocks are."""
        starts = dict(zip(self.blocks, running_sums([0, *self.blocks.values()]), strict=False))
        spans = [np.arange(starts[name], starts[name] + self.blocks[name]) for name in names]
        return spans[0] if len(spans) == 1 else np.concatenate(spans)

    @property
    def is_expected(self) -> bool:
        """Whether ψ has expectations of the indicators of groups, given what is known of a row."""
        return any(kind == "expected" for kind, _ in self.units.get("psi", ()))

    @property
    def judged(self) -> Moments:
        """Moments of the rows that the share is measured on: those that have s."""
        return self

    @property
    def judges(self) -> tuple[Moments, ...]:
        """Moments that held-out shares are taken from, of which the largest counts."""
        return (self,)

    @property
    def scored(self) -> Moments:
        """Moments of the rows that the error is measured on: those that have y."""
        return self

    def calibrated(self, calibration: Any) -> Moments:
        """Return the same: only rows that lack s are calibrated."""
        del calibration
        return self

    @property
    def effective_rows(self) -> float:
        """Kish's (Σw)²/Σw²: the number of rows of equal weight with as much information."""
        if self.squared_weight > 0:
            return self.weight**2 / self.squared_weight
        return float(self.n_rows)

    def mean(self, *names: str) -> Array:
        """Return the mean of the named blocks, side by side."""
        at = self.span(*names)
        return np.asarray(self.shift[at] + self.offset[at])

    def covariance(self, rows: str | tuple[str, ...], columns: str | tuple[str, ...]) -> Array:
        """Return the centred covariance of two (groups of) blocks, divided by n."""
        if rows == columns == "psi" and self.is_expected:  # of the groups, not of the rows
            pi = self.mean("psi")
            return np.diag(pi) - np.outer(pi, pi)
        spans = [self.span(*((name,) if isinstance(name, str) else name)) for name in (rows, columns)]
        at: Any = np.ix_(*spans)
        if all(0 < len(one) == one[-1] - one[0] + 1 for one in spans):  # neighbours: a view, not a copy
            at = tuple(slice(one[0], one[-1] + 1) for one in spans)
        return np.asarray(self.scatter[at] / self.weight)

    @staticmethod
    def accumulate(source: Any, phi: Any, psi: Any = None) -> Moments:
        """Return the moments of [φ(x), ψ(s), y] of the numeric chunks of a source, in one pass.

        Parameters
        ----------
        source : ChunkSource
            Such as a `scalefair.BatchSource`.
        phi, psi : fitted feature maps
            Of `scalefair.maps`; without ψ there is no block "psi".
        """
        from scalefair.features.design import Design
        from scalefair.moments.accumulate import accumulate

        n_targets = next(source.chunks(1)).y.shape[1]
        (moments,) = accumulate(source, Design(phi, psi, n_targets))
        return moments

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the moments to one file (safetensors), all or nothing."""
        _files.write(path, "moments", *self.state())

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Moments:
        """Read moments from a file that `save` wrote; no code runs.

        Raises
        ------
        ValueError
            If the file is damaged, of a later version, or holds something else.
        OSError
            If it cannot be read.
        """
        from scalefair.moments.partial import PartialMoments

        arrays, values = _files.read(path, "moments")
        try:
            return (PartialMoments if "known" in values else cls).of_state(arrays, values)
        except (KeyError, TypeError, ValueError, ArithmeticError) as error:
            raise ValueError(f"{path} holds no valid moments ({error})") from error

    def state(self) -> tuple[dict[str, Array], dict[str, Any]]:
        """Return the moments as named arrays and JSON-able values."""
        arrays = {name: vars(self)[name] for name in ARRAYS}
        values = {
            "blocks": list(self.blocks.items()),
            "n_rows": self.n_rows,
            "weight": self.weight,
            "key": self.key,
            "squared_weight": self.squared_weight,
            "units": [[name, [[kind, at.tolist()] for kind, at in units]] for name, units in self.units.items()],
        }
        return arrays, values

    @classmethod
    def of_state(cls, arrays: Mapping[str, Array], values: Mapping[str, Any]) -> Moments:
        """Return the moments that `state` describes, their shapes checked."""
        blocks = {str(name): int(width) for name, width in values["blocks"]}
        rows, weight, key = int(values["n_rows"]), float(values["weight"]), str(values["key"])
        # Files of earlier versions hold neither: then rows are counted, and units are unknown.
        squares = float(values.get("squared_weight", 0.0))
        units = {
            str(name): tuple((str(kind), np.asarray(at, dtype=np.int64)) for kind, at in of)
            for name, of in values.get("units", [])
        }
        moments = cls(blocks, rows, weight, key=key, squared_weight=squares, units=units, **arrays)
        moments.check_shapes()
        return moments

    def check_shapes(self) -> None:
        """Raise ValueError if arrays do not fit the blocks, or the weight is not valid."""
        width = sum(self.blocks.values())
        arrays = (self.shift, self.offset, self.scatter)
        shapes = [part.shape for part in arrays]
        numbers = all(part.dtype == np.float64 for part in arrays) and 0 <= self.weight < np.inf
        fit = shapes == [(width,), (width,), self._scatter_shape(self.blocks)]
        numbers = numbers and 0 <= self.squared_weight < np.inf
        if not (fit and numbers) or min(self.blocks.values(), default=0) < 0 or self.n_rows < 0:
            raise ValueError(f"blocks {dict(self.blocks)} do not fit arrays of shapes {shapes}")
        for name, units in self.units.items():
            check_units(units, self.blocks[name])

    def transform(self, **linear: Array | None) -> Moments:
        """Return the moments of rows whose named blocks are multiplied by a matrix on the right."""
        names = list(self.blocks)
        if all(linear.get(name) is None for name in names):
            return self
        if not self.weight:
            widths = {n: w if (m := linear.get(n)) is None else m.shape[1] for n, w in self.blocks.items()}
            return replace(Moments.empty(widths, self.key), units=self.units)
        shift, offset = (
            np.concatenate([_times(vector[self.span(n)], linear.get(n)) for n in names])
            for vector in (self.shift, self.offset)
        )
        # Only the blocks on and above the diagonal are computed: the rest is their mirror image.
        cells = [[np.empty(0)] * len(names) for _ in names]
        for (i, a), (j, b) in combinations_with_replacement(enumerate(names), 2):
            cell = self.scatter[np.ix_(self.span(a), self.span(b))]
            cells[i][j] = _times(_times(cell.T, linear.get(a)).T, linear.get(b))
            cells[j][i] = (cells[i][j] + cells[i][j].T) / 2 if i == j else cells[i][j].T
        blocks = {name: cells[i][i].shape[0] for i, name in enumerate(names)}
        scatter = np.block(cells)
        return replace(self, blocks=blocks, shift=shift, offset=offset, scatter=scatter)

    def mapped(self, blocks: Mapping[str, Any], units: Mapping[str, Units] | None = None) -> Moments:
        """Return the moments of rows zM: every block of M, of shape (p, width), may be sparse."""
        M = hstack([csc_array(block) for block in blocks.values()], format="csc")
        at = np.unique(M.indices)  # of many columns few may matter
        M = M[at]
        return replace(
            self,
            blocks={name: block.shape[1] for name, block in blocks.items()},
            shift=self.shift[at] @ M,
            offset=self.offset[at] @ M,
            scatter=M.T @ (self.scatter[np.ix_(at, at)] @ M),
            key="",
            units=units or {},
        )


@dataclass(frozen=True, eq=False)
class CrossMoments(Moments):
    """Moments of rows z = [φ, t] without φ with itself: scatter (p, p − m) is Σ w z̃ t̃ᵀ."""

    @staticmethod
    def _scatter_shape(blocks: Mapping[str, int]) -> tuple[int, int]:
        width = sum(blocks.values())
        return width, width - blocks["phi"]

    def covariance(self, rows: str | tuple[str, ...], columns: str | tuple[str, ...]) -> Array:
        """Return the centred covariance of two (groups of) blocks, divided by n."""
        left, right = ((part,) if isinstance(part, str) else part for part in (rows, columns))
        if "phi" not in right:
            at = np.ix_(self.span(*left), self.span(*right) - self.blocks["phi"])
            return np.asarray(self.scatter[at] / self.weight)
        if "phi" not in left:
            return self.covariance(columns, rows).T
        raise ValueError(
            f"the {self.blocks['phi']}×{self.blocks['phi']} covariance of phi with itself was left "
            "out of these moments, which are those of the iterative solver; use solver='direct', "
            "or fewer features, for what needs it"
        )

    def transform(self, **linear: Array | None) -> CrossMoments:
        """Return the moments of rows whose block φ is multiplied by a matrix from the right."""
        matrix = linear.pop("phi", None)
        if linear:
            raise ValueError(f"only phi can be transformed here, not {', '.join(sorted(linear))}")
        if matrix is None:
            return self
        width = self.blocks["phi"]
        shift, offset, scatter = (
            np.concatenate([matrix.T @ part[:width], part[width:]]) for part in (self.shift, self.offset, self.scatter)
        )
        blocks = {**self.blocks, "phi": matrix.shape[1]}
        return replace(self, blocks=blocks, shift=shift, offset=offset, scatter=scatter)


def differences(key: str, other: str) -> list[str]:
    """Return the names of what two keys differ in."""
    return sorted({part.split("=")[0] for part in {*key.split(";")} ^ {*other.split(";")}})


def _times(left: Array, matrix: Array | None) -> Array:
    return left if matrix is None else left @ matrix


class FoldMoments(Sums[Moments]):
    """Moments of each fold; `+` adds fold by fold."""
