"""Penalties: each is a factor R of the moments, and η|Rᵀβ|² is what it adds to the objective.

Where the moments hold a control υ(c), each is conditional on it: ψ gives way to ξ(s, c) = ψ ⊗ υ,
and every covariance to what the control leaves, C_ab·υ = C_ab − C_aυ (C_υ + ε₀I)⁻¹ C_υb. A partial
covariance with ψ itself would pool the levels of c, and opposite signs would cancel.

And the explained share: one definition for every estimator, measure and report.

    θ(f) = Cov(f, g) / Var f,    g the best function of s in the span of ψ

For groups that is the between-group share of the variance. For numbers g is a ridge fit, with εκ
on its coefficients (κ: `features.mixed.units_of`), and Cov(f, g) is meant, never Var g. The ε of a
penalty plays no part: measured with it, a large ε would hide what it leaves.

- In sample there is no correction for chance, and ε is 1e-6 for numbers, none for groups.
- Held out, `held_out` corrects it for chance.
- A constant f has no share: it is NaN, not 0.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from scalefair._linalg import inverse_root, positive_eigh
from scalefair._typing import Array
from scalefair.errors import InputError
from scalefair.moments import Moments

Features = tuple[str, ...]
Names = str | Features
CONTROL_EPS = 1e-12  # ε₀, far below the frequency of any level of a control that matters
DEFAULT_EPS = 1e-6  # ε of `eps=None`: of numbers, in units of κ; groups have none
ROUNDING = 1e-13  # variance of a column, relative to its mean square, that is rounding error
# Directions of C below this share of the largest are rounding error. Under control ε₀ leaves a
# trace of what the control explains
CUTOFF = {"psi": 1e-14, "xi": 1e-10}
HELD_OUT_EPS = (1e-6, 1e-4, 1e-2)  # ridges of g on held-out rows; the largest share counts
# Share that chance may explain before a larger ε is used instead, if there is one
MOST_CHANCE = 0.5
# Variance of f, relative to that of what it was computed from, that is rounding error
CONSTANT = 1e-20


def attribute(moments: Moments) -> str | None:
    """Name of the block that f must not depend on: ψ, under control ξ; None without any."""
    return "xi" if "xi" in moments.blocks else "psi" if "psi" in moments.blocks else None


def control_factor(moments: Moments, names: Names) -> Array:
    """C_aυ (C_υ + ε₀I)^(−1/2), whose products are what the control explains; no columns without."""
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
    """The functions of s in the span of ψ: (C + εκ)⁻¹ = U (Λ + ερ)⁻¹ Uᵀ on the range of C."""

    name: str
    basis: Array  # U (q, r)
    values: Array  # Λ > 0
    ridged: Array  # ρ: 0 along functions of groups, which need no ridge, else 1
    noise: Array  # variance of rows of ψ: Λ, unless they are probabilities of groups

    @classmethod
    def of(cls, moments: Moments, *, literal: bool = False) -> FunctionSpace:
        """Return the space of the attributes; `literal`: ε as the paper has it, on groups too."""
        name = attribute(moments) or "psi"
        scale, ridged = _scales(moments, name, literal=literal)
        root = np.where(scale > 0, 1 / np.sqrt(np.where(scale > 0, scale, 1.0)), 0.0)
        C = root[:, None] * partial_covariance(moments, name, name) * root
        if ridged.all() or not ridged.any():
            basis, values = _range(C, CUTOFF[name])
            flags, basis = np.full(len(values), float(ridged.any())), root[:, None] * basis
            if not moments.is_expected:
                return cls(name, basis, values, flags, values)
            at = moments.span(name)
            noise = np.sum(basis * (moments.scatter[np.ix_(at, at)] @ basis), axis=0)
            return cls(name, basis, values, flags, noise / moments.weight)
        # Groups beside numbers: these are what the groups, which have no ridge, leave of them.
        groups, numbers = np.flatnonzero(~ridged), np.flatnonzero(ridged)
        first, own = _range(C[np.ix_(groups, groups)], CUTOFF[name])
        onto = first @ ((first.T @ C[np.ix_(groups, numbers)]) / own[:, None])
        rest = C[np.ix_(numbers, numbers)] - C[np.ix_(numbers, groups)] @ onto
        second, left = _range((rest + rest.T) / 2, CUTOFF["xi"])
        basis = np.zeros((len(C), len(own) + len(left)))
        basis[groups, : len(own)], basis[numbers, len(own) :] = first, second
        basis[groups, len(own) :] = -onto @ second
        values, flags = np.concatenate([own, left]), np.repeat([0.0, 1.0], [len(own), len(left)])
        return cls(name, root[:, None] * basis, values, flags, values)

    def ridge(self, eps: float) -> Array:
        """Λ + ερ."""
        return self.values + eps * self.ridged

    def freedom(self, eps: float) -> float:
        """tr[C(C + εκ)⁻¹], the degrees of freedom of g."""
        return float(np.sum(self.noise / self.ridge(eps)))


def _range(C: Array, cutoff: float) -> tuple[Array, Array]:
    values, vectors = positive_eigh(C)
    keep = values > cutoff * values.max(initial=0.0)
    return vectors[:, keep], values[keep]


def _scales(moments: Moments, name: str, *, literal: bool) -> tuple[Array, NDArray[np.bool_]]:
    """κ of every column (0: constant), and which get a ridge: see `features.mixed.units_of`."""
    variance = np.diagonal(moments.covariance(name, name))
    square = variance + moments.mean(name) ** 2
    scale, ridged = np.ones(len(variance)), np.ones(len(variance), dtype=bool)
    for kind, columns in moments.units.get(name, ()):  # not known: features of a kernel
        if kind == "columns":
            scale[columns] = variance[columns]
        elif kind == "map":
            scale[columns] = variance[columns].sum()
        elif kind == "cell" and not literal:
            scale[columns] = square[columns].sum()
        elif kind in ("groups", "expected") and not literal:
            scale[columns], ridged[columns] = square[columns], False
    return np.where(variance > ROUNDING * square, scale, 0.0), ridged


def attribute_root(moments: Moments, eps: float | None) -> tuple[str, Array]:
    """Name of the attributes' block, and T (q×r) with T Tᵀ = (C + εκ)⁻¹ on the range of C."""
    space = FunctionSpace.of(moments, literal=eps is not None)
    eps = DEFAULT_EPS if eps is None else eps
    return space.name, np.asarray(space.basis / np.sqrt(space.values + eps * space.ridged))


