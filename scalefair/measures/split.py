"""The share of f = Σ_l f_l split into θ_l = Cov(f_l, g) / Var f, with standard errors.

Parts f_l and attributes are linear functions of the rows z that moments are made of.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from scalefair._linalg import inverse_root
from scalefair._typing import Array, Chunk
from scalefair.data.sources import ChunkSource
from scalefair.features.base import whitened
from scalefair.features.design import Design
from scalefair.features.mixed import Units
from scalefair.measures._pair import UndefinedError
from scalefair.moments import Moments
from scalefair.moments.accumulate import ChunkSum
from scalefair.penalties import (
    CONTROL_EPS,
    control_factor,
    share_of_variance,
    size_of_block,
    whitening,
)


class View(NamedTuple):
    """A set of attributes: its name, and its blocks as linear functions of the rows z."""

    name: str
    blocks: dict[str, Array]
    units: dict[str, Units]


@dataclass(frozen=True, eq=False)
class Split:
    """θ_l (k,) of f = Σ_l f_l, and what gives the influence of a row on them.

    `matrices` turn columns `at` of a row z into f̂_l, g_l, (h_l,) f and r: f̂ and g are as in
    `explain_share`, and h_l r is the influence of slopes that are regressions, r the last part.
    """

    values: Array
    variance: float
    freedom: float  # tr P, P = C(C + ε)⁻¹
    chance: Array  # n² times the variance of θ_l where s explains nothing
    at: NDArray[np.intp]
    mean: Array
    matrices: Array
    shape: tuple[int, int, int]  # matrices of parts and outputs, parts, outputs

    @classmethod
    def of(cls, moments: Moments, W: Array, view: View, slopes: Any = None) -> Split:
        """Split the share of f_l = zᵀW_l, W of shape (p, k, t).

        `slopes`: where those of x are regressions, C_x⁻¹, and which part each column of x is in.
        """
        (p, k, t), total, parts = W.shape, W.sum(axis=1), W.reshape(len(W), -1)
        m = moments.mapped({"phi": parts, "f": total, **view.blocks}, view.units)
        names, root = whitening(m, None)
        attributes = np.hstack([view.blocks[name] for name in names]) @ root
        R, along = (m.covariance(name, names) @ root for name in ("phi", "f"))
        variance = float(np.trace(m.covariance("f", "f")))
        explained = np.einsum("ltr,tr->l", R.reshape(k, t, -1), along)
        values = share_of_variance(explained, variance, size_of_block(m))
        if np.isnan(values).any():
            raise UndefinedError(
                "the predictions are constant, so that no share of their variance is defined, not "
                "0; explain a model whose predictions differ between rows"
            )
        if "upsilon" in view.blocks:
            whiten = inverse_root(m.covariance("upsilon", "upsilon"), CONTROL_EPS)
            parts = parts - view.blocks["upsilon"] @ whiten @ control_factor(m, "phi").T
        matrices = [parts, attributes @ R.T]
        if slopes is not None:
            inverse, member = slopes
            x, H = moments.span("phi"), np.zeros((p, k, t))
            to_g = moments.scatter[x] @ attributes @ along.T / moments.weight
            H[x] = np.einsum("de,el,et->dlt", inverse, member, to_g, optimize=True)
            H[:, -1] = -H.sum(axis=1)
            matrices.append(H.reshape(p, -1))
        every = np.hstack([*matrices, total, W[:, -1]])
        P = root.T @ m.covariance(names, names) @ root
        at = np.flatnonzero(every.any(axis=1))
        return cls(
            values, variance, float(np.trace(P)), np.sum(P**2) * _products(m, k, t), at,
            (moments.shift + moments.offset)[at], every[at], (len(matrices), k, t),
        )  # fmt: skip

    def influence(self, z: Array) -> Array:
        """Return u of rows z, shape (n, k)."""
        made, width = (z[:, self.at] - self.mean) @ self.matrices, int(np.prod(self.shape))
        f, rest = np.split(made[:, width:], 2, axis=1)
        left, g, *slopes = made[:, :width].reshape(len(z), *self.shape).swapaxes(0, 1)
        best = g.sum(axis=1)
        u = _dot(left, best) + _dot(g, left.sum(axis=1) - best)
        u += sum(_dot(h, rest) for h in slopes) - np.sum(f**2, axis=1)[:, None] * self.values
        return np.asarray(u / self.variance)


def _dot(parts: Array, outputs: Array) -> Array:
    return np.asarray(np.einsum("nlt,nt->nl", parts, outputs))


def _products(m: Moments, k: int, t: int) -> Array:
    """[tr(S_ll S) + tr(S_lf S_lf)] / (tr S)²: the variance of products of noise, shape (k,)."""
    S, cross = m.covariance("f", "f"), m.covariance("phi", "f").reshape(k, t, t)
    own = np.einsum("ltlu->ltu", m.covariance("phi", "phi").reshape(k, t, k, t))
    both = np.einsum("ltu,tu->l", own, S) + np.einsum("ltu,lut->l", cross, cross)
    return np.asarray(both / np.trace(S) ** 2)


@dataclass(frozen=True, eq=False)
class Influences:
    """Σw[u, u²] of the rows of a chunk, for several splits side by side, shape (2, parts)."""

    design: Design
    splits: tuple[Split, ...]

    def __call__(self, chunk: Chunk) -> Array:
        """Return the sums of a chunk."""
        design = self.design
        weight = np.ones(chunk.n_rows) if chunk.weight is None else chunk.weight
        blocks = [whitened(design.phi, chunk.x), design.psi_rows(chunk)]
        blocks += [block.rows(chunk) for block in design.beside]
        z = np.hstack([*blocks, chunk.y] if design.n_targets else blocks)
        u = np.hstack([split.influence(z) for split in self.splits])
        return np.stack([weight @ u, weight @ u**2])


def standard_errors(
    source: ChunkSource, design: Design, moments: Moments, splits: Sequence[Split]
) -> list[Array]:
    """Return √(Var u/n + variance by chance) of each split by one pass; n is Kish's count."""
    start = partial(ChunkSum, Influences(design, tuple(splits)), 0.0)
    mean, square = source.fold(start, design.chunk_rows) / moments.weight
    n, chance = moments.effective_rows, np.concatenate([split.chance for split in splits])
    errors = np.sqrt(np.maximum(square - mean**2, 0.0) / n + chance / n**2)
    return np.split(errors, np.cumsum([len(split.values) for split in splits])[:-1])
