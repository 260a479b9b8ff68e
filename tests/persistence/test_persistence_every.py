"""Every estimator through every kind of file: the same bits on the other side."""

from __future__ import annotations

import pickle
import subprocess
import sys
from io import BytesIO

import numpy as np
import pytest
from sklearn.base import BaseEstimator
from sklearn.ensemble import RandomForestRegressor

import scalefair
from scalefair import FairKernelRidge, Moments, estimators, maps, persistence
from scalefair.data.columns import table_statistics
from scalefair.data.encoding import SensitiveEncoder, TableEncoder
from scalefair.errors import UnsavableError
from tests.errors import refused
from tests.models import MODELS, answers, fitted, groups, pay, rows, same_answers, target

every_model = pytest.mark.parametrize("name", MODELS)


@every_model
def test_save_and_load(name, tmp_path):
    model = fitted(name)
    scalefair.save(model, tmp_path / "m")
    back = scalefair.load(tmp_path / "m")
    same_answers(name, model, back)
    assert repr(back) == repr(model)
    scalefair.save(back, tmp_path / "again")
    same_answers(name, model, scalefair.load(tmp_path / "again"))


def test_every_estimator_is_among_the_models():
    known = {type(model) for model in MODELS.values()}
    public = {getattr(estimators, name) for name in estimators.__all__}
    assert {cls for cls in public if issubclass(cls, BaseEstimator)} <= known


def test_every_public_class_can_be_named_in_a_file():
    savable = set(persistence.CLASSES.values())
    public = {getattr(maps, name) for name in maps.__all__}
    assert public <= savable


def by_joblib(model):
    joblib = pytest.importorskip("joblib")
    file = BytesIO()
    joblib.dump(model, file)
    file.seek(0)
    return joblib.load(file)


def by_cloudpickle(model):
    return pickle.loads(pytest.importorskip("cloudpickle").dumps(model))


def by_skops(model):
    skops = pytest.importorskip("skops.io")
    if "path_" in vars(model):
        model.path_.front()  # what was looked at does not stand in the way
    content = skops.dumps(model)
    strange = set(skops.get_untrusted_types(data=content)) - set(persistence.skops_types())
    # What is left is not scalefair's own, and must be looked at by the user.
    assert not [name for name in strange if name.startswith("scalefair")], strange
    return skops.loads(content, trusted=[*persistence.skops_types(), *strange])


WAYS = {
    "pickle": lambda model: pickle.loads(pickle.dumps(model)),
    "joblib": by_joblib,
    "cloudpickle": by_cloudpickle,
    "skops": by_skops,
}


@every_model
@pytest.mark.parametrize("way", WAYS)
def test_other_formats(name, way):
    same_answers(name, fitted(name), WAYS[way](fitted(name)))


@pytest.mark.processes
def test_other_processes_say_the_same_bits(tmp_path):
    for name in MODELS:
        scalefair.save(fitted(name), tmp_path / name)
        np.savez(tmp_path / f"{name}.npz", **answers(name, fitted(name)))
    code = """
import sys, numpy as np, scalefair
from tests.models import MODELS, answers
for name in MODELS:
    said = answers(name, scalefair.load(f"{sys.argv[1]}/{name}"))
    kept = np.load(f"{sys.argv[1]}/{name}.npz")
    assert all(np.array_equal(said[way], kept[way]) for way in said), name
"""
    done = subprocess.run([sys.executable, "-c", code, tmp_path], capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode()


@pytest.mark.parametrize("name", ["nystroem", "cv", "seen"])
def test_a_path_comes_back(name, tmp_path):
    path = fitted(name).path()
    scalefair.save(path, tmp_path / "p")
    back = scalefair.load(tmp_path / "p")
    assert back.table.equals(path.table)
    one, other = (each.at(alpha=1e-3, eta=1.0).predict(rows(name)) for each in (path, back))
    np.testing.assert_array_equal(one, other)


def test_a_path_of_losses_comes_back(tmp_path):
    own = {"sensitive_features": groups()}
    path = fitted("classes").path(rows("classes"), target("classes"), [0.0, 1.0], **own)
    scalefair.save(path, tmp_path / "p")
    assert scalefair.load(tmp_path / "p").table.equals(path.table)


def test_moments_come_back_either_way(tmp_path):
    moments = fitted("nystroem").moments_
    scalefair.save(moments, tmp_path / "m")
    moments.save(tmp_path / "n")
    for back in (scalefair.load(tmp_path / "m"), Moments.load(tmp_path / "n")):
        np.testing.assert_array_equal(back.scatter, moments.scatter)
        assert (back.blocks, back.weight, back.key) == (moments.blocks, moments.weight, moments.key)


def test_encoders_and_their_statistics_come_back(tmp_path):
    X = pay().data
    half = table_statistics(X[:60])
    scalefair.save(half, tmp_path / "half")
    summed = scalefair.load(tmp_path / "half") + table_statistics(X[60:])
    for encoder in (TableEncoder().finish(summed), SensitiveEncoder().fit(X)):
        scalefair.save(encoder, tmp_path / "e")
        again = scalefair.load(tmp_path / "e").transform(X)
        np.testing.assert_array_equal(again, encoder.transform(X))
    assert TableEncoder().fit(X).columns_[5] == TableEncoder().finish(summed).columns_[5]


def test_a_model_of_another_library_is_refused_and_goes_by_skops(tmp_path):
    pytest.importorskip("skops")
    forest = RandomForestRegressor(n_estimators=3, random_state=0)
    model = FairKernelRidge(base_estimator=forest, n_components=5, eta=1.0, random_state=0)
    X, y = rows("exact"), target("exact")
    model.fit(X, y, sensitive_features=pay().sensitive_features)
    with refused("RandomForestRegressor", error=UnsavableError) as caught:
        scalefair.save(model, tmp_path / "m")
    assert caught.value.where == "base_estimator_.model"
    assert not (tmp_path / "m").exists()
    np.testing.assert_array_equal(by_skops(model).predict(X), model.predict(X))


def test_what_is_shared_is_stored_once(tmp_path):
    """A path holds a copy of its estimator, which holds the same arrays."""
    model = fitted("cv")
    scalefair.save(model, tmp_path / "m")
    back = scalefair.load(tmp_path / "m")
    assert np.shares_memory(back.path_._estimator.coef_, back.coef_)
    assert back.path_._estimator.moments_ is back.moments_


def test_only_whole_objects_are_files(tmp_path):
    for value in (5, {"a": 1}, [fitted("linear")], print):
        with refused(type(value).__name__, error=UnsavableError) as caught:
            scalefair.save(value, tmp_path / "m")
        assert caught.value.where == type(value).__name__