def hsic(moments: Moments, eps: float | None, features: Features = ("phi",)) -> Array:
    """R = C_φψ: |Rᵀβ|² is HSIC of f(x) and s with a linear kernel on f. `eps` is not used."""
    del eps
    return partial_covariance(moments, features, attribute(moments) or "psi")


def normalized(moments: Moments, eps: float | None, features: Features = ("phi",)) -> Array:
    """R = C_φψ (C_ψ + εκ)^(−1/2): |Rᵀβ|² is Cov(f, g), g the best function of s.

    Under control what the best g(s, c) explains beyond g(c): with one-hots E(E[f|s, c] − E[f|c])².
    """
    name, root = attribute_root(moments, eps)
    return np.asarray(partial_covariance(moments, features, name) @ root)


def whitening(moments: Moments, eps: float | None) -> tuple[Features, Array]:
    """Blocks a and a matrix W with (a − E a) W the attributes of unit covariance, but for ε."""
    name, root = attribute_root(moments, eps)
    if name == "psi":
        return ("psi",), root
    whiten = inverse_root(moments.covariance("upsilon", "upsilon"), CONTROL_EPS)
    onto = whiten @ (whiten.T @ moments.covariance("upsilon", "xi"))
    return ("upsilon", "xi"), np.vstack([-onto @ root, root])


def nocco(moments: Moments, eps: float | None, features: Features = ("phi",)) -> Array:
    """R = (C_φ + εI)^(−1/2) C_φψ (C_ψ + εκ)^(−1/2): normalised on both sides; roots symmetric."""
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


