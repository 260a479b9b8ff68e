"""Dependence of any predictions on sensitive attributes: measures and tests."""

from scalefair.measures.distances import distance_correlation, mutual_information
from scalefair.measures.groups import GroupGaps, group_gaps
from scalefair.measures.independence import alignment, hsic, nocco, normalized_hsic
from scalefair.measures.scorers import make_dependence_scorer
from scalefair.measures.share import explained_share
from scalefair.measures.testing import TestResult, conditional_hsic_test, hsic_test

__all__ = [
    "GroupGaps",
    "TestResult",
    "alignment",
    "conditional_hsic_test",
    "distance_correlation",
    "explained_share",
    "group_gaps",
    "hsic",
    "hsic_test",
    "make_dependence_scorer",
    "mutual_information",
    "nocco",
    "normalized_hsic",
]
