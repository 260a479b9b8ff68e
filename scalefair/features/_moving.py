"""Nyström features whose landmarks are learnt together with the length scales."""

from __future__ import annotations

from copy import copy
from typing import Self

import numpy as np

from scalefair._typing import Array, Rows
from scalefair.features._base import standard_deviation
from scalefair.features.nystroem import Nystroem


class MovingNystroem(Nystroem):
    """`Nystroem` with gradients in [log θ, Z/unit]: every landmark is a parameter.

    k(x, Z) changes with Z as the kernel says (`Kernel.point_gradient`), and so does K_ZZ.

    Attributes
    ----------
    unit_ : array of shape (d,)
        Standard deviations of the landmarks chosen first, so that a step of the search means the
        same in every input.
    """

    def _learn(self, X: Rows, weight: Array) -> None:
        super()._learn(X, weight)
        self.landmarks_ = np.asarray(self.landmarks_, dtype=np.float64)
        self.unit_ = standard_deviation(self.landmarks_, np.ones(self.n_raw_))

    @property
    def place(self) -> Array:
        """log θ and the landmarks in units, shape (n_hyper + m·d,)."""
        return np.concatenate([np.log(self.kernel_.theta), (self.landmarks_ / self.unit_).ravel()])

    @property
    def n_hyper(self) -> int:
        """Length of the gradients."""
        return self.kernel_.theta.size + self.landmarks_.size

    def moved(self, place: Array) -> Self:
        """Return a fitted copy at another place."""
        scales = self.kernel_.theta.size
        other = copy(self)
        other.landmarks_ = place[scales:].reshape(self.landmarks_.shape) * self.unit_
        return other.with_length_scale(np.exp(place[:scales]))

    def settled(self) -> Nystroem:
        """Return the map with its landmarks where they are, as an ordinary one."""
        plain = Nystroem(**self.get_params(deep=False))
        plain.__dict__.update(
            {name: value for name, value in vars(self).items() if name != "unit_"}
        )
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
