"""The frontier of accuracy and fairness as a page that people can read."""

from scalefair.report.frontier import Frontier, fit_frontier
from scalefair.report.groups import between_share, cross, group_table
from scalefair.report.page import make_report, write_report
from scalefair.report.problem import ReportProblem, ReportRows, from_scan, from_table
from scalefair.report.words import as_record, headline

__all__ = [
    "Frontier",
    "ReportProblem",
    "ReportRows",
    "as_record",
    "between_share",
    "cross",
    "fit_frontier",
    "from_scan",
    "from_table",
    "group_table",
    "headline",
    "make_report",
    "write_report",
]
