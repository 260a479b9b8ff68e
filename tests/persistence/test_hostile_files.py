"""Files made to do harm: refused with a ValueError, before they cost memory or time."""

from __future__ import annotations

import contextlib
import hashlib
import json
import resource
import struct
import subprocess
import sys
import time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import scalefair
from scalefair import Moments, _files, persistence
from tests.errors import refused
from tests.fuzz import cases
from tests.models import fitted

LIMIT = 2**21  # kB


def refused_cheaply(path, *words):
    before, start = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.perf_counter()
    for read in (scalefair.load, Moments.load):
        with refused(path, error=ValueError):
            read(path)
    with refused(path, *words, error=ValueError):
        scalefair.load(path)
    assert time.perf_counter() - start < 20
    # Parsing text at the limit takes a few hundred MB, and nothing takes more.
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < LIMIT // 4


def raw_file(path, header, body=b""):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + body)


def signed_file(path, values, body=b"", **entries):
    """A file with any text in the place of its JSON, and the right sum."""
    metadata = {
        "format": "scalefair",
        "schema": str(_files.SCHEMA),
        "kind": "model",
        "values": values,
        "sha256": "0" * 64,
    }
    text = json.dumps({"__metadata__": metadata, **entries}, separators=(",", ":")).encode()
    content = struct.pack("<Q", len(text)) + text + body
    digest = hashlib.sha256(content).hexdigest().encode()
    path.write_bytes(content.replace(b"0" * 64, digest, 1))


def model_file(path, root, objects=(), arrays=None):
    _files.write(path, "model", arrays or {}, {"root": root, "objects": list(objects)})


@pytest.mark.parametrize("length", [0, 7, 2**25 + 1, 2**40, 2**63, 2**64 - 1])
def test_a_header_longer_than_the_file_or_the_limit(tmp_path, length):
    (tmp_path / "m").write_bytes(struct.pack("<Q", length) + b"{}")
    refused_cheaply(tmp_path / "m")


SHAPES = [[2**40], [2**62, 4], [2**63, 2], [-1], [0, 2**63], ["a"], [1.0], [True], 1]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("dtype", ["F64", "BF16", "F8_E4M3", "C64", "nothing", ["F64"]])
def test_arrays_that_promise_more_than_there_is(tmp_path, shape, dtype):
    for offsets in ([0, 8], [0, 2**60], [2**60, 2**61], [8, 0]):
        entry = {"dtype": dtype, "shape": shape, "data_offsets": offsets}
        signed_file(tmp_path / "m", "{}", bytes(8), a=entry)
        refused_cheaply(tmp_path / "m", "damaged")


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ([0, 16], [8, 24]),  # they overlap
        ([0, 16], [0, 16]),  # they are the same
        ([0, 16], [24, 40]),  # something hides between them
        ([8, 24], [24, 40]),  # or before
        ([0, 16], [16, 32]),  # or behind
        ([0, 16], [16, 48]),  # the second ends elsewhere than its shape says
        ([0, 16], [-16, 0]),
        ([0, 16], [16.0, "32"]),
        ([0, 16], [16]),
        ([0, 16], None),
    ],
)
def test_arrays_that_are_not_side_by_side(tmp_path, a, b):
    one, other = ({"dtype": "F64", "shape": [2], "data_offsets": at} for at in (a, b))
    signed_file(tmp_path / "m", "{}", bytes(40), a=one, b=other)
    refused_cheaply(tmp_path / "m", "damaged")


@pytest.mark.parametrize(
    "text",
    [
        "[" * 10**6,
        "[" * 50_000 + "]" * 50_000,
        '{"a":' * 50_000,
        "[" + "[]," * 10**6 + "[]]",
        "1" * 10**6,
        "[" + "0," * 10**6 + "0]",
        "\ud800",
        "null",
        "NaN",
        '{"root": NaN, "objects": []}',
        '{"root": {"object": 1e400}, "objects": []}',
        '{"root": {"object": 0}, "objects": {"0": {}}}',
        '{"root": {"object": 0}}',
    ],
    ids=lambda text: text[:12],
)
def test_hostile_json(tmp_path, text):
    signed_file(tmp_path / "m", text)
    refused_cheaply(tmp_path / "m")


@pytest.mark.parametrize("text", [b"[" * 100_000, b'{"a":' * 50_000, b"[" + b"[]," * 10**6])
def test_hostile_headers(tmp_path, text):
    raw_file(tmp_path / "m", text)
    refused_cheaply(tmp_path / "m")


