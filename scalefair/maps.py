"""Explicit feature maps φ and ψ, as users name them; each has its file in `scalefair.features`."""

from scalefair.features import (
    ConcatMap,
    Identity,
    LeafMap,
    Nystroem,
    OneHot,
    ProductMap,
    RandomFourier,
    TransformerMap,
)

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
