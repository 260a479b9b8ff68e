"""The experiments of Li, Pérez-Suay, Camps-Valls and Sejdinovic beside their printed numbers.

An experiment is one file: what is computed for one seed, what the paper prints of it, and what the
paper claims. `runs.run` repeats it over seeds, keeps what is done, and writes tables and figures.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from benchmarks.paper.experiment import Experiment

EXPERIMENTS = ("toy1", "toy2", "crime", "adult", "ard")

__all__ = ["EXPERIMENTS", "load"]


def load(name: str) -> Experiment:
    """Return an experiment by its name."""
    if name not in EXPERIMENTS:
        raise ValueError(f"experiment={name!r} is unknown; give one of {', '.join(EXPERIMENTS)}")
    experiment: Experiment = import_module(f"benchmarks.paper.{name}").EXPERIMENT
    return experiment
