"""The frontier of accuracy and fairness as a page that people can read."""

from scalefair.report.frontier import Frontier, fit_frontier, with_model
from scalefair.report.page import make_report, write_audit, write_report
from scalefair.report.position import Entry, Position
from scalefair.report.problem import ReportProblem, ReportRows, from_scan, from_table
from scalefair.report.rates import ImpactRatio, calibration, distributions, impact_ratios
from scalefair.report.tables import as_record
from scalefair.report.words import headline

__all__ = [
    "Entry",
    "Frontier",
    "ImpactRatio",
    "Position",
    "ReportProblem",
    "ReportRows",
    "as_record",
    "calibration",
    "distributions",
    "fit_frontier",
    "from_scan",
    "from_table",
    "headline",
    "impact_ratios",
    "make_report",
    "with_model",
    "write_audit",
    "write_report",
]
