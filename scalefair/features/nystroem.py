"""Nyström features: the kernel seen from a few landmark rows, fixed or learnt."""

from __future__ import annotations

from copy import copy
from typing import Any, Self

import numpy as np
from numpy.typing import DTypeLike
from scipy.linalg import LinAlgError, cholesky, solve_triangular
from scipy.linalg.lapack import dpstrf, dtrtri

from scalefair._hash import smallest_hash
from scalefair._linalg import low_rank_eigh
from scalefair._typing import Array, Rows
from scalefair.data.sources.threads import one_blas_thread
from scalefair.errors import check_choice, check_count
from scalefair.features.base import Filler, LengthScaleMap, seed_of
from scalefair.features.landmarks import (
    LANDMARK_METHODS,
    choose_landmarks,
    distinct_rows,
    fitted_kernel,
    standard_deviation,
)
from scalefair.kernels import Kernel

WHITENINGS = ("eigen", "cholesky", "pivoted")


class Nystroem(LengthScaleMap):
    """Nyström features of any kernel.

    With landmarks Z (m rows) and K_ZZ = UΛUᵀ,

        raw(x) = k(x, Z),    linear_ = U_r Λ_r^(−1/2),    φ(x) = raw(x) @ linear_,

    where r counts the eigenvalues above `cutoff` times the largest. φ(x)ᵀφ(z) is k(x, z) projected on the span of the
    landmarks, exact on the landmarks themselves (to the cut-off). Compared with K_ZZ^(−1/2) k_Z(x) these features are
    rotated and have no empty directions; every fit that penalises |β|² is the same. With `whitening="cholesky"`

        linear_ = L^(−ᵀ),    LLᵀ = K_ZZ + cutoff · mean(diag K_ZZ) · I

    instead: all m directions remain, and φ is a smooth function of the length scales, as learning
    them needs. A rank that changes would make the evidence jump.

    Parameters
    ----------
    kernel : str or Kernel, default="rbf"
        "rbf", "laplace", "matern12", "matern32", "matern52", "linear", "categorical", or a kernel
        object, which brings its own length scale.
    length_scale : float, array of shape (d,), "median" or "standardized", default=1.0
        "median": the weighted median of the non-zero distances between (at most 1000) rows.
        "standardized": that median for columns divided by their standard deviation, times the
        standard deviation, one per input: the kernel of standardised columns.
    n_components : int, default=100
        Largest number m of landmarks. Where there are no more distinct rows than that, all of
        them are landmarks, in lexicographic order, whatever the method.
    landmarks : {"uniform", "kmeans++", "leverage"}, default="uniform"
        How landmarks are chosen among the distinct rows: in proportion to weight; far from each other in the kernel's
        metric; or in proportion to ridge leverage scores. `scalefair.features.landmarks` has the formulas.
    cutoff : float, default=1e-8
        Directions whose eigenvalue is at most so much of the largest one are dropped; with
        `whitening="cholesky"` the jitter, relative to the mean of the diagonal.
        Rows in float32 need a larger one (1e-6), since rounding errors grow as 1/√cutoff.
    whitening : {"eigen", "cholesky", "pivoted"}, default="eigen"
        How K_ZZ is inverted: by the eigenvectors above the cut-off, by the Cholesky factor with a fixed jitter, or by
        that of the landmarks that the cut-off leaves.
    sample_size : int or None, default=None
        Choose among so many distinct rows of smallest hash only; None: all.
    random_state : int, RandomState or None, default=None

    Attributes
    ----------
    landmarks_ : array of shape (m, d)
    kernel_ : Kernel
        With the length scale that was found.
    eigenvalues_ : array of shape (m,)
        Of K_ZZ, descending, floored at 0; those after the first `rank_` were dropped. Only with `whitening="eigen"`.
    rank_ : int
        Number of directions that remain, which is the number of features.
    n_raw_ : int
    linear_ : array of shape (m, rank_)

    Notes
    -----
    The map is a function of the weighted set of rows and the seed: permuted rows give the same
    map, weight 2 is the row twice, weight 0 is no row.

    Examples
    --------
    >>> import numpy as np
    >>> from scalefair.features import Nystroem
    >>> X = np.arange(4.0)[:, None]
    >>> Phi = Nystroem().fit_transform(X)
    >>> np.allclose(Phi @ Phi.T, np.exp(-(X - X.T) ** 2 / 2))
    True
    """

    def __init__(
        self, kernel: str | Kernel = "rbf", length_scale: Any = 1.0, *, n_components: int = 100,
        landmarks: str = "uniform", cutoff: float = 1e-8, whitening: str = "eigen",
        sample_size: int | None = None, random_state: Any = None,
    ) -> None:  # fmt: skip
        self._store(locals())

    def _learn(self, X: Rows, weight: Array) -> None:
        size = check_count("n_components", self.n_components)
        check_choice("landmarks", self.landmarks, LANDMARK_METHODS)
        check_choice("whitening", self.whitening, WHITENINGS)
        if not 0 <= self.cutoff < 1:
            raise ValueError(f"cutoff={self.cutoff!r} must be in [0, 1); 1e-8 is a good choice")
        seed = seed_of(self.random_state)
        rows, weight = distinct_rows(X, weight)
        self.kernel_ = fitted_kernel(self.kernel, self.length_scale, rows, weight, seed)
        if self.sample_size is not None:
            count = check_count("sample_size", self.sample_size)
            # The seed differs from that of the draw of landmarks, which must not depend on it.
            sample = smallest_hash(seed + 2, 0, len(rows), count)
            rows, weight = rows[sample], weight[sample]
        chosen = choose_landmarks(self.landmarks, self.kernel_, rows, weight, size=size, seed=seed)
        self.landmarks_ = rows[chosen]
        self.n_raw_ = len(chosen)
        with one_blas_thread(self.n_raw_):
            self._factorize()

    def _factorize(self) -> None:
        Z = self.landmarks_
        K = np.empty((len(Z), len(Z)))
        self.kernel_.against(Z)(Z, K)
        if not K.any():
            raise ValueError(
                f"kernel={self.kernel!r} is zero on all {self.n_raw_} landmarks, so that no "
                f"feature remains; X must have a row that is not zero"
            )
        if self.whitening == "cholesky":
            self.linear_, self.rank_ = self._inverse_factor(K), self.n_raw_
            return
        if self.whitening == "pivoted":
            self._drop_dependent(K)
            return
        values, vectors = low_rank_eigh(K)
        self.eigenvalues_ = np.pad(values[::-1], (0, len(K) - len(values)))
        self.rank_ = int(np.sum(values > self.cutoff * values[-1]))
        vectors = vectors[:, ::-1][:, : self.rank_]
        # Signs are arbitrary; fix them, so that every machine returns the same features.
        largest = np.abs(vectors).argmax(axis=0)
        vectors = vectors * np.sign(vectors[largest, np.arange(self.rank_)])
        self.linear_ = vectors / np.sqrt(self.eigenvalues_[: self.rank_])

    def _drop_dependent(self, K: Array) -> None:
        """Keep the landmarks that a pivoted factor of K takes, and invert that factor."""
        triangle, pivots, rank, _ = dpstrf(K.T, tol=self.cutoff * np.diagonal(K).max(), overwrite_a=1)
        self.landmarks_ = self.landmarks_[pivots[:rank] - 1]
        self.n_raw_ = self.rank_ = int(rank)
        self.linear_ = np.ascontiguousarray(np.triu(dtrtri(np.triu(triangle[:rank, :rank]), overwrite_c=1)[0]))

    def _inverse_factor(self, K: Array) -> Array:
        """Return L^(−ᵀ) with LLᵀ = K + jitter, upper triangular."""
        eye = np.eye(self.n_raw_)
        try:
            L = cholesky(K + self.cutoff * np.mean(np.diagonal(K)) * eye, lower=True)
        except LinAlgError:
            raise ValueError(
                f"cutoff={self.cutoff!r} is too small a jitter for the {self.n_raw_}×{self.n_raw_} "
                "kernel matrix of the landmarks, which is numerically singular; use 1e-8"
            ) from None
        return np.ascontiguousarray(solve_triangular(L, eye, lower=True, check_finite=False).T)

    def filler(self, dtype: DTypeLike) -> Filler:
        """Return the function that fills rows with k(x, Z); see `BaseMap.filler`."""
        fill = self.kernel_.against(self.landmarks_.astype(dtype, copy=False))
        return lambda X, out: fill(X.astype(dtype, copy=False), out)

    def with_length_scale(self, theta: Any) -> Self:
        """Return a fitted copy with other length scales and the same landmarks."""
        other = copy(self)
        other.kernel_ = self.kernel_.with_length_scale(theta)
        other._factorize()
        return other

    def raw_gradient(self, X: Rows, raw: Rows, dRaw: Array) -> Array:
        """Contract with ∂k(x, Z)/∂log θ; see `LengthScaleMap.raw_gradient`."""
        return self.kernel_.gradient(X, self.landmarks_, dRaw, raw)

    def linear_gradient(self, product: Array) -> Array:
        """Contract with ∂K_ZZ/∂log θ; see `LengthScaleMap.linear_gradient`."""
        return self.kernel_.gradient(self.landmarks_, None, self._gram_adjoint(product))

    def _gram_adjoint(self, product: Array) -> Array:
        """Return ∂L/∂K_ZZ = −P tril(productᵀ) Pᵀ, symmetrised; tril halves the diagonal."""
        if self.whitening != "cholesky" or self.linear_ is None:
            raise ValueError(
                f"whitening={self.whitening!r} has no gradient in the length scales, since its "
                "rank jumps; use Nystroem(whitening='cholesky')"
            )
        half = np.tril(product.T)
        half[np.diag_indices_from(half)] /= 2
        return -self.linear_ @ ((half + half.T) / 2) @ self.linear_.T


