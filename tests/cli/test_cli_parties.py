"""Two folders are two parties: one holds the pay, the other the sex of the same people."""

import json

import numpy as np
import pytest

import scalefair
from tests.cli_tools import people, refuse, succeed

SMALL = ["--components", 30, "--weight", "w", "--target", "pay"]
S = ["--sensitive", "sex"]


def proxied():
    """People with an input that tells of the sex."""
    rows = people(600)
    noise = np.random.default_rng(1).normal(0, 8, 600).round(1)
    return rows.assign(height=170 + 12 * (rows["sex"] == "m") + noise)


@pytest.fixture(scope="module")
def houses(tmp_path_factory):
    a, b = (tmp_path_factory.mktemp(name) for name in "ab")
    rows = proxied()
    rows.drop(columns="sex").to_csv(a / "rows.csv", index=False)
    rows.drop(columns="pay").to_csv(b / "rows.csv", index=False)
    rows.to_csv(a.parent / "joint.csv", index=False)
    begin(a, b, "--unfairness", 0.05)
    return a, b


def begin(a, b, *own, name=""):
    """A sends maps, B answers with moments."""
    maps = b / f"maps{name}"
    start = ["moments", a / "rows.csv", "--cross", *SMALL, *own, "--start", maps, "--out", a / f"a{name}.moments"]
    assert "moments of" in succeed(*start)
    succeed("moments", b / "rows.csv", "--cross", "--like", maps, *S, "--out", a / f"b{name}.moments")
    return ["fit", "--from-moments", a / f"a{name}.moments", "--cross", a / f"b{name}.moments", "--like", maps]


def joint(houses, **options):
    """The model of one table, and its inputs."""
    rows = scalefair.scan_csv(houses[0].parent / "joint.csv")
    X = rows.drop(["id", "w", "pay", "sex"])
    model = scalefair.FairKernelRidgeCV(n_components=30, random_state=0, **options)
    return model.fit(X, rows["pay"], sensitive_features=rows[["sex"]], sample_weight=rows["w"]), X


def test_both_sides_run_commands_and_get_the_joint_model(houses):
    a, b = houses
    solve = ["fit", "--from-moments", a / "a.moments", "--cross", a / "b.moments", "--like", b / "maps"]
    record = json.loads(succeed(*solve, "--target", "pay", "--out", a / "model", "--json"))
    assert (record["target"], record["rows"], record["limit"]) == ("pay", 600, 0.05)
    expected, X = joint(houses, unfairness=0.05)
    assert expected.eta_ > 0
    np.testing.assert_allclose(scalefair.load(a / "model").predict(X), expected.predict(X), rtol=1e-10)
    assert "predictions for 600 rows" in succeed("predict", a / "model", a / "rows.csv", "--out", a / "p.csv")
    assert b"pay" not in (b / "maps").read_bytes()


def test_a_certificate_takes_candidates_there_and_shares_back(houses):
    a, b = houses
    solve = begin(a, b, "--unfairness", 0.2, "--confidence", 0.9, name="2")
    line = refuse(*solve, "--out", a / "none")
    assert "--candidates" in line
    assert "--shares" in line
    asked = b / "candidates"
    succeed(*solve, "--candidates", asked)
    judge = ["moments", b / "rows.csv", "--cross", "--like", b / "maps2", *S, "--judge", asked]
    assert "shares" in succeed(*judge, "--out", a / "shares")
    assert "certified with confidence 0.9" in succeed(*solve, "--shares", a / "shares", "--out", a / "model2")
    expected, X = joint(houses, unfairness=0.2, confidence=0.9)
    found = scalefair.load(a / "model2")
    np.testing.assert_allclose(found.predict(X), expected.predict(X), rtol=1e-10)
    assert abs(found.certificate_.upper_bound - expected.certificate_.upper_bound) < 1e-10
    other = begin(a, b, "--unfairness", 0.2, "--confidence", 0.9, "--seed", 2, name="3")
    line = refuse(*other, "--shares", a / "shares", "--out", a / "none")
    assert "--judge" in line
    assert "PartyMaps" not in line


def test_other_maps_and_other_rows_are_refused(houses):
    a, b = houses
    solve = begin(a, b, "--unfairness", 0.1, "--seed", 1, name="4")
    line = refuse(*solve[:4], a / "b.moments", *solve[5:], "--out", a / "none4")
    assert "different maps" in line
    assert "b.moments" in line
    proxied().drop(columns="pay")[::-1].to_csv(b / "reversed.csv", index=False)
    own = ["--cross", "--like", b / "maps", *S, "--out", a / "c.moments"]
    succeed("moments", b / "reversed.csv", *own)
    files = ["--from-moments", a / "a.moments", "--cross", a / "c.moments", "--like", b / "maps"]
    assert "same rows" in refuse("fit", *files, "--out", a / "none4")
    assert not (a / "none4").exists()


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (["moments", "rows.csv", "--cross", *SMALL, *S, "--start", "m"], "--sensitive"),
        (["moments", "rows.csv", "--cross", *SMALL, "--model", "trees", "--start", "m"], "--model"),
        (["moments", "rows.csv", "--cross", *SMALL], "--like"),
        (["moments", "rows.csv", "--judge", "rows.csv", *SMALL], "--cross"),
        (["fit", "rows.csv", *SMALL, *S, "--shares", "rows.csv"], "--cross"),
        (["fit", "rows.csv", *SMALL, *S, "--cross", "rows.csv"], "--from-moments"),
        (["fit", "--from-moments", "b.moments", "--cross", "b.moments", "--like", "a.moments"], "PartyMoments"),
    ],
)
def test_what_does_not_go_together(houses, monkeypatch, arguments, word):
    monkeypatch.chdir(houses[0])
    assert word in refuse(*arguments)
