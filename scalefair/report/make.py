"""A report of any fair estimator, in one call."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
from sklearn.base import clone

from scalefair import __version__, _frames
from scalefair.report.frontier import Frontier, check_fair, fit_frontier
from scalefair.report.page import write_report
from scalefair.report.problem import Problem, hold_out, read_target


def make_report(
    estimator: Any,
    X: Any,
    y: Any,
    *,
    sensitive_features: Any = None,
    out: str | os.PathLike[str] = "scalefair-report",
    target: str = "y",
    source: str = "a table in memory",
    random_state: int = 0,
) -> Frontier:
    """Fit an estimator on four fifths of the rows, judge it on the others, and write the report.

    Parameters
    ----------
    estimator : estimator of scalefair
        Regressor, classifier of two classes or Gaussian process; a copy of it is fitted.
    X : array or frame of shape (n, d)
        Inputs.
    y : array or Series of shape (n,)
        Numbers, booleans, or text of two levels.
    sensitive_features : array, Series or frame of shape (n,) or (n, p)
        Sensitive attributes; not needed where the estimator has `sensitive_columns`.
    out : path, default="scalefair-report"
        Folder for report.html, frontier.csv and model.scalefair.
    target, source : str
        Names of the target and of the data, for people.
    random_state : int, default=0
        Decides which rows are held out.

    Returns
    -------
    Frontier
        Everything that the page says, as numbers.

    Examples
    --------
    >>> import tempfile
    >>> from scalefair import FairRidge
    >>> from scalefair.datasets import make_toy1
    >>> from scalefair.report import make_report
    >>> toy = make_toy1(400, random_state=0)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     result = make_report(
    ...         FairRidge(unfairness=0.05), toy.data, toy.target,
    ...         sensitive_features=toy.sensitive_features, out=folder,
    ...     )
    >>> round(result.estimator.explained_share_, 6) <= 0.05
    True
    """
    check_fair(estimator)
    S = _sensitive(estimator, X, sensitive_features)
    numbers, levels = read_target(_named(y, target), target)
    train, test, held_out = hold_out(X, numbers, S, random_state)
    code = "# X, y, S: inputs, target and sensitive attributes"
    problem = Problem(
        source, target, _frames.column_names(S) or [], train, test, held_out, levels, code
    )
    result = fit_frontier(problem, clone(estimator))
    write_report(result, out, __version__)
    return result


def _sensitive(estimator: Any, X: Any, given: Any) -> Any:
    columns = estimator.sensitive_columns
    if given is not None and columns is not None:
        raise ValueError(
            "sensitive_features and sensitive_columns are both given; give one of them"
        )
    if given is None and columns is None:
        raise ValueError(
            "sensitive_features is missing; give them here, or name columns of X with "
            "sensitive_columns"
        )
    table = given if columns is None else _frames.take_columns(X, columns)
    names = _frames.column_names(table)
    if names is not None:
        return table
    columns = _frames.columns(_frames.as_table(table, one_column=True), "s")
    return _frames.make_frame({c.name or f"s{i}": _values(c) for i, c in enumerate(columns)})


def _values(column: _frames.Column) -> Any:
    if column.kind != "categorical":
        return column.floats()
    codes, levels = column.codes()
    return np.array([*levels, None], dtype=object)[codes]


def _named(y: Any, target: str) -> Any:
    """Return y as a table of one column of that name."""
    (column,) = _frames.columns(_frames.as_table(y, one_column=True), "y")
    if column.kind in ("numeric", "boolean", "empty"):
        return _frames.make_frame({target: column.floats()})
    return _frames.make_frame({target: _values(column)})
