"""Explicit feature maps φ and ψ: scikit-learn transformers, one file a map."""

from scalefair.features.exact import Identity, OneHot
from scalefair.features.fourier import RandomFourier
from scalefair.features.nystroem import Nystroem
from scalefair.features.product import ConcatMap, ProductMap
from scalefair.features.transformer import LeafMap, TransformerMap

__all__ = ["ConcatMap", "Identity", "LeafMap", "Nystroem", "OneHot", "ProductMap", "RandomFourier", "TransformerMap"]
