"""Settings of how a fit is computed: precision, chunks, solver and checkpoint."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

from scalefair.errors import check_choice, check_count

SOLVERS = ("auto", "direct", "iterative")


@dataclass(frozen=True)
class Config:
    """Settings of the engine, read once at the start of a fit; see `config_context`."""

    dtype: str = "float64"
    chunk_rows: int | None = None
    solver: str = "auto"
    checkpoint: str | os.PathLike[str] | None = None

    def __post_init__(self) -> None:
        check_choice("dtype", self.dtype, ("float64", "float32"))
        check_choice("solver", self.solver, SOLVERS)
        if self.chunk_rows is not None:
            check_count("chunk_rows", self.chunk_rows)
        if not isinstance(self.checkpoint, str | os.PathLike | None):
            raise TypeError(f"checkpoint={self.checkpoint!r} is not a path; give a path or None")


_everywhere = Config()
_here: ContextVar[Config | None] = ContextVar("scalefair_config", default=None)


def current_config() -> Config:
    """Return the current settings."""
    return _here.get() or _everywhere


def get_config() -> dict[str, Any]:
    """Return the current settings as a dict, as scikit-learn's `get_config` does.

    Examples
    --------
    >>> import scalefair
    >>> scalefair.get_config()["dtype"]
    'float64'
    """
    return asdict(current_config())


def set_config(**settings: Any) -> None:
    """Change settings for all later fits in this process.

    Parameters
    ----------
    **settings
        As in :func:`config_context`.

    Examples
    --------
    >>> import scalefair
    >>> scalefair.set_config(chunk_rows=4096)
    >>> scalefair.set_config(chunk_rows=None)
    """
    global _everywhere  # noqa: PLW0603 (that is what it is for)
    _everywhere = _changed(_everywhere, settings)


@contextmanager
def config_context(**settings: Any) -> Iterator[None]:
    """Change settings for the fits in a ``with`` block.

    They affect how a fit is computed, not what it estimates. Predictions use the settings that the
    model was fitted with. Threads that others start, such as those of a grid search with `n_jobs`,
    do not inherit the block; use :func:`set_config`, which is for all threads of a process.

    Parameters
    ----------
    dtype : {"float64", "float32"}, default="float64"
        Precision of the feature rows; sums over rows are float64 in any case. Gaussian processes use float64.
    chunk_rows : int or None, default=None
        Rows per chunk. None: as many as fit into the processor's cache.
    solver : {"auto", "direct", "iterative"}, default="auto"
        How :class:`FairKernelRidge` is solved: from m×m moments, or by conjugate gradients over
        the rows. "auto" is iterative from 8,000 features on.
    checkpoint : path or None, default=None
        File for the sums of a long ridge fit, written every minute. A fit that crashed continues
        from it, with the same data, parameters and an int as `random_state`; if rows that were
        counted have changed since, it raises ValueError.

    Examples
    --------
    >>> import scalefair
    >>> from scalefair.datasets import make_toy1
    >>> toy = make_toy1(500, random_state=0)
    >>> model = scalefair.FairKernelRidge(eta=1.0, n_components=50, random_state=0)
    >>> with scalefair.config_context(dtype="float32"):
    ...     model = model.fit(toy.data, toy.target, sensitive_features=toy.sensitive_features)
    """
    token = _here.set(_changed(current_config(), settings))
    try:
        yield
    finally:
        _here.reset(token)


def _changed(config: Config, settings: dict[str, Any]) -> Config:
    names = [field.name for field in fields(config)]
    unknown = [name for name in settings if name not in names]
    if unknown:
        raise TypeError(f"{unknown[0]!r} is not a setting; expected one of {', '.join(names)}")
    return replace(config, **settings)
