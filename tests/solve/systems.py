"""Moments and systems of rows that are given as features, by the reference in tests/naive.py."""

import numpy as np

from scalefair.moments import Moments
from scalefair.solve.ridge.system import System
from tests import naive


def moments_of(Phi, Psi, y, weight=None):
    return Moments(**naive.moment_parts(Phi, Psi, y, weight))


def system_of(Phi, Psi, y, weight=None, **options):
    return System.build(moments_of(Phi, Psi, y, weight), **options)


def variance_of(system, coef):
    """βᵀCβ."""
    return np.sum(coef * (system.covariance @ coef))
