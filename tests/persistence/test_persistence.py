"""Models in one file: the same predictions to the bit, and no way in."""

from __future__ import annotations

import json

import numpy as np
import pytest
from sklearn import config_context
from sklearn.base import clone

import scalefair
from scalefair import FairKernelRidge, FairKernelRidgeCV, FairRidge, _files
from scalefair.datasets import make_biased_income, make_toy1
from scalefair.errors import UnsavableError
from tests.errors import refused

MODELS = {
    "linear": FairRidge(eta=1.0, random_state=0),
    "nystroem": FairKernelRidge(n_components=40, unfairness=0.1, random_state=0),
    "fourier": FairKernelRidge(feature_map="fourier", n_components=40, eta=1.0, random_state=0),
    "matern": FairKernelRidge(kernel="matern32", n_components=40, eta=1.0, random_state=0),
    "seen": FairKernelRidge(n_components=40, eta=1.0, random_state=0, sensitive_columns=["sex", "ethnicity", "age"]),
    "cv": FairKernelRidgeCV(n_components=40, random_state=0),
}


@pytest.fixture(scope="module")
def pay():
    return make_biased_income(400, random_state=0)


def fitted(name, pay):
    model = MODELS[name]
    own = {} if model.sensitive_columns else {"sensitive_features": pay.sensitive_features}
    return model.fit(pay.data, pay.target, **own)


@pytest.mark.parametrize("name", MODELS)
def test_predictions_are_equal_to_the_bit(name, pay, tmp_path):
    model = fitted(name, pay)
    scalefair.save(model, tmp_path / "m.scalefair")
    back = scalefair.load(tmp_path / "m.scalefair")
    np.testing.assert_array_equal(back.predict(pay.data), model.predict(pay.data))
    assert repr(back) == repr(model)
    assert back.explained_share_ == model.explained_share_


def test_the_exact_model_comes_back(tmp_path):
    toy = make_toy1(60, random_state=0)
    model = FairKernelRidge(feature_map="exact", eta=1.0)
    model.fit(toy.data, toy.target, sensitive_features=toy.sensitive_features)
    scalefair.save(model, tmp_path / "m")
    back = scalefair.load(tmp_path / "m")
    np.testing.assert_array_equal(back.predict(toy.data), model.predict(toy.data))


def test_a_loaded_model_goes_on(pay, tmp_path):
    model = fitted("nystroem", pay)
    scalefair.save(model, tmp_path / "m")
    back = scalefair.load(tmp_path / "m")
    own = {"sensitive_features": pay.sensitive_features}
    for each in (model, back):
        each.partial_fit(pay.data, pay.target, **own)
    np.testing.assert_array_equal(back.coef_, model.coef_)
    assert back.path().table.equals(model.path().table)


def test_the_cross_validated_path_comes_back(pay, tmp_path):
    model = fitted("cv", pay)
    scalefair.save(model, tmp_path / "m")
    back = scalefair.load(tmp_path / "m")
    assert back.path_.table.equals(model.path_.table)
    again = back.path_.at(alpha=1e-3, eta=2.0).predict(pay.data)
    np.testing.assert_array_equal(again, model.path_.at(alpha=1e-3, eta=2.0).predict(pay.data))


def test_what_needs_pickle_is_refused_by_name(tmp_path):
    model = FairKernelRidge(random_state=np.random.RandomState(0))
    with pytest.raises(UnsavableError) as caught:
        scalefair.save(model, tmp_path / "m")
    assert caught.value.where == "FairKernelRidge.random_state"
    assert not (tmp_path / "m").exists()


@pytest.mark.parametrize(
    "root",
    [
        {"object": 0},
        {"object": 99},
        {"array": "nothing"},
        {"unheard": 1},
        {"dict": [1, 2]},
        {"text": ["a"], "shape": [1], "dtype": "<f8"},
        [],
        {},
    ],
)
def test_hostile_values_are_value_errors(root, tmp_path):
    objects = [{"class": "Popen", "state": {"args": "echo"}}]
    _files.write(tmp_path / "m", "model", {}, {"root": root, "objects": objects})
    with refused(tmp_path / "m", error=ValueError):
        scalefair.load(tmp_path / "m")


def test_the_file_holds_no_code(pay, tmp_path):
    scalefair.save(fitted("cv", pay), tmp_path / "m")
    content = (tmp_path / "m").read_bytes()
    length = int.from_bytes(content[:8], "little")
    header = json.loads(content[8 : 8 + length])
    values = json.loads(header["__metadata__"]["values"])
    assert {entry["class"] for entry in values["objects"]} <= set(scalefair.persistence.CLASSES)


def test_requests_are_left_behind(pay, tmp_path):
    """Routing belongs to the pipeline around."""
    model = clone(MODELS["linear"])
    with config_context(enable_metadata_routing=True):
        model.set_fit_request(sensitive_features=True)
    model.fit(pay.data, pay.target, sensitive_features=pay.sensitive_features)
    scalefair.save(model, tmp_path / "m")
    back = scalefair.load(tmp_path / "m")
    assert repr(back) == repr(model)
    np.testing.assert_array_equal(back.predict(pay.data), model.predict(pay.data))
    clone(back).fit(pay.data, pay.target, sensitive_features=pay.sensitive_features)


def test_numbers_come_back_as_numbers(tmp_path):
    """Not as arrays of one number, which a dict of ridges could not hold."""
    model = clone(MODELS["linear"])
    model.alpha = {"phi": np.float64(0.5), "psi": np.float32(0.25)}
    scalefair.save(model, tmp_path / "m")
    alpha = scalefair.load(tmp_path / "m").alpha
    assert alpha == {"phi": 0.5, "psi": 0.25}
    assert [type(value) for value in alpha.values()] == [np.float64, np.float32]
