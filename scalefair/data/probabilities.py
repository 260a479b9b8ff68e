"""Probabilities of groups, for example from surnames or addresses, instead of the groups."""

from __future__ import annotations

from typing import Any, Self

import numpy as np

from scalefair._typing import Array
from scalefair.data import frames
from scalefair.errors import InputError


class GroupProbabilities(np.ndarray[Any, np.dtype[np.float64]]):
    """Rows E[one-hot of the group | what is known of the row], of shape (n, K)."""

    groups: tuple[str, ...]
    n_known: int  # rows whose group is known

    def __new__(cls, rows: Array, groups: tuple[str, ...], n_known: int) -> Self:
        """Return a view of the rows."""
        made = rows.view(cls)
        made.groups, made.n_known = groups, n_known
        return made

    def __array_finalize__(self, other: Any) -> None:
        if isinstance(other, GroupProbabilities):  # some of its rows
            self.__dict__.update(vars(other))

    def __reduce__(self) -> Any:
        return GroupProbabilities, (np.array(self), self.groups, self.n_known)


def group_probabilities(probabilities: Any, known: Any = None) -> GroupProbabilities:
    """Return `sensitive_features` for ridges where groups are known by their probabilities.

    Parameters
    ----------
    probabilities : array or data frame of shape (n, K)
        P(group | what is known of the row), calibrated, a column for each group. Rows add up to 1.
    known : array-like of shape (n,), optional
        Groups of rows drawn at random; missing elsewhere.

    Returns
    -------
    GroupProbabilities
        An array of shape (n, K).

    Notes
    -----
    Groups explain Σ_k Cov(f, 1[s = k])² / (π_k Var f), π_k the frequency of group k. By total covariance
    Cov(f, 1[s = k]) = Cov(f, p_k) + E Cov(f, 1[s = k] | p). Probabilities give the first term: the share is a
    **lower bound** as long as the second has the same sign. With a fraction r of the rows `known`,
    p_k + (1[s = k] − p_k)/r gives both, and the share is **corrected**.

    Examples
    --------
    >>> from scalefair import group_probabilities
    >>> group_probabilities([[0.9, 0.1], [0.2, 0.8]], known=["0", None]).n_known
    1
    """
    P, groups = _checked(probabilities)
    if known is None:
        return GroupProbabilities(P, groups, 0)
    (column,) = frames.columns(frames.as_table(known, one_column=True), "known")
    codes, levels = column.codes()
    at, strange = np.flatnonzero(codes >= 0), sorted({*levels} - {*groups})
    if len(codes) != len(P) or strange or not len(at):
        raise InputError(
            f"known has {len(codes)} rows, of which {len(at)} have a known group, with unknown groups "
            f"{strange}; expected {len(P)} rows, some with one of {groups}",
            "give the group of each row, or missing; a column of probabilities for each group",
            where="known",
        )
    truth = np.array([groups.index(level) for level in levels])[codes[at]]
    P[at] += (np.eye(len(groups))[truth] - P[at]) * (len(P) / len(at))
    if (frequency := P.mean(axis=0)).min() <= 0:
        raise InputError(
            f"group {groups[np.argmin(frequency)]!r} is too rare for {len(at)} rows to correct its "
            f"frequency, which comes out as {frequency.min():.2g}",
            "merge it with others, or give more rows whose group is known",
            where="known",
        )
    return GroupProbabilities(P, groups, len(at))


def _checked(probabilities: Any) -> tuple[Array, tuple[str, ...]]:
    """Return a copy of probabilities and the names of their groups, or raise InputError."""
    table = frames.as_table(probabilities)
    names = frames.column_names(table) or [str(k) for k in range(table.shape[1])]
    P = np.column_stack([column.floats() for column in frames.columns(table, "")])
    add_up = np.abs(P.sum(axis=1) - 1) <= 1e-6  # not where one is missing
    bad = np.flatnonzero(~add_up | (P < 0).any(axis=1))
    if len(bad):
        row = P[bad[0]]
        raise InputError(
            f"probabilities of row {bad[0]} are {row.tolist()}, of sum {row.sum():.6g}; expected "
            f"numbers of at least 0 that add up to 1 ({len(bad)} such rows)",
            "fill in what is missing, divide rows by their sum, or add a column for other groups",
            where="probabilities",
        )
    return P, tuple(names)
