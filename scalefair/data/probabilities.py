"""Probabilities of groups, such as a surname or an address gives them, instead of the groups."""

from __future__ import annotations

from typing import Any

import numpy as np

from scalefair._typing import Array
from scalefair.data import frames
from scalefair.errors import InputError

TOLERANCE = 1e-6
"""By which the probabilities of a row may miss a sum of one."""


class GroupProbabilities(np.ndarray[Any, np.dtype[np.float64]]):
    """Rows E[one-hot of the group | what is known of the row], of shape (n, K)."""

    groups: tuple[str, ...]
    n_known: int

    @classmethod
    def of(cls, rows: Array, groups: tuple[str, ...], n_known: int) -> GroupProbabilities:
        """Return rows with the names of the groups, and how many rows know theirs."""
        made = rows.view(cls)
        made.groups, made.n_known = groups, n_known
        return made

    def __array_finalize__(self, other: Any) -> None:
        if isinstance(other, GroupProbabilities):  # some of its rows
            self.__dict__.update(vars(other))

    def __reduce__(self) -> Any:
        return GroupProbabilities.of, (np.array(self), self.groups, self.n_known)


def group_probabilities(probabilities: Any, known: Any = None) -> GroupProbabilities:
    """Return `sensitive_features` for ridges where groups are known by their probabilities.

    Parameters
    ----------
    probabilities : array or data frame of shape (n, K)
        P(group k | what is known of the row), calibrated; columns are the groups. Rows add up to 1.
    known : array-like of shape (n,), optional
        The groups of rows, drawn at random, where they are known; missing elsewhere.

    Returns
    -------
    GroupProbabilities
        An array of shape (n, K).

    Notes
    -----
    The share of the variance of f that groups explain is Σ_k Cov(f, 1[s = k])² / (π_k Var f), π_k
    the frequency of group k. By the law of total covariance

        Cov(f, 1[s = k]) = Cov(f, p_k) + E Cov(f, 1[s = k] | p),

    and probabilities tell the first term only: the share is a **lower bound** as long as the second
    term, what f tells of the group beyond the probabilities, has the sign of the first. Rows that
    know their group tell it, too: with a part r of rows known, rows p + (1[s = k] − p)/r have the
    covariance on the left for their mean, and the share is **corrected**.

    Examples
    --------
    >>> from scalefair import group_probabilities
    >>> group_probabilities([[0.9, 0.1], [0.2, 0.8]]).groups
    ('0', '1')
    """
    P, groups = _checked(probabilities)
    if known is None:
        return GroupProbabilities.of(P, groups, 0)
    column, *others = frames.columns(frames.as_table(known, one_column=True), "known")
    codes, levels = column.codes()
    if others or len(codes) != len(P):
        raise InputError(
            f"known has {len(codes)} rows and {1 + len(others)} columns, the probabilities "
            f"{len(P)} rows",
            "give one group for each row, missing where it is not known", where="known",
        )  # fmt: skip
    if strange := [level for level in levels if level not in groups]:
        raise InputError(
            f"known has the group {strange[0]!r}, of which no probabilities are given "
            f"({', '.join(groups)})",
            "give it a column, or correct it", where="known",
        )  # fmt: skip
    at = np.flatnonzero(codes >= 0)
    if not len(at):
        raise InputError("known is missing in every row", "leave it out", where="known")
    truth = np.array([groups.index(level) for level in levels])[codes[at]]
    rows = P.copy()
    rows[at] += (np.eye(len(groups))[truth] - P[at]) * (len(P) / len(at))
    if (least := rows.mean(axis=0)).min() <= 0:
        name = groups[int(np.argmin(least))]
        raise InputError(
            f"group {name!r} is too rare for {len(at)} rows of known group to correct its "
            f"frequency, which comes out as {least.min():.2g}",
            "merge it with others, or give more such rows", where="known",
        )  # fmt: skip
    return GroupProbabilities.of(rows, groups, len(at))


def _checked(probabilities: Any) -> tuple[Array, tuple[str, ...]]:
    """Return probabilities and the names of their groups, or raise InputError."""
    table = frames.as_table(probabilities)
    names = frames.column_names(table) or [str(k) for k in range(table.shape[1])]
    P = np.column_stack([column.floats() for column in frames.columns(table, "")])
    if P.shape[1] < 2:
        raise InputError("probabilities of one group", "give a column for each group")
    for what, bad in (("missing", np.isnan(P)), ("negative", P < 0)):
        if bad.any():
            row, k = np.argwhere(bad)[0]
            raise InputError(
                f"the probability of group {names[k]!r} is {what} in {int(bad.sum())} places, "
                f"first in row {row} ({P[row, k]:g}); expected numbers from 0 to 1",
                "fill it in, or leave the row out", column=names[k], where="probabilities",
            )  # fmt: skip
    off = np.abs(P.sum(axis=1) - 1) > TOLERANCE
    if off.any():
        row = int(np.argmax(off))
        raise InputError(
            f"the probabilities of row {row} add up to {P[row].sum():.6g}, expected 1 "
            f"({int(off.sum())} such rows)",
            "divide each row by its sum, or add a column for all other groups",
            where="probabilities",
        )  # fmt: skip
    return np.ascontiguousarray(P), tuple(names)
