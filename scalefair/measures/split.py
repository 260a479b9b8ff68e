"""The share of f = Σ_l f_l split into θ_l = Cov(f_l, g) / Var f, with standard errors.

Parts f_l and attributes are linear functions of the rows z that moments are made of.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from scipy.sparse import csr_array, hstack

from scalefair._linalg import inverse_root
from scalefair._typing import Array, Chunk
from scalefair.data import ChunkSum
from scalefair.data.sources import ChunkSource
from scalefair.features.design import Design
from scalefair.features.mixed import Units
from scalefair.measures._pair import UndefinedError
from scalefair.moments import Moments
from scalefair.penalties import CONTROL_EPS, control_factor, share_of_variance, size_of_block, whitening


class View(NamedTuple):
    """A set of attributes: its name, and its blocks as (sparse) linear functions of the rows z."""

    name: str
    blocks: dict[str, Any]
    units: dict[str, Units]


@dataclass(frozen=True, eq=False)
class Split:
    """θ_l (k,) of f = Σ_l f_l, and what gives the influence of a row on them.

    g_l = G_l(attributes of z); a control leaves f̂_l = f_l − Q_l(control of z). What is many columns
    wide is sparse: for each part a few.
    """

    values: Array
    variance: float
    freedom: float  # tr P, P = C(C + ε)⁻¹
    chance: Array  # n² times the variance of θ_l where s explains nothing
    parts: Any
    attributes: Any
    functions: tuple[Array, Array]  # G of the parts (kt, q), and of f (t, q)
    control: tuple[Any, Array] | None
    slopes: Any

    @classmethod
    def of(cls, moments: Moments, W: Any, outputs: int, view: View, member: Array | None = None) -> Split:
        """Split the share of f_l = zᵀW_l, W of shape (p, k·t).

        `member` (d, k): which part each column of x is in, where their slopes are regressions.
        """
        k, t = W.shape[1] // outputs, outputs
        m = moments.mapped({"phi": W, "f": W @ np.tile(np.eye(t), (k, 1)), **view.blocks}, view.units)
        names, root = whitening(m, None)
        R, along = (m.covariance(name, names) @ root for name in ("phi", "f"))
        variance = float(np.trace(m.covariance("f", "f")))
        explained = np.einsum("ltr,tr->l", R.reshape(k, t, -1), along)
        values = share_of_variance(explained, variance, size_of_block(m))
        if np.isnan(values).any():
            raise UndefinedError(
                "the predictions are constant, so no share of their variance is defined, not "
                "0; explain a model whose predictions differ between rows"
            )
        attributes, control, slopes = hstack([view.blocks[name] for name in names]), None, None
        if "upsilon" in view.blocks:
            whiten = inverse_root(m.covariance("upsilon", "upsilon"), CONTROL_EPS)
            control = view.blocks["upsilon"].T.tocsr(), control_factor(m, "phi") @ whiten.T
        if member is not None:
            to_g = moments.scatter[moments.span("phi")] @ (attributes @ (root @ along.T))
            H = np.einsum("jl,jt->jlt", member, to_g / moments.weight)
            H[:, -1] = -H.sum(axis=1)
            slopes = csr_array(H.reshape(len(H), -1).T)
        P = root.T @ m.covariance(names, names) @ root
        # [tr(S_ll S) + tr(S_lf S_lf)] / (tr S)²: the variance of products of noise, shape (k,), ≥ 0 but for rounding
        S, cross = m.covariance("f", "f"), m.covariance("phi", "f").reshape(k, t, t)
        own = np.einsum("ltlu->ltu", m.covariance("phi", "phi").reshape(k, t, k, t))
        both = np.einsum("ltu,tu->l", own, S) + np.einsum("ltu,lut->l", cross, cross)
        return cls(
            values, variance, float(np.trace(P)), np.sum(P**2) * np.maximum(both, 0.0) / np.trace(S) ** 2,
            csr_array(W.T), attributes.T.tocsr(), (R @ root.T, along @ root.T), control, slopes,
        )  # fmt: skip

    def influence(self, z: Array, q: Array | None) -> Array:
        """Return u (k, n) of centred rows, as columns of z; q = C_x⁻¹x.

        u_l = [f̂_l g + g_l (f̂ − g) + h_l r − θ_l f²] / Var f, h_l r being the influence of slopes
        that are regressions, r the last part.
        """
        shape, own = (len(self.values), -1, z.shape[1]), self.parts @ z
        left = own if self.control is None else own - self.control[1] @ (self.control[0] @ z)
        each, g = (function @ (self.attributes @ z) for function in self.functions)
        own, left = own.reshape(shape), left.reshape(shape)
        u = _dot(left, g) + _dot(each.reshape(shape), left.sum(axis=0) - g)
        if self.slopes is not None:
            u += _dot((self.slopes @ q).reshape(shape), own[-1])
        u -= self.values[:, None] * np.sum(own.sum(axis=0) ** 2, axis=0)
        return np.asarray(u / self.variance)


def _dot(parts: Array, outputs: Array) -> Array:
    return np.asarray(np.einsum("ltn,tn->ln", parts, outputs))


@dataclass(frozen=True, eq=False)
class Influences:
    """Σw[u, u²] of the rows of a chunk, for several splits side by side, shape (2, parts)."""

    design: Design
    mean: Array
    splits: tuple[Split, ...]
    inverse: Array | None  # C_x⁻¹

    def __call__(self, chunk: Chunk) -> Array:
        """Return the sums of a chunk."""
        weight, blocks = chunk.weights, [*self.design.block_rows(chunk).values()]
        rows = np.hstack([*blocks, chunk.y] if self.design.n_targets else blocks)
        z = np.ascontiguousarray((rows - self.mean).T)
        q = None if self.inverse is None else self.inverse @ z[: len(self.inverse)]
        sums = [(u @ weight, u**2 @ weight) for u in (s.influence(z, q) for s in self.splits)]
        return np.concatenate(sums, axis=1)


def standard_errors(
    source: ChunkSource, design: Design, moments: Moments, splits: Sequence[Split], inverse: Array | None = None
) -> list[Array]:
    """Return √(Var u/n + variance by chance) of each split by one pass; n is Kish's count."""
    function = Influences(design, moments.shift + moments.offset, tuple(splits), inverse)
    few = design.chunk_rows(4 * len(function.mean))  # all columns are in memory several times
    mean, square = source.fold(partial(ChunkSum, function, float), few) / moments.weight
    n, chance = moments.effective_rows, np.concatenate([split.chance for split in splits])
    errors = np.sqrt(np.maximum(square - mean**2, 0.0) / n + chance / n**2)
    return np.split(errors, np.cumsum([len(split.values) for split in splits])[:-1])
