"""Explicit feature maps φ and ψ: scikit-learn transformers, one file a map."""

from scalefair.maps.exact import Identity, OneHot
from scalefair.maps.fourier import RandomFourier
from scalefair.maps.leaves import LeafMap
from scalefair.maps.nystroem import Nystroem
from scalefair.maps.product import ConcatMap, ProductMap
from scalefair.maps.transformer import TransformerMap

__all__ = [
    "ConcatMap",
    "Identity",
    "LeafMap",
    "Nystroem",
    "OneHot",
    "ProductMap",
    "RandomFourier",
    "TransformerMap",
]
