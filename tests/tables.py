"""Mixed tables on disk and in memory, and guards, for the tests of sources."""

import threading

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from scalefair._typing import Chunk
from scalefair.data import frames
from scalefair.data.sources import ArraySource
from scalefair.data.sources.files import FileSource, scan_parquet

INPUTS = ["age", "count", "text", "level", "flag", "day", "time"]


def mixed(n, seed=0):
    """A table of n rows with every kind of column, missing values in most."""
    rng = np.random.default_rng(seed)
    gaps = rng.random(n) < 0.2
    words = np.array(["a", "bb", "", "Ü"])[rng.integers(0, 4, n)]
    return pa.table(
        {
            "age": pa.array(rng.normal(size=n), mask=gaps),
            "count": rng.integers(-5, 5, n),
            "text": pa.array(words, mask=gaps),
            "level": pa.array(words).dictionary_encode(),
            "flag": rng.random(n) < 0.5,
            "day": pa.array(rng.integers(0, 9000, n), pa.int32(), mask=gaps).cast(pa.date32()),
            "time": pa.array(rng.integers(0, 2**40, n), pa.timestamp("us")),
            "y": rng.normal(size=n),
            "w": rng.integers(0, 3, n).astype(float),
        }
    )


def write_parts(folder, table, sizes, row_group=None):
    """Write consecutive rows into part.0.parquet, part.1.parquet, …"""
    start = 0
    for i, size in enumerate(sizes):
        pq.write_table(table[start : start + size], folder / f"part.{i}.parquet", row_group_size=row_group)
        start += size


def in_memory(table, **options):
    y, w = (table[name].to_numpy() for name in "yw")
    return ArraySource(table.select(INPUTS), table.select(["level"]), y[:, None], w, **options)


def on_disk(path, **options):
    data = scan_parquet(path)
    return FileSource(data[INPUTS], data["level"], data["y"], data["w"], **options)


def plain(table):
    """Rows as lists, whatever the encoding of the text."""
    return table.to_pydict()


class Total:
    """Weighted sums of all numbers, a tiny stand-in for moments."""

    def __init__(self):
        self.total = np.zeros(7)

    def add(self, chunk: Chunk):
        numbers = [c for c in frames.columns(chunk.x) if c.kind != "categorical"]
        columns = [np.nan_to_num(c.floats()) for c in numbers] + [chunk.y[:, 0]]
        lengths = [len(text or "") for text in chunk.s["level"].to_pylist()]
        self.total += chunk.weight @ np.column_stack([*columns, lengths])

    def result(self):
        return self.total


def guarded(function, seconds=20.0):
    """Return the exception that `function` raises; fail if it hangs or leaves a thread behind."""
    caught = []

    def run():
        try:
            function()
        except Exception as error:
            caught.append(error)

    before = set(threading.enumerate())
    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(seconds)
    assert not thread.is_alive(), "hangs"
    assert set(threading.enumerate()) <= before, "leaves a thread behind"
    return caught[0]


def curved(n, seed=0):
    """Inputs that carry three numbers s, and two targets that bend: (X, s, y)."""
    rng = np.random.default_rng(seed)
    s = rng.normal(size=(n, 3))
    X = rng.normal(size=(n, 4))
    X[:, :3] += s
    noise = 0.3 * rng.normal(size=(n, 2))
    y = np.c_[np.sin(X[:, 0] * X[:, 1]) + X[:, 2], X[:, 3] ** 2 + s[:, 0]] + noise + 2.0
    return X, s, y


def repeats(n, seed=5):
    """Weights, a quarter of them 0."""
    return np.random.default_rng(seed).integers(0, 4, size=n) * 0.7


class Seen(tuple):
    """Chunks in the order of arrival; `+` concatenates, so that a sum out of order shows."""

    def __add__(self, other):
        return Seen(tuple(self) + tuple(other))
