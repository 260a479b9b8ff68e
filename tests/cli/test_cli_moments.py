"""moments, merge and fit --from-moments: parts that never meet give the model of all rows."""

import json

import numpy as np
import pandas as pd
import pytest

import scalefair
from tests.cli_tools import people, refuse, succeed

PAY = ["--target", "pay", "--sensitive", "sex", "--drop", "id,w"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("moments")
    for name, seed in (("a", 0), ("b", 1)):
        people(300, seed).to_csv(path / f"{name}.csv", index=False)
    own = [*PAY, "--map", "fourier", "--components", 30, "--eta", 3, "--alpha", 1e-2]
    start = ["--start", path / "start.scalefair", "--out", path / "a.moments"]
    succeed("moments", path / "a.csv", *own, *start)
    like = ["--like", path / "start.scalefair"]
    succeed("moments", path / "b.csv", *like, "--out", path / "b.moments")
    parts = [path / "a.moments", path / "b.moments"]
    (path / "merge.json").write_text(succeed("merge", *parts, "--out", path / "all.moments", "--json"))
    return path


def inputs(folder, name):
    scan = scalefair.scan_csv(folder / f"{name}.csv")
    return scan, scan.drop(["id", "w", "pay"])


def test_merged_parts_give_the_model_of_all_rows(folder):
    out = folder / "all.scalefair"
    like = ["--like", folder / "start.scalefair", "--out", out]
    words = succeed("fit", "--from-moments", folder / "all.moments", *like)
    assert "600 rows" in words
    expected = scalefair.load(folder / "start.scalefair")
    scan, X = inputs(folder, "b")
    expected.partial_fit(X, scan["pay"])
    found = scalefair.load(out)
    assert found.n_samples_seen_ == 600
    np.testing.assert_allclose(found.predict(X), expected.predict(X), rtol=1e-9)
    record = json.loads((folder / "merge.json").read_text())
    assert (record["rows"], record["weight"]) == (600, 600.0)


def test_other_settings_follow_from_the_same_moments(folder):
    out = folder / "u.scalefair"
    own = ["--like", folder / "start.scalefair", "--out", out, "--unfairness", 0.02, "--json"]
    record = json.loads(succeed("fit", "--from-moments", folder / "all.moments", *own))
    assert record["limit"] == 0.02
    assert record["explained_share"] <= 0.02 + 1e-6
    assert record["alpha"] == 1e-2
    assert scalefair.load(out).unfairness == 0.02


def test_a_cross_validated_model_can_start(folder):
    own = [*PAY, "--components", 20, "--out", folder / "cv.scalefair"]
    succeed("fit", folder / "a.csv", *own)
    like = ["--like", folder / "cv.scalefair"]
    for name in "ab":
        succeed("moments", folder / f"{name}.csv", *like, "--out", folder / f"cv_{name}.moments")
    parts = [folder / f"cv_{name}.moments" for name in "ab"]
    succeed("merge", *parts, "--out", folder / "cv.moments")
    out = folder / "cv_all.scalefair"
    succeed("fit", "--from-moments", folder / "cv.moments", *like, "--out", out)
    first, last = scalefair.load(folder / "cv.scalefair"), scalefair.load(out)
    assert last.alpha["phi"] == first.alpha_
    assert last.n_samples_seen_ == 600
    assert last.explained_share_ <= 0.05 + 1e-6


def test_parts_of_other_maps_are_refused_and_named(folder):
    own = [*PAY, "--map", "fourier", "--components", 30, "--eta", 3, "--alpha", 1e-2, "--seed", 1]
    start = ["--start", folder / "other.scalefair", "--out", folder / "other.moments"]
    succeed("moments", folder / "a.csv", *own, *start)
    out = folder / "none.moments"
    line = refuse("merge", folder / "a.moments", folder / "other.moments", "--out", out)
    assert "other.moments" in line
    assert "phi differ" in line
    assert not out.exists()
    like = ["--like", folder / "start.scalefair", "--out", folder / "none.scalefair"]
    assert "phi differ" in refuse("fit", "--from-moments", folder / "other.moments", *like)


def test_what_cannot_be_summed_is_refused(folder):
    like, out = ["--like", folder / "start.scalefair"], ["--out", folder / "n.moments"]
    assert "give --like" in refuse("moments", folder / "a.csv", *out)
    assert "given twice" in refuse("merge", folder / "a.moments", folder / "a.moments", *out)
    assert "holds 'model'" in refuse("merge", folder / "start.scalefair", *out)
    assert "go together" in refuse("fit", "--from-moments", folder / "a.moments", *out)
    people(300).drop(columns="job").to_csv(folder / "lacks.csv", index=False)
    assert "column 'job' is not in" in refuse("moments", folder / "lacks.csv", *like, *out)
    table = people(300).assign(pay=np.resize(["no", "yes"], 300))
    table.to_csv(folder / "classes.csv", index=False)
    classes = folder / "classes.scalefair"
    succeed("fit", folder / "classes.csv", *PAY, "--components", 10, "--out", classes)
    line = refuse("moments", folder / "classes.csv", "--like", classes, *out)
    assert "--kind regression" in line
    assert not (folder / "n.moments").exists()


def test_moments_hold_no_rows(folder):
    """Nothing of the file grows with the rows, and none of its numbers is one of the table's."""
    moments = scalefair.Moments.load(folder / "b.moments")
    assert moments.scatter.shape == (30 + 2 + 1,) * 2
    pay = pd.read_csv(folder / "b.csv")["pay"].to_numpy()
    numbers = np.concatenate([moments.shift + moments.offset, moments.scatter.ravel()])
    assert not np.isclose(numbers[:, None], pay, rtol=1e-12, atol=0).any()


def test_another_party_sums_up_inputs_and_sensitive_columns(tmp_path):
    """One folder holds the pay, the other the sex of the same people."""
    rows = people(400, 0).drop(columns=["id"])
    a, b = houses = [tmp_path / "a", tmp_path / "b"]
    for house, absent in zip(houses, ("sex", "pay"), strict=True):
        house.mkdir()
        rows.drop(columns=absent).to_csv(house / "rows.csv", index=False)
    scan = scalefair.scan_csv(a / "rows.csv")
    X = scan.drop(["w", "pay"])
    joint = scalefair.FairKernelRidgeCV(n_components=30, unfairness=0.1, random_state=0)
    maps, ours = scalefair.PartyMaps.fit(joint, X, scan["pay"], sample_weight=scan["w"])
    scalefair.save(maps, b / "maps")
    own = ["--sensitive", "sex", "--weight", "w", "--out", a / "b.moments"]
    assert "400 rows" in succeed("moments", b / "rows.csv", "--cross", "--like", b / "maps", *own)
    found = maps.solve(ours, scalefair.load(a / "b.moments"))
    joint.fit(X, scan["pay"], sensitive_features=rows[["sex"]], sample_weight=scan["w"])
    np.testing.assert_allclose(found.predict(X), joint.predict(X), rtol=1e-10)
    scalefair.save(joint, a / "model.scalefair")
    line = refuse("moments", b / "rows.csv", "--cross", "--like", a / "model.scalefair", *own)
    assert "FairKernelRidgeCV" in line
    assert "PartyMaps" in line
