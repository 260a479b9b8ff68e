"""Explicit feature maps φ and ψ: scikit-learn transformers, one file a map."""

from scalefair.maps.exact import Identity, OneHot
from scalefair.maps.fourier import RandomFourier
from scalefair.maps.nystroem import Nystroem
from scalefair.maps.product import ConcatMap, ProductMap

__all__ = ["ConcatMap", "Identity", "Nystroem", "OneHot", "ProductMap", "RandomFourier"]
