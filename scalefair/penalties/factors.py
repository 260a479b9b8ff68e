"""Penalties: each is a factor R of the moments, and η|Rᵀβ|² is what it adds to the objective.

Where the moments hold a control υ(c), each is conditional on it: ψ gives way to ξ(s, c) = ψ ⊗ υ,
and every covariance to what the control leaves, C_ab·υ = C_ab − C_aυ (C_υ + ε₀I)⁻¹ C_υb. A partial
covariance with ψ itself would pool the levels of c, and opposite signs would cancel.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from scalefair._linalg import inverse_root, positive_eigh
from scalefair._typing import Array
from scalefair.features.mixed import all_columns
from scalefair.moments import Moments

Features = tuple[str, ...]
Names = str | Features

CONTROL_EPS = 1e-12
"""ε₀, far below the frequency of any level of a control that matters."""

DEFAULT_EPS = 1e-6
"""ε of `eps=None`: of numbers, in units of κ; groups have none."""

ROUNDING = 1e-13
"""Variance of a column, relative to its mean square, that is rounding error."""

CUTOFF = {"psi": 1e-14, "xi": 1e-10}
"""Directions of C below this share of the largest are rounding error.

Under control ε₀ leaves a trace of what the control explains.
"""


def attribute(moments: Moments) -> str | None:
    """Name of the block that f must not depend on: ψ, under control ξ; None without any."""
    return "xi" if "xi" in moments.blocks else "psi" if "psi" in moments.blocks else None


def control_factor(moments: Moments, names: Names) -> Array:
    """C_aυ (C_υ + ε₀I)^(−1/2), whose products are what the control explains; no columns without.

    For the predictions, |Qᵀβ|² is the variance of f that the best function of c explains.
    """
    if "upsilon" not in moments.blocks:
        width = [moments.blocks[name] for name in ((names,) if isinstance(names, str) else names)]
        return np.zeros((sum(width), 0))
    whiten = inverse_root(moments.covariance("upsilon", "upsilon"), CONTROL_EPS)
    return moments.covariance(names, "upsilon") @ whiten


def partial_covariance(moments: Moments, rows: Names, columns: Names) -> Array:
    """C_ab·υ, or C_ab where nothing is controlled for."""
    covariance = moments.covariance(rows, columns)
    if "upsilon" not in moments.blocks:
        return covariance
    left = control_factor(moments, rows)
    right = left if rows == columns else control_factor(moments, columns)
    return np.asarray(covariance - left @ right.T)


@dataclass(frozen=True, eq=False)
class FunctionSpace:
    """The functions of s in the span of ψ, in coordinates in which a ridge has no units.

    With U = basis (q, r), Λ = values > 0 and ρ = ridged, (C + εκ)⁻¹ = U (Λ + ερ)⁻¹ Uᵀ on the range
    of C; ρ is 0 along functions of groups, which need no ridge, 1 along all others.
    """

    name: str
    basis: Array
    values: Array
    ridged: Array

    @classmethod
    def of(cls, moments: Moments, *, literal: bool = False) -> FunctionSpace:
        """Return the space of the attributes; `literal`: ε as the paper has it, on groups too."""
        name = attribute(moments) or "psi"
        scale, ridged = _scales(moments, name, literal=literal)
        root = np.where(scale > 0, 1 / np.sqrt(np.where(scale > 0, scale, 1.0)), 0.0)
        C = root[:, None] * partial_covariance(moments, name, name) * root
        if ridged.all() or not ridged.any():
            basis, values = _range(C, CUTOFF[name])
            flags = np.full(len(values), float(ridged.any()))
            return cls(name, root[:, None] * basis, values, flags)
        # Groups beside numbers: these are what the groups, which have no ridge, leave of them.
        groups, numbers = np.flatnonzero(~ridged), np.flatnonzero(ridged)
        first, own = _range(C[np.ix_(groups, groups)], CUTOFF[name])
        onto = first @ ((first.T @ C[np.ix_(groups, numbers)]) / own[:, None])
        rest = C[np.ix_(numbers, numbers)] - C[np.ix_(numbers, groups)] @ onto
        second, left = _range((rest + rest.T) / 2, CUTOFF["xi"])
        basis = np.zeros((len(C), len(own) + len(left)))
        basis[groups, : len(own)], basis[numbers, len(own) :] = first, second
        basis[groups, len(own) :] = -onto @ second
        values = np.concatenate([own, left])
        return cls(
            name, root[:, None] * basis, values, np.repeat([0.0, 1.0], [len(own), len(left)])
        )

    def ridge(self, eps: float) -> Array:
        """Λ + ερ."""
        return self.values + eps * self.ridged

    def root(self, eps: float) -> Array:
        """T (q×r) with T Tᵀ = (C + εκ)⁻¹ on the range of C."""
        return np.asarray(self.basis / np.sqrt(self.values + eps * self.ridged))

    def freedom(self, eps: float) -> float:
        """tr[C(C + εκ)⁻¹], the degrees of freedom of g."""
        return float(np.sum(self.values / self.ridge(eps)))


def _range(C: Array, cutoff: float) -> tuple[Array, Array]:
    values, vectors = positive_eigh(C)
    keep = values > cutoff * values.max(initial=0.0)
    return vectors[:, keep], values[keep]


def _scales(moments: Moments, name: str, *, literal: bool) -> tuple[Array, NDArray[np.bool_]]:
    """κ of every column, and whether it gets a ridge at all; see `features.mixed.units_of`.

    κ is 0 for columns that are constant but for rounding: they explain nothing.
    """
    variance = np.diagonal(moments.covariance(name, name))
    square = variance + moments.mean(name) ** 2
    scale, ridged = np.ones(len(variance)), np.ones(len(variance), dtype=bool)
    for kind, columns in moments.units.get(name, all_columns("kernel", len(variance))):
        if kind == "columns":
            scale[columns] = variance[columns]
        elif kind == "map":
            scale[columns] = variance[columns].sum()
        elif kind == "cell" and not literal:
            scale[columns] = square[columns].sum()
        elif kind == "groups" and not literal:
            scale[columns], ridged[columns] = square[columns], False
    return np.where(variance > ROUNDING * square, scale, 0.0), ridged


def attribute_root(moments: Moments, eps: float | None) -> tuple[str, Array]:
    """Name of the attributes' block, and T with T Tᵀ = (C + εκ)⁻¹; None: that of the share."""
    space = FunctionSpace.of(moments, literal=eps is not None)
    return space.name, space.root(DEFAULT_EPS if eps is None else eps)


