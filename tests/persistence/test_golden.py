"""Files that earlier versions wrote are read, and say what they said then."""

from __future__ import annotations

import json

import numpy as np
import pytest

import scalefair
from scalefair import FairPath, Moments, _files, persistence
from scalefair.data.encoding import TableEncoder
from tests.errors import refused
from tests.golden.write import FOLDER, KEPT, LOSSES, OTHERS
from tests.models import answers, numbers, pay

SCHEMAS = sorted(FOLDER.glob("schema*"))
READ = [folder for folder in SCHEMAS if int(folder.name[6:]) >= _files.OLDEST["model"]]
"""Schemas whose models are read; moments are of all."""

MODELS = [path for folder in READ for path in sorted(folder.glob("*.scalefair"))]


def test_the_current_schema_has_golden_files():
    assert [folder.name for folder in SCHEMAS] == [f"schema{i + 1}" for i in range(_files.SCHEMA)]


def test_every_class_is_in_a_golden_file():
    """But the map of leaves, whose trees are another library's."""
    files = (FOLDER / f"schema{_files.SCHEMA}").glob("*.scalefair")
    kept = [_files.read(path, "model")[1]["objects"] for path in files]
    named = {entry["class"] for objects in kept for entry in objects}
    assert set(persistence.CLASSES) - named == {"LeafMap"}


@pytest.mark.parametrize("path", MODELS, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_models(path):
    model = scalefair.load(path)
    kept = json.loads((path.parent / "answers.json").read_text()).get(path.stem, {})
    said = answers(path.stem, model) if kept else {}
    assert said.keys() == kept.keys()
    for way, value in said.items():
        if value.dtype.kind == "f":  # other machines add in another order
            np.testing.assert_allclose(value[:KEPT], kept[way], rtol=1e-9, atol=1e-12)
        else:
            assert value[:KEPT].tolist() == kept[way]


@pytest.mark.parametrize("folder", [folder for folder in SCHEMAS if folder not in READ], ids=str)
def test_models_that_are_too_old_are_refused_by_their_schema(folder):
    with refused(folder, f"schema {folder.name[6:]}", "fit", error=ValueError):
        scalefair.load(folder / "nystroem.scalefair")


@pytest.mark.parametrize("folder", SCHEMAS, ids=lambda folder: folder.name)
def test_moments(folder):
    moments = Moments.load(folder / "nystroem.moments")
    assert moments.n_rows == len(pay().data)
    assert (moments + moments).weight == 2 * moments.weight


@pytest.mark.parametrize("folder", READ, ids=lambda folder: folder.name)
def test_other_objects(folder):
    path = scalefair.load(folder / "path.scalefair")
    assert isinstance(path, FairPath)
    assert path.table.shape == (3, 6)
    encoder = scalefair.load(folder / "encoding.scalefair")
    assert isinstance(encoder, TableEncoder)
    np.testing.assert_allclose(encoder.transform(pay().data), TableEncoder().fit_transform(pay().data), rtol=1e-12)
    summed = scalefair.load(folder / "statistics.scalefair")
    np.testing.assert_allclose(TableEncoder().finish(summed).transform(pay().data), encoder.transform(pay().data))
    assert scalefair.load(folder / "loss_path.scalefair").etas.tolist() == [0.0, 1.0]
    moments = Moments.load(folder / "nystroem.moments")
    model = scalefair.load(folder / "nystroem.scalefair")
    np.testing.assert_array_equal(moments.scatter, model.moments_.scatter)


@pytest.mark.parametrize("folder", READ, ids=lambda folder: folder.name)
def test_maps_kernels_and_losses(folder):
    X, made = numbers(), {name: make() for name, make in OTHERS.items() if "path" not in name}
    kernel = scalefair.load(folder / "fair_kernel.scalefair")
    np.testing.assert_allclose(kernel(X), made["fair_kernel"](X), rtol=1e-7)
    transformer = scalefair.load(folder / "transformer.scalefair")
    np.testing.assert_allclose(transformer.transform(X), made["transformer"].transform(X), atol=1e-9)
    for name, loss in LOSSES.items():
        assert repr(scalefair.load(folder / f"{name}.scalefair")) == repr(loss)


def test_the_files_are_small():
    assert sum(path.stat().st_size for path in FOLDER.rglob("*")) < 1_000_000