class MovingNystroem(Nystroem):
    """`Nystroem` with gradients in [log θ, Z/unit]: every landmark is a parameter."""

    def _learn(self, X: Rows, weight: Array) -> None:
        super()._learn(X, weight)
        self.landmarks_ = np.asarray(self.landmarks_, dtype=np.float64)
        self.unit_ = standard_deviation(self.landmarks_, np.ones(self.n_raw_))

    @property
    def hyperparameters(self) -> Array:
        """log θ and the landmarks in units, shape (n_hyper + m·d,)."""
        return np.concatenate([np.log(self.kernel_.theta), (self.landmarks_ / self.unit_).ravel()])

    def with_hyperparameters(self, values: Array) -> Self:
        """Return a fitted copy with other length scales and landmarks."""
        scales = self.kernel_.theta.size
        other = copy(self)
        other.landmarks_ = values[scales:].reshape(self.landmarks_.shape) * self.unit_
        return other.with_length_scale(np.exp(values[:scales]))

    def fixed(self) -> Nystroem:
        """Return the map with its landmarks where they are, as an ordinary one."""
        plain = Nystroem(**self.get_params(deep=False))
        plain.__dict__.update({name: value for name, value in vars(self).items() if name != "unit_"})
        return plain

    def raw_gradient(self, X: Rows, raw: Rows, dRaw: Array) -> Array:
        """Contract with ∂k(x, Z); see `LengthScaleMap.raw_gradient`."""
        in_scale = super().raw_gradient(X, raw, dRaw)
        in_place = self.kernel_.point_gradient(X, self.landmarks_, dRaw) * self.unit_
        return np.concatenate([in_scale, in_place.ravel()])

    def linear_gradient(self, product: Array) -> Array:
        """Contract with ∂K_ZZ; see `Nystroem.linear_gradient`."""
        adjoint = self._gram_adjoint(product)
        in_scale = self.kernel_.gradient(self.landmarks_, None, adjoint)
        # K_ZZ depends on a landmark by its row and, equally, by its column.
        in_place = 2.0 * self.kernel_.point_gradient(self.landmarks_, self.landmarks_, adjoint)
        return np.concatenate([in_scale, (in_place * self.unit_).ravel()])
