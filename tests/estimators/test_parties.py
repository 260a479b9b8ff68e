"""One party holds x and y, another x and s: together they fit and certify the model of all."""

from __future__ import annotations

from dataclasses import fields

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.model_selection import KFold

import scalefair
from scalefair import FairKernelClassifier, FairKernelRidge, FairKernelRidgeCV, FairRidge, PartyMaps, _files
from scalefair.datasets import make_biased_income
from tests.containers import CONTAINERS, contained
from tests.errors import refused

SMALL = {"n_components": 30, "random_state": 0}
MODELS = {
    "linear": FairRidge(unfairness=0.05, random_state=0),
    "kernel": FairKernelRidge(unfairness=0.05, **SMALL),
    "folds": FairKernelRidgeCV(unfairness=0.05, **SMALL),
    "split": FairKernelRidgeCV(unfairness=0.3, confidence=0.9, **SMALL),
    "cross": FairKernelRidgeCV(unfairness=0.3, confidence=0.9, guarantee="cross", **SMALL),
}


@pytest.fixture(scope="module")
def pay():
    """Inputs without the attributes, targets, attributes (categories and a number), weights."""
    made = make_biased_income(1_200, random_state=0)
    s = made.sensitive_features
    X = made.data.drop(columns=list(s.columns), errors="ignore")
    return X, np.asarray(made.target), s, np.random.default_rng(0).integers(1, 3, len(X))


def sent(thing, path):
    """Return what arrives of a file."""
    scalefair.save(thing, path)
    return scalefair.load(path)


def exchange(model, X, y, s, folder, weight=None):
    """Return the model that two parties fit by files alone."""
    maps, ours = PartyMaps.fit(model, X, y, sample_weight=weight)
    at_b = sent(maps, folder / "maps.scalefair")
    of_b = {"sensitive_features": s, "sample_weight": weight}
    theirs = sent(at_b.moments(X, **of_b), folder / "b.moments")
    if model.get_params().get("confidence") is None:
        return maps.solve(ours, theirs)
    asked = sent(maps.candidates(ours, theirs), folder / "candidates.scalefair")
    judgement = sent(at_b.judge(asked, X, **of_b), folder / "shares.scalefair")
    return maps.solve(ours, theirs, judgement)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("name", MODELS)
def test_two_parties_fit_what_one_table_fits(pay, tmp_path, name, weighted):
    X, y, s, weight = pay
    weight = weight if weighted else None
    joint = clone(MODELS[name]).fit(X, y, sensitive_features=s, sample_weight=weight)
    found = exchange(MODELS[name], X, y, s, tmp_path, weight)
    np.testing.assert_allclose(found.predict(X), joint.predict(X), rtol=1e-10)
    np.testing.assert_allclose(found.explained_share_, joint.explained_share_, rtol=1e-8)
    if isinstance(joint, FairKernelRidgeCV):
        np.testing.assert_allclose(found.explained_share_cv_, joint.explained_share_cv_, rtol=1e-8)
    if joint.get_params().get("confidence") is not None:
        for field in fields(joint.certificate_):
            ours, theirs = (getattr(model.certificate_, field.name) for model in (found, joint))
            if isinstance(ours, float):
                np.testing.assert_allclose(ours, theirs, rtol=1e-8)
            elif field.name not in ("date", "model", "moments"):
                assert ours == theirs
    assert sent(found, tmp_path / "model.scalefair").predict(X).tolist() == found.predict(X).tolist()


@pytest.mark.parametrize("container", CONTAINERS)
def test_in_every_container(container, tmp_path):
    frame = pd.DataFrame(np.random.default_rng(0).normal(size=(400, 4)), columns=list("abcs"))
    frame["y"], inputs = frame["a"] + 2 * frame["b"] + frame["s"], list("abc")
    X, model = frame[inputs], MODELS["folds"]
    expected = clone(model).fit(X, frame["y"], sensitive_features=frame["s"]).predict(X)
    of_a = contained(container, frame, tmp_path, X=inputs, y="y")
    of_b = contained(container, frame, tmp_path, X=inputs, sensitive_features="s")
    maps, ours = PartyMaps.fit(model, *of_a)
    found = maps.solve(ours, maps.moments(of_b[0], sensitive_features=of_b[1])).predict(X)
    np.testing.assert_allclose(found, expected, rtol=1e-8)


def test_what_travels_knows_nothing_of_y(pay, tmp_path):
    """Maps and moments of the other party are the same whatever y is."""
    X, y, s, _ = pay
    files = []
    for target in (y, np.random.default_rng(1).permutation(y) ** 2):
        maps, _ = PartyMaps.fit(MODELS["folds"], X, target)
        for thing in (maps, maps.moments(X, sensitive_features=s)):
            scalefair.save(thing, tmp_path / "sent")
            arrays, values = _files.read(tmp_path / "sent", "model")
            files.append(({name: array.tobytes() for name, array in arrays.items()}, values))
    assert files[:2] == files[2:]


def test_nobody_knows_the_covariance_of_y_and_s(pay, tmp_path):
    X, y, s, _ = pay
    moments = exchange(MODELS["kernel"], X, y, s, tmp_path).moments_
    assert np.isnan(moments.covariance("psi", "y")).all()
    assert np.isfinite(moments.covariance(("phi",), ("phi", "psi", "y"))).all()


def test_other_maps_rows_and_candidates_are_refused(pay):
    X, y, s, _ = pay
    maps, ours = PartyMaps.fit(MODELS["split"], X, y)
    theirs = maps.moments(X, sensitive_features=s)
    other = PartyMaps.fit(clone(MODELS["split"]).set_params(length_scale=2.0), X, y)[0]
    with refused("different maps", "phi"):
        maps.solve(ours, other.moments(X, sensitive_features=s))
    with refused("same rows", "order"):
        maps.solve(ours, maps.moments(X[::-1], sensitive_features=s[::-1]))
    with refused("'psi'", "y"):
        maps.solve(theirs, ours)
    asked = maps.candidates(ours, theirs)
    with refused("candidates", "phi"):
        other.judge(asked, X, sensitive_features=s)
    with refused("confidence", "candidates", "judge"):
        maps.solve(ours, theirs)
    wrong = maps.judge(asked, X, sensitive_features=s)
    tighter, ours = PartyMaps.fit(clone(MODELS["split"]).set_params(unfairness=0.01), X, y)
    with refused("candidates"):
        tighter.solve(ours, theirs, wrong)


@pytest.mark.parametrize(
    ("model", "word"),
    [
        (FairKernelClassifier(unfairness=0.1), "FairKernelClassifier"),
        (FairKernelRidge(unfairness=0.1, feature_map="exact"), "exact"),
        (FairKernelRidge(unfairness=0.1, base_estimator="trees"), "base_estimator"),
        (FairKernelRidge(unfairness=0.1, sensitive_columns=[0], hide_sensitive=True), "columns"),
        (FairKernelRidgeCV(unfairness=0.1, cv=KFold(3)), "cv"),
    ],
)
def test_models_that_need_one_table_are_refused(pay, model, word):
    with refused(word):
        PartyMaps.fit(model, pay[0], pay[1])
