"""Kernels k(x, z), their gradients in log length scales, and their spectral samples.

Each kernel is a frozen value: `k(X, Z)` is the matrix, `k.diag(X)` its diagonal,
`k.gradient(X, Z, G)` the contraction Σ_ij G_ij ∂k(x_i, z_j)/∂log θ. Kernels add and multiply.
"""

from scalefair.kernels.base import Kernel, Product, Scaled, Sum
from scalefair.kernels.exact import Categorical, Linear
from scalefair.kernels.stationary import RBF, Laplace, Matern, make_kernel, median_length_scale

__all__ = [
    "RBF",
    "Categorical",
    "Kernel",
    "Laplace",
    "Linear",
    "Matern",
    "Product",
    "Scaled",
    "Sum",
    "make_kernel",
    "median_length_scale",
]
