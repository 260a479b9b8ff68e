"""Files that are removed, cut or replaced while they are read."""

from __future__ import annotations

from functools import partial

import numpy as np
import pandas as pd
import pytest

from scalefair import FairKernelRidge, scan_csv, scan_parquet
from scalefair.data.sources.files import base
from scalefair.data.sources.files.base import regrouped
from tests.faults import RNG, SMALL, TIMES, S, X, Y, nothing_left_running
from tests.models import fit_within


@pytest.mark.parametrize(
    ("kind", "harm"),
    [
        ("parquet", "removed"),
        ("parquet", "cut"),
        ("parquet", "replaced"),
        ("csv", "removed"),
        ("csv", "replaced"),  # but not cut: nobody can tell of a text that there was more
    ],
)
def test_a_file_that_goes_while_it_is_read(kind, harm, tmp_path, monkeypatch):
    """It is read to its end, as an open file is, or the error names it."""
    files, reads = Files(tmp_path, kind), []
    act_on_read(monkeypatch, lambda: reads.append(1))
    expected, count = files.fit(), len(reads)
    for _ in range(TIMES):
        path, after = files.paths[RNG.integers(6)], RNG.integers(1, count)
        act_on_read(monkeypatch, when(after, partial(files.harm, path, harm)))
        with nothing_left_running():
            found = outcome(files.fit)
        if isinstance(found, Exception):
            assert path.name in str(found) or "0.csv" in str(found)
        else:
            np.testing.assert_allclose(found, expected, rtol=1e-8, atol=1e-10)
        files.write()


class Files:
    """A table in six files, and what may happen to one of them."""

    def __init__(self, folder, kind):
        self.folder = folder
        self._write = getattr(pd.DataFrame, f"to_{kind}")
        self._scan = {"parquet": scan_parquet, "csv": scan_csv}[kind]
        self._table = pd.DataFrame(X, columns=list("abc")).assign(s=S, y=Y)
        self.paths = [folder / f"{i}.{kind}" for i in range(6)]
        self.write()

    def write(self):
        for i, path in enumerate(self.paths):
            self._write(self._table[i * 500 : i * 500 + 500], path, index=False)

    def harm(self, path, how):
        whole = path.read_bytes()
        path.unlink()
        if how == "cut":
            path.write_bytes(whole[:5000])
        elif how == "replaced":
            self._write(self._table[:77].drop(columns="a"), path, index=False)

    def fit(self):
        rows = self._scan(self.folder)
        given, y, s = rows[["a", "b", "c"]], rows["y"], rows["s"]
        model = FairKernelRidge(feature_map="linear")
        return fit_within(SMALL, model, given, y, sensitive_features=s).coef_


def outcome(function):
    try:
        return function()
    except (OSError, ValueError) as error:
        return error


def act_on_read(monkeypatch, act):
    """Call a function whenever a few rows of a file have been read."""

    def watched(*args):
        for table in regrouped(*args):
            act()
            yield table

    monkeypatch.setattr(base, "regrouped", watched)


def when(count, act):
    """A function that acts when it is called for the count-th time."""
    calls = []

    def called():
        calls.append(1)
        if len(calls) == count:
            act()

    return called
