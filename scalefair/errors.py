"""Errors that carry what they are about, so that nobody has to read it out of their text."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from copy import copy
from typing import Self


class InputError(ValueError):
    """Data, a file or a parameter that cannot be used; the message is "what; remedy".

    Parameters
    ----------
    what : str
        What is wrong.
    remedy : str, optional
        What to do about it.
    column : str, optional
        The column it is about.
    where : str, optional
        The file, argument or attribute it is about.
    """

    def __init__(self, what: str, remedy: str = "", *, column: str = "", where: str = "") -> None:
        super().__init__(f"{what}; {remedy}" if remedy else what)
        self.what, self.remedy, self.column, self.where = what, remedy, column, where

    def at(self, where: str) -> Self:
        """Return the same error about a place, which its message then begins with."""
        error = copy(self)
        error.where, error.what, error.args = where, f"{where}: {self.what}", (f"{where}: {self}",)
        return error


class UselessColumnError(InputError):
    """A column that no model can use: without values, constant, or different in every row."""


class CellError(InputError):
    """A cell of a csv file that is not of the type of its column."""


class DelimiterError(InputError):
    """A csv file whose cells another character separates: `delimiter`."""

    def __init__(self, what: str, delimiter: str = "", *, where: str = "") -> None:
        super().__init__(what, f"give delimiter={delimiter!r}" if delimiter else "", where=where)
        self.delimiter = delimiter


class UnsavableError(InputError):
    """An object, at `where`, that cannot be stored without storing code."""


class CannotJudgeError(InputError):
    """Predictions or attributes that an audit cannot judge, such as constant ones."""


class LostWorkersError(RuntimeError):
    """Work that a dask cluster gave up, because its workers were lost."""


@contextmanager
def located(where: str) -> Iterator[None]:
    """Let errors about input name a place, such as a file or the argument of a column; "": none."""
    try:
        yield
    except ValueError as error:
        if not where:
            raise
        if isinstance(error, InputError):
            raise error.at(where) from error
        raise InputError(f"{where}: {error}", where=where) from error
