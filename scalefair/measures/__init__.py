"""Dependence of any predictions on sensitive attributes: measures and tests."""

from scalefair.measures.conditional import conditional_hsic_test
from scalefair.measures.distance import distance_correlation
from scalefair.measures.independence import alignment, hsic, nocco, normalized_hsic
from scalefair.measures.information import mutual_information
from scalefair.measures.share import explained_share
from scalefair.measures.testing import TestResult, hsic_test

__all__ = [
    "TestResult",
    "alignment",
    "conditional_hsic_test",
    "distance_correlation",
    "explained_share",
    "hsic",
    "hsic_test",
    "mutual_information",
    "nocco",
    "normalized_hsic",
]