def test_what_is_written_can_be_read(tmp_path):
    """The limits of reading are those of writing: brackets of both kinds count."""
    for values in ([{}] * 10**6, [[]] * 10**6, ["x" * 2**20] * 32):
        with refused(_files.LARGEST_HEADER, _files.MOST_LISTS, error=ValueError):
            _files.write(tmp_path / "m", "model", {}, values)
    assert not list(tmp_path.iterdir())


def test_keys_that_collide(tmp_path):
    """Multiples of 2⁶¹ − 1 have the same hash: a dict of n of them takes n² steps."""
    pairs = [[i * (2**61 - 1), 0] for i in range(persistence.MAX_OTHER_KEYS + 1)]
    states = [{"class": "OneHot", "state": {"a_": {"dict": pairs}}}]
    model_file(tmp_path / "m", {"object": 0}, states)
    refused_cheaply(tmp_path / "m", persistence.MAX_OTHER_KEYS)


def test_objects_that_hold_themselves(tmp_path):
    for first, second in ((0, 0), (1, 0)):
        objects = [{"class": "Scaled", "state": {"kernel": {"object": i}}} for i in (first, second)]
        model_file(tmp_path / "m", {"object": 0}, objects)
        refused_cheaply(tmp_path / "m", "RecursionError")


def test_a_type_as_long_as_a_file(tmp_path):
    """numpy parses "i1,i1,…" to a type with as many fields, slowly."""
    text = {"text": [], "shape": [0], "dtype": "i1," * 10**6}
    model_file(tmp_path / "m", {"object": 0}, [{"class": "OneHot", "state": {"a_": text}}])
    refused_cheaply(tmp_path / "m", "'i1,i1")


def test_no_path_comes_from_a_file(tmp_path):
    """The next fit would write there, and remove it."""
    state = {"checkpoint": str(tmp_path / "elsewhere")}
    model_file(tmp_path / "m", {"object": 0}, [{"class": "FairRidge", "state": state}])
    refused_cheaply(tmp_path / "m", "'checkpoint'")


def test_objects_within_objects(tmp_path):
    chain = [{"class": "Scaled", "state": {"kernel": {"object": i + 1}}} for i in range(20_000)]
    model_file(tmp_path / "m", {"object": 0}, chain)
    refused_cheaply(tmp_path / "m")


def test_text_that_would_fill_the_memory(tmp_path):
    """An array of text is as wide as its longest entry."""
    long = {"text": ["x"] * 50_000 + ["y" * 100_000], "shape": [50_001], "dtype": "<U1"}
    model_file(tmp_path / "m", {"object": 0}, [{"class": "OneHot", "state": {"categories_": long}}])
    refused_cheaply(tmp_path / "m", persistence.MAX_TEXT_BYTES)
    wide = {"text": ["x"], "shape": [1], "dtype": "<U500000000"}
    model_file(tmp_path / "n", {"object": 0}, [{"class": "OneHot", "state": {"categories_": wide}}])
    assert scalefair.load(tmp_path / "n").categories_.nbytes == 4


@pytest.mark.parametrize("name", ["__class__", "__dict__", "transform", "n_features_out", "codes", "a b_", "", "__x"])
def test_attributes_that_are_no_data(tmp_path, name):
    """`codes` among them: estimators ask a map whether it has them, and add where they say."""
    state = {"class": "Nystroem", "state": {name: {"number": "<i8"}}}
    model_file(tmp_path / "m", {"object": 0}, [state])
    refused_cheaply(tmp_path / "m", name)


@pytest.mark.parametrize(
    "root", [5, None, [], {"list": []}, {"object": -1}, {"object": "0"}, {"object": 0.5}, {"array": "0"}]
)
def test_roots_that_are_no_objects(tmp_path, root):
    model_file(tmp_path / "m", root, [{"class": "Identity", "state": {}}] * 2)
    refused_cheaply(tmp_path / "m")


@pytest.mark.parametrize("dtype", ["<f8", "O", "V1000000000", "<M8[ns]", "|S5", "nonsense"])
def test_types_that_are_no_text(tmp_path, dtype):
    text = {"text": ["a"], "shape": [1], "dtype": dtype}
    state = {"class": "OneHot", "state": {"categories_": text, "n": {"number": dtype}}}
    model_file(tmp_path / "m", {"object": 0}, [state])
    refused_cheaply(tmp_path / "m")


