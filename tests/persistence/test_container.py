"""The one-file container: what is written comes back, and nothing else does."""

from __future__ import annotations

import json
import os

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.numpy import load_file, save

from scalefair import Moments, _files
from tests.errors import refused


@pytest.fixture
def moments():
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(20, 4))
    scatter = np.cov(rows.T) * 19
    return Moments({"phi": 2, "psi": 1, "y": 1}, 20, 20.5, rows[0], rows.mean(0), scatter, "key")


def test_moments_come_back_to_the_bit(moments, tmp_path):
    moments.save(tmp_path / "a.moments")
    back = Moments.load(tmp_path / "a.moments")
    assert (back.blocks, back.n_rows, back.weight, back.key) == (moments.blocks, 20, 20.5, "key")
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
    with refused(tmp_path / "m", "'99'", "update", error=ValueError):
        Moments.load(tmp_path / "m")


def test_another_kind_is_refused(tmp_path):
    _files.write(tmp_path / "m", "model", {"a": np.zeros(1)}, {})
    with refused(tmp_path / "m", "'model'", "'moments'", error=ValueError):
        Moments.load(tmp_path / "m")


def test_arrays_that_do_not_fit_the_blocks_are_refused(tmp_path):
    values = {"blocks": [["phi", 2]], "n_rows": 1, "weight": 1.0, "key": ""}
    arrays = {"shift": np.zeros(2), "offset": np.zeros(2), "scatter": np.zeros((3, 3))}
    _files.write(tmp_path / "m", "moments", arrays, values)
    with refused(tmp_path / "m", {"phi": 2}, (3, 3), error=ValueError):
        Moments.load(tmp_path / "m")


def test_a_failed_write_leaves_the_old_file_and_nothing_else(moments, tmp_path, monkeypatch):
    path = tmp_path / "m"
    moments.save(path)
    before = path.read_bytes()
    monkeypatch.setattr(os, "fsync", lambda _: (_ for _ in ()).throw(OSError("disk full")))
    with refused("disk full", error=OSError):
        Moments.empty({"y": 1}).save(path)
    assert path.read_bytes() == before
    assert os.listdir(tmp_path) == ["m"]


def test_other_readers_of_safetensors_find_the_same_arrays(moments, tmp_path):
    moments.save(tmp_path / "m")
    found, (ours, _) = load_file(tmp_path / "m"), _files.read(tmp_path / "m", "moments")
    assert found.keys() == ours.keys() == {"shift", "offset", "scatter"}
    for name, array in found.items():
        np.testing.assert_array_equal(ours[name], array, strict=True)


@pytest.mark.parametrize("dtype", ["?", "u1", "i1", "u2", "i2", "u4", "i4", "u8", "i8", "f2", "f4", "f8"])
def test_arrays_of_every_type_and_shape(dtype, tmp_path):
    shapes = [(), (0,), (1,), (3, 0), (2, 3), (2, 1, 2)]
    arrays = {str(shape): np.ones(shape, dtype) for shape in shapes}
    _files.write(tmp_path / "m", "model", arrays, None)
    found, _ = _files.read(tmp_path / "m", "model")
    for name, array in arrays.items():
        np.testing.assert_array_equal(found[name], array, strict=True)
        assert found[name].flags.writeable


def meanwhile(monkeypatch, act):
    """Act once a file has been opened and its header read."""
    metadata = _files._metadata
    monkeypatch.setattr(_files, "_metadata", lambda *args: act() or metadata(*args))


def test_a_file_that_is_replaced_while_it_is_read(moments, tmp_path, monkeypatch):
    """A service loads the model that a job writes again and again."""
    moments.save(tmp_path / "m")
    meanwhile(monkeypatch, lambda: Moments.empty({"y": 1}).save(tmp_path / "m"))
    np.testing.assert_array_equal(Moments.load(tmp_path / "m").scatter, moments.scatter)
    monkeypatch.undo()
    assert Moments.load(tmp_path / "m").n_rows == 0


def test_a_file_that_is_cut_while_it_is_read(moments, tmp_path, monkeypatch):
    """Not a bus error, which a file mapped into memory would give."""
    _files.write(tmp_path / "m", "moments", {"a": np.ones(10**6)}, None)
    meanwhile(monkeypatch, lambda: os.truncate(tmp_path / "m", 10_000))
    with refused(tmp_path / "m", "damaged", error=ValueError):
        Moments.load(tmp_path / "m")


@pytest.mark.skipif(os.name != "posix", reason="permissions")
def test_permissions_are_kept(moments, tmp_path):
    """A model may hold rows of the training data, and its file be closed to others."""
    moments.save(tmp_path / "m")
    os.chmod(tmp_path / "m", 0o600)
    moments.save(tmp_path / "m")
    assert (tmp_path / "m").stat().st_mode & 0o777 == 0o600


@pytest.mark.skipif(os.name != "posix", reason="links")
def test_a_link_is_replaced_and_not_followed(moments, tmp_path):
    (tmp_path / "other").write_bytes(b"of somebody")
    (tmp_path / "m").symlink_to(tmp_path / "other")
    moments.save(tmp_path / "m")
    assert not (tmp_path / "m").is_symlink()
    assert (tmp_path / "other").read_bytes() == b"of somebody"


@pytest.mark.skipif(os.name != "posix", reason="folders that can be opened")
def test_file_and_folder_are_synced(moments, tmp_path, monkeypatch):
    synced, sync = [], os.fsync

    def watched(handle):
        synced.append((os.path.isdir(handle), os.listdir(tmp_path)[0]))
        sync(handle)

    monkeypatch.setattr(os, "fsync", watched)
    moments.save(tmp_path / "m")
    (first, part), (second, name) = synced
    assert (first, second, name) == (False, True, "m")
    assert part.endswith(".part")


def test_a_missing_file_is_an_os_error(tmp_path):
    with pytest.raises(FileNotFoundError):
        Moments.load(tmp_path / "none")
