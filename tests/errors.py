"""Errors are judged by their type and by what they name, not by their wording."""

from contextlib import contextmanager

import pytest


@contextmanager
def refused(*words, error=(ValueError, TypeError)):
    """The block raises an error that names all of these: arguments, values, columns, classes.

    Yields what ``pytest.raises`` yields, for the attributes of the error: ``caught.value.column``.
    """
    with pytest.raises(error) as caught:
        yield caught
    absent = [text for text in map(str, words) if text not in str(caught.value)]
    assert not absent, f"the error does not name {absent}: {caught.value}"


def named(parameters):
    """What an error must name of parameters: their names and values."""
    return [word for name, value in parameters.items() for word in (name, repr(value))]