def test_maps_whose_arrays_do_not_fit(tmp_path):
    """Compiled loops over them check no bounds."""
    for change in ({"n_raw_": 4}, {"n_raw_": 10**12}, {"n_features_in_": 9}):
        model = fitted("fourier")
        scalefair.save(model.phi_, tmp_path / "good")
        phi = scalefair.load(tmp_path / "good")
        vars(phi).update(change)
        scalefair.save(phi, tmp_path / "m")
        refused_cheaply(tmp_path / "m", type(phi).__name__)
    phi = scalefair.load(tmp_path / "good")
    phi.phase_ = np.zeros(1)
    scalefair.save(phi, tmp_path / "m")
    refused_cheaply(tmp_path / "m", type(phi).__name__)


@pytest.fixture(scope="module")
def content(tmp_path_factory):
    path = tmp_path_factory.mktemp("good") / "m"
    scalefair.save(fitted("classes"), path)
    return path.read_bytes()


@cases(400)
@given(where=st.floats(0, 1, exclude_max=True), flip=st.integers(1, 255), early=st.booleans())
def test_any_flipped_bits_are_noticed(tmp_path_factory, content, where, flip, early):
    changed = bytearray(content)
    header = int.from_bytes(content[:8], "little")
    changed[int(where * (header + 8 if early else len(content)))] ^= flip
    path = tmp_path_factory.getbasetemp() / "flipped"
    path.write_bytes(changed)
    with pytest.raises((ValueError, OSError)):
        scalefair.load(path)


@cases(150)
@given(part=st.floats(0, 1, exclude_max=True), more=st.binary(max_size=9))
def test_any_cut_is_noticed(tmp_path_factory, content, part, more):
    path = tmp_path_factory.getbasetemp() / "cut"
    for changed in (content[: int(part * len(content))] + more, content + more + b"\0"):
        path.write_bytes(changed)
        with pytest.raises((ValueError, OSError)):
            scalefair.load(path)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from(
                [
                    "array",
                    "fortran",
                    "scalar",
                    "list",
                    "tuple",
                    "dict",
                    "object",
                    "number",
                    "text",
                    "shape",
                    "dtype",
                    "class",
                    "state",
                    "root",
                ]
            ),
            inner,
            max_size=3,
        )
    ),
    max_leaves=12,
)
STATES = st.dictionaries(
    st.sampled_from(
        [
            "kernel",
            "phi_",
            "n_raw_",
            "linear_",
            "landmarks_",
            "frequencies_",
            "blocks",
            "coef_",
            "weight",
            "_preparation",
            "classes_",
            "moments_",
        ]
    ),
    JSON,
    max_size=4,
)
OBJECTS = st.fixed_dictionaries({"class": st.sampled_from(sorted(persistence.CLASSES)), "state": STATES | JSON})


@cases(100)
@given(root=st.just({"object": 0}) | JSON, objects=st.lists(OBJECTS, max_size=3) | JSON)
def test_any_json_is_read_or_refused(tmp_path_factory, root, objects):
    path = tmp_path_factory.getbasetemp() / "json"
    values = {"root": root, "objects": objects}
    _files.write(path, "model", {"0": np.zeros((2, 2)), "1": np.zeros(0)}, values)
    with contextlib.suppress(ValueError):
        scalefair.load(path)


@cases(200)
@given(st.binary(max_size=200))
def test_any_bytes_are_refused(tmp_path_factory, content):
    path = tmp_path_factory.getbasetemp() / "bytes"
    for changed in (content, struct.pack("<Q", len(content)) + content):
        path.write_bytes(changed)
        refused_cheaply(path)


@pytest.mark.processes
def test_little_memory_is_enough_to_refuse(tmp_path):
    """Under a limit of 2 GB of address space: no allocation follows what a header says."""
    entry = {"dtype": "F64", "shape": [2**33], "data_offsets": [0, 2**36]}
    raw_file(tmp_path / "m", {"__metadata__": {"format": "scalefair"}, "a": entry})
    code = """
import resource, sys
from scalefair import _files
resource.setrlimit(resource.RLIMIT_AS, (2**31, 2**31))
try:
    _files.read(sys.argv[1], "model")
except ValueError:
    sys.exit(0)
sys.exit(1)
"""
    done = subprocess.run([sys.executable, "-c", code, tmp_path / "m"], check=False)
    assert done.returncode == 0
