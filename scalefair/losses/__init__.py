"""Losses V(f, y), one number per row; the data term of the objective is 1/n ΣV.

V = −log p(y | f) up to constants, convex in f. A loss of one's own is a subclass of :class:`Loss`
with three methods, or any object with the same attributes.
"""

from scalefair.losses.base import Loss, Start, check_domain
from scalefair.losses.classes import ClassWeighted, Logistic, Multinomial, OneVsRest, SumToZero
from scalefair.losses.numeric import Gamma, Huber, Poisson, Quantile, Squared, robust_deviation

__all__ = [
    "LOSSES", "ClassWeighted", "Gamma", "Huber", "Logistic", "Loss", "Multinomial", "OneVsRest",
    "Poisson", "Quantile", "Squared", "Start", "SumToZero", "check_domain", "robust_deviation",
]  # fmt: skip
LOSSES: dict[str, type[Loss]] = {
    "squared": Squared,
    "logistic": Logistic,
    "poisson": Poisson,
    "gamma": Gamma,
    "huber": Huber,
    "quantile": Quantile,
}
"""Losses by name; "multinomial" also needs the number of classes."""
