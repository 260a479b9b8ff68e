"""The one-file container: what is written comes back, and nothing else does."""

from __future__ import annotations

import json
import os

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.numpy import save

from scalefair import Moments, _files


@pytest.fixture
def moments():
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(20, 4))
    scatter = np.cov(rows.T) * 19
    return Moments({"phi": 2, "psi": 1, "y": 1}, 20, 20.5, rows[0], rows.mean(0), scatter, "key")


def test_moments_come_back_to_the_bit(moments, tmp_path):
    moments.save(tmp_path / "a.moments")
    back = Moments.load(tmp_path / "a.moments")
    assert (back.blocks, back.n_rows, back.weight, back.key) == (
        moments.blocks, 20, 20.5, "key",
    )  # fmt: skip
    for name in ("shift", "offset", "scatter"):
        np.testing.assert_array_equal(getattr(back, name), getattr(moments, name))


def test_order_of_blocks_is_kept(tmp_path):
    empty = Moments.empty({"y": 1, "phi": 2, "a": 3})
    empty.save(tmp_path / "m")
    assert list(Moments.load(tmp_path / "m").blocks) == ["y", "phi", "a"]


@settings(max_examples=60, deadline=None)
@given(where=st.floats(0, 1, exclude_max=True), flip=st.integers(1, 255))
def test_any_changed_byte_is_noticed(tmp_path_factory, where, flip):
    folder = tmp_path_factory.mktemp("bytes")
    Moments.empty({"phi": 3, "y": 1}).save(folder / "m")
    content = bytearray((folder / "m").read_bytes())
    content[int(where * len(content))] ^= flip
    (folder / "m").write_bytes(content)
    with pytest.raises((ValueError, OSError)):
        Moments.load(folder / "m")


@settings(max_examples=40, deadline=None)
@given(part=st.floats(0, 1, exclude_max=True))
def test_a_truncated_file_is_noticed(tmp_path_factory, part):
    folder = tmp_path_factory.mktemp("cut")
    Moments.empty({"phi": 3, "y": 1}).save(folder / "m")
    content = (folder / "m").read_bytes()
    (folder / "m").write_bytes(content[: int(part * len(content))])
    with pytest.raises((ValueError, OSError)):
        Moments.load(folder / "m")


def test_a_later_schema_is_refused(tmp_path):
    text = json.dumps({})
    metadata = {"format": "scalefair", "schema": "99", "kind": "moments", "values": text}
    (tmp_path / "m").write_bytes(save({"a": np.zeros(1)}, metadata=metadata))
    with pytest.raises(ValueError, match=r"schema '99'.*update scalefair"):
        Moments.load(tmp_path / "m")


def test_another_kind_is_refused(tmp_path):
    _files.write(tmp_path / "m", "model", {"a": np.zeros(1)}, {})
    with pytest.raises(ValueError, match="holds 'model', expected 'moments'"):
        Moments.load(tmp_path / "m")


def test_arrays_that_do_not_fit_the_blocks_are_refused(tmp_path):
    values = {"blocks": [["phi", 2]], "n_rows": 1, "weight": 1.0, "key": ""}
    arrays = {"shift": np.zeros(2), "offset": np.zeros(2), "scatter": np.zeros((3, 3))}
    _files.write(tmp_path / "m", "moments", arrays, values)
    with pytest.raises(ValueError, match="do not fit"):
        Moments.load(tmp_path / "m")


def test_a_failed_write_leaves_the_old_file_and_nothing_else(moments, tmp_path, monkeypatch):
    path = tmp_path / "m"
    moments.save(path)
    before = path.read_bytes()
    monkeypatch.setattr(os, "fsync", lambda _: (_ for _ in ()).throw(OSError("disk full")))
    with pytest.raises(OSError, match="disk full"):
        Moments.empty({"y": 1}).save(path)
    assert path.read_bytes() == before
    assert os.listdir(tmp_path) == ["m"]


def test_a_missing_file_is_an_os_error(tmp_path):
    with pytest.raises(FileNotFoundError):
        Moments.load(tmp_path / "none")