def hsic(moments: Moments, eps: float | None, features: Features = ("phi",)) -> Array:
    """R = C_φψ: |Rᵀβ|² is HSIC of f(x) and s with a linear kernel on f. `eps` plays no part."""
    del eps
    return partial_covariance(moments, features, attribute(moments) or "psi")


def normalized(moments: Moments, eps: float | None, features: Features = ("phi",)) -> Array:
    """R = C_φψ (C_ψ + εκ)^(−1/2): |Rᵀβ|² is Cov(f, g), g the best function of s.

    Under control it is the variance that the best g(s, c) explains beyond the best g(c): with
    one-hots E(E[f|s, c] − E[f|c])².
    """
    name, root = attribute_root(moments, eps)
    return np.asarray(partial_covariance(moments, features, name) @ root)


def whitening(moments: Moments, eps: float | None) -> tuple[Features, Array]:
    """Blocks a and a matrix W with (a − E a) W the attributes of unit covariance, but for ε.

    Their covariance with Φ is the factor of `normalized`; so is that with any function of f.
    """
    name, root = attribute_root(moments, eps)
    if name == "psi":
        return ("psi",), root
    whiten = inverse_root(moments.covariance("upsilon", "upsilon"), CONTROL_EPS)
    onto = whiten @ (whiten.T @ moments.covariance("upsilon", "xi"))
    return ("upsilon", "xi"), np.vstack([-onto @ root, root])


def nocco(moments: Moments, eps: float | None, features: Features = ("phi",)) -> Array:
    """R = (C_φ + εI)^(−1/2) C_φψ (C_ψ + εκ)^(−1/2): normalised on both sides.

    The root must be the symmetric one: R multiplies β from the left.
    """
    values, vectors = positive_eigh(moments.covariance(features, features))
    keep = values > 1e-14 * values.max(initial=0.0)
    ridge = DEFAULT_EPS * values.sum() if eps is None else eps
    root = (vectors[:, keep] / np.sqrt(values[keep] + ridge)) @ vectors[:, keep].T
    return np.asarray(root @ normalized(moments, eps, features))


PENALTIES: dict[str, Callable[[Moments, float | None, Features], Array]] = {
    "hsic": hsic,
    "normalized": normalized,
    "nocco": nocco,
    # Of the output: its factor is the normalised one, divided by the variance of f when solved.
    "nocco_output": normalized,
}
