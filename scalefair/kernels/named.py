"""Kernels by name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from scalefair.kernels.base import Kernel
from scalefair.kernels.exact import Categorical, Linear
from scalefair.kernels.stationary import RBF, Laplace, Matern

NAMES: dict[str, Callable[[Any], Kernel]] = {
    "rbf": RBF,
    "laplace": Laplace,
    "matern12": lambda length_scale: Matern(length_scale, nu=0.5),
    "matern32": lambda length_scale: Matern(length_scale, nu=1.5),
    "matern52": lambda length_scale: Matern(length_scale, nu=2.5),
    "linear": lambda _: Linear(),
    "categorical": lambda _: Categorical(),
}


def plain_name(kernel: Any) -> Any:
    """Return the name of a kernel without parameters, anything else as it is.

    A name and the kernel object that it stands for are the same thing to whoever asks for one.
    """
    return type(kernel).__name__.lower() if isinstance(kernel, Categorical | Linear) else kernel


def make_kernel(kernel: str | Kernel, length_scale: Any = 1.0) -> Kernel:
    """Return the kernel of that name.

    Parameters
    ----------
    kernel : str or Kernel
        "rbf", "laplace", "matern12", "matern32", "matern52", "linear" or "categorical"; a Kernel
        is returned as it is, with its own length scale.
    length_scale : float or one per input
        Not used by "linear" and "categorical".
    """
    if isinstance(kernel, Kernel):
        return kernel
    if not isinstance(kernel, str):
        raise TypeError(f"kernel={kernel!r} must be a name or a Kernel; names: {', '.join(NAMES)}")
    if kernel not in NAMES:
        raise ValueError(f"kernel={kernel!r} is unknown; expected one of {', '.join(NAMES)}")
    return NAMES[kernel](length_scale)