def share_of_variance(explained: Any, variance: Any, size: Any) -> Array:
    """Cov(f, g) / Var f, each summed over the outputs; NaN for a constant beside `size`."""
    constant = ~(np.asarray(variance) > CONSTANT * np.asarray(size))
    return np.where(constant, np.nan, explained / np.where(constant, 1.0, variance))


def corrected(raw: Any, chance: Any, left: Any = 1.0) -> Array:
    """(r − t)/(1 − t): the share without what chance explains, of the variance `left` of f."""
    chance = np.asarray(chance, dtype=float)
    usable = chance < 1
    rest = np.where(usable, 1 - chance, 1.0)
    return np.where(usable, (raw - chance * left) / rest, np.nan)


def variance_of(moments: Moments, features: Features, coef: Array) -> Array:
    """βᵀC_φβ for each column β of `coef`."""
    return np.asarray(np.sum(coef * (moments.covariance(features, features) @ coef), axis=0))


def explained_share(moments: Moments, coef: Array) -> float:
    """Explained share in sample of f = φᵀβ; NaN for a constant f, and without attributes."""
    if attribute(moments) is None:
        return float("nan")
    explained = np.sum((normalized(moments, None).T @ coef) ** 2)
    variance = np.sum(coef * (moments.covariance("phi", "phi") @ coef))
    return float(share_of_variance(explained, variance, size_of_block(moments, "y")))


def share_of_block(moments: Moments, eps: float | None = None) -> float:
    """Explained share in sample of rows whose φ is f itself, its columns being the outputs."""
    variance = float(np.trace(moments.covariance("phi", "phi")))
    explained = np.sum(normalized(moments, eps) ** 2)
    return float(share_of_variance(explained, variance, size_of_block(moments)))


def size_of_block(moments: Moments, name: str = "phi") -> float:
    """Mean square of a block, summed over its columns."""
    variance, mean = np.diagonal(moments.covariance(name, name)), moments.mean(name)
    return float(np.sum(variance + mean**2))


def degrees_of_freedom(moments: Moments) -> float:
    """n − 1, less what a control takes; n is Kish's count."""
    rows = moments.effective_rows - 1
    if "upsilon" in moments.blocks:
        values, _ = positive_eigh(moments.covariance("upsilon", "upsilon"))
        rows -= float(np.sum(values / (values + CONTROL_EPS)))
    return max(rows, np.finfo(float).tiny)


def group_counts(moments: Moments) -> Array:
    """Rows of each group of categories, shape (G,); none where s has no categories."""
    square = np.diagonal(moments.covariance("psi", "psi")) + moments.mean("psi") ** 2
    rows = square * moments.effective_rows
    counts: list[Array] = [np.zeros(0)]
    for kind, columns in moments.units.get("psi", ()):
        if kind in ("groups", "expected"):
            counts.append(rows[columns])
        elif kind == "cell":
            counts.append(rows[columns].sum(keepdims=True))
    return np.concatenate(counts)


def chance_of(moments: Moments) -> float:
    """Share that chance explains of a fold, with the largest ridge of g."""
    return FunctionSpace.of(moments).freedom(HELD_OUT_EPS[-1]) / degrees_of_freedom(moments)


def check_known(moments: Moments) -> None:
    """Raise InputError if too few rows have s to distinguish what it explains from chance."""
    known = moments.judged
    if attribute(moments) is None or known is moments:
        return
    chance = chance_of(known) if known.n_rows > 1 else 1.0
    if chance > MOST_CHANCE:
        raise InputError(
            f"the sensitive attributes are known in {known.n_rows} rows, of which chance alone "
            f"would explain a share of {min(chance, 1.0):.2g}",
            "give them for more rows, merge rare groups, or use fewer n_sensitive_components",
            where="sensitive_features",
        )


def check_control(moments: Moments) -> None:
    """Raise ValueError if a control determines the group of every row."""
    left = np.trace(partial_covariance(moments, "xi", "xi"))
    if not left > CUTOFF["xi"] * np.trace(moments.covariance("xi", "xi")):
        raise ValueError(
            "control_features determine the sensitive attributes of every row, so that nothing is "
            "left to be independent of; leave out the column that does, or make it coarser"
        )
