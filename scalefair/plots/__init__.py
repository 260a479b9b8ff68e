"""Plots of tables, in scikit-learn's Display style. The only home of matplotlib.

pyplot makes the figure only where the caller gives no axes, so that a notebook shows the
result. Everything else goes through figures of its own and leaves no state behind.
"""

from scalefair.plots.figures import AFTER, BEFORE, FAINT, INK, make_figure, to_svg
from scalefair.plots.groups import AuditDisplay, GroupDistributionDisplay, density
from scalefair.plots.path import (
    FairPathDisplay,
    FrontDisplay,
    LimitGapDisplay,
    PathPoints,
    path_points,
    row_at,
    target_variance,
)
from scalefair.plots.relevance import ContributionDisplay, ProxyDisplay, RelevanceDisplay

__all__ = [
    "AFTER",
    "BEFORE",
    "FAINT",
    "INK",
    "AuditDisplay",
    "ContributionDisplay",
    "FairPathDisplay",
    "FrontDisplay",
    "GroupDistributionDisplay",
    "LimitGapDisplay",
    "PathPoints",
    "ProxyDisplay",
    "RelevanceDisplay",
    "density",
    "make_figure",
    "path_points",
    "row_at",
    "target_variance",
    "to_svg",
]
