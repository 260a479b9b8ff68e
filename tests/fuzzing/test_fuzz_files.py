"""Data files cut, flipped and made up: rows, a ValueError or an OSError; never a crash or hang."""

from __future__ import annotations

import gzip
import resource
import subprocess
import sys
import time

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scalefair import FairRidge, scan_csv, scan_parquet
from tests.fuzz import cases

# Of damaged numbers that are read as text users are told.
pytestmark = pytest.mark.filterwarnings("ignore:.*read as text because of:UserWarning")

MEMORY = 2**19  # kB that reading a file of some kB may take


def table(n=40):
    rng = np.random.default_rng(0)
    return pa.table(
        {
            "a": rng.normal(size=n),
            "b": pa.array(rng.integers(0, 9, n)).cast(pa.float64()),
            "g": np.array(["x", "y", "z"])[rng.integers(0, 3, n)],
            "y": rng.normal(size=n),
        }
    )


def read(scan):
    """Open a file and fit on it, or say why not; in bounded time and memory."""
    start, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    try:
        data = scan()
        model = FairRidge(eta=1.0, random_state=0)
        model.fit(data[["a", "b"]], data[["y"]], sensitive_features=data[["g"]])
        assert np.isfinite(model.coef_).all()
        found = "read"
    except (ValueError, OSError):
        found = "refused"
    assert time.perf_counter() - start < 20
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < MEMORY
    return found


@pytest.fixture(scope="module")
def contents(tmp_path_factory):
    folder = tmp_path_factory.mktemp("good")
    made = {}
    for codec in ("none", "snappy", "zstd"):
        pq.write_table(table(), folder / "t.parquet", compression=codec, row_group_size=15)
        made[f"{codec}.parquet"] = (folder / "t.parquet").read_bytes()
    pyarrow.csv.write_csv(table(), folder / "t.csv")
    made["plain.csv"] = (folder / "t.csv").read_bytes()
    made["packed.csv.gz"] = gzip.compress(made["plain.csv"])
    return made


def scanned(folder, name, content):
    path = folder / f"t{name[name.index('.') :]}"
    path.write_bytes(content)
    return read(lambda: (scan_parquet if ".parquet" in name else scan_csv)(path))


NAMES = st.sampled_from(["none.parquet", "snappy.parquet", "zstd.parquet", "plain.csv", "packed.csv.gz"])


def test_whole_files_are_read(tmp_path, contents):
    for name, content in contents.items():
        assert scanned(tmp_path, name, content) == "read", name


@cases(75)
@given(
    NAMES,
    st.lists(st.tuples(st.floats(0, 1, exclude_max=True), st.integers(1, 255)), min_size=1, max_size=3),
    st.booleans(),
)
def test_flipped_bits(tmp_path_factory, contents, name, flips, late):
    content = bytearray(contents[name])
    for where, flip in flips:
        # The end of a parquet file says where everything is: worth more visits.
        start = len(content) // 2 if late else 0
        content[start + int(where * (len(content) - start))] ^= flip
    scanned(tmp_path_factory.getbasetemp(), name, bytes(content))


@cases(40)
@given(NAMES, st.floats(0, 1, exclude_max=True), st.floats(0, 1), st.binary(max_size=20))
def test_cut_and_joined(tmp_path_factory, contents, name, start, stop, more):
    content = contents[name]
    first, last = sorted((int(start * len(content)), int(stop * len(content))))
    for changed in (content[:last], content[:first] + more + content[last:], content + more):
        scanned(tmp_path_factory.getbasetemp(), name, changed)


CELLS = st.one_of(
    st.floats().map(str),
    st.integers().map(str),
    st.text(max_size=6),
    st.sampled_from(["", "NA", "nan", "1e999", "-inf", '"', '""', "\x00", "1,2", "\r", "é"]),
)


@cases(125)
@given(
    st.lists(st.lists(CELLS, min_size=0, max_size=6), max_size=12),
    st.booleans(),
    st.sampled_from(["utf-8", "utf-16", "latin-1"]),
)
def test_made_up_csv(tmp_path_factory, lines, header, encoding):
    rows = [["a", "b", "g", "y"], *lines] if header else lines
    content = "\n".join(",".join(row) for row in rows).encode(encoding, "replace")
    scanned(tmp_path_factory.getbasetemp(), "made.csv", content)


@cases(30)
@given(NAMES, st.binary(max_size=300))
def test_made_up_bytes(tmp_path_factory, name, content):
    for changed in (content, b"PAR1" + content + b"PAR1", b"\x1f\x8b\x08" + content):
        scanned(tmp_path_factory.getbasetemp(), name, changed)


def test_lengths_that_lie(tmp_path, contents):
    """The footer of a parquet file is as long as its last eight bytes say."""
    content = bytearray(contents["none.parquet"])
    for length in (0, 1, 2**31 - 1, 2**32 - 1):
        content[-8:-4] = length.to_bytes(4, "little")
        assert scanned(tmp_path, "none.parquet", bytes(content)) == "refused"


@pytest.mark.processes
def test_a_bomb_does_not_fill_the_memory(tmp_path):
    """A gigabyte of commas packed into a megabyte, under a limit of 3 GB of address space."""
    with gzip.open(tmp_path / "t.csv.gz", "wb", compresslevel=1) as file:
        file.write(b"a,b,g,y\n")
        for _ in range(200):
            file.write(b"1" * 2**22)
    code = """
import resource, sys
from scalefair import FairRidge, scan_csv
resource.setrlimit(resource.RLIMIT_AS, (3 * 2**30, 3 * 2**30))
try:
    data = scan_csv(sys.argv[1])
    FairRidge().fit(data[["a", "b"]], data[["y"]], sensitive_features=data[["g"]])
except (ValueError, OSError):
    sys.exit(0)
sys.exit(1)
"""
    done = subprocess.run(
        [sys.executable, "-c", code, tmp_path / "t.csv.gz"], check=False, timeout=60, capture_output=True
    )
    assert done.returncode == 0, done.stderr[-500:]
