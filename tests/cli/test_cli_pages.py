"""Pages that commands write: models side by side, provenance, audits of any predictions."""

import json

import numpy as np
import pandas as pd
import pytest

import scalefair
from tests.cli_tools import SMALL, refuse, succeed

FIT = ["--target", "repaid", "--sensitive", "sex,race", "--model", "kernel", *SMALL]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder, rng, n = tmp_path_factory.mktemp("pages"), np.random.default_rng(0), 1500
    sex, race = rng.choice(["f", "m"], n), rng.choice(["a", "b"], n)
    x = rng.normal(size=n) + (sex == "m")
    p = 1 / (1 + np.exp(-x))
    repaid = np.where(rng.random(n) < p, "yes", "no")
    table = pd.DataFrame({"sex": sex, "race": race, "x": x, "repaid": repaid})
    table.to_csv(folder / "loans.csv", index=False)
    table.assign(ours=p, theirs=rng.random(n)).to_csv(folder / "scores.csv", index=False)
    return folder


def test_hidden_and_visible_and_the_users_own_model_side_by_side(folder, tmp_path):
    compared = f"{folder / 'scores.csv'}:ours"
    given = ["frontier", folder / "loans.csv", *FIT, "--hide-sensitive", "--compare", compared]
    given += ["--owner", "A <b>", "--use", "loans", "--out", tmp_path / "out", "--json"]
    record = json.loads(succeed(*given))
    assert "does not see sex and race" in record["finding"]
    twin = json.loads((tmp_path / "out" / "report.json").read_text("utf-8"))
    rows = pd.DataFrame(twin["positions"])
    names = list(dict.fromkeys(rows["model"]))
    assert names[-2:] == [compared, "sensitive columns visible"]
    # The user's predictions are those of the held-out rows.
    scores = pd.read_csv(folder / "scores.csv")
    tested = scalefair.report.from_table(pd.read_csv(folder / "loans.csv"), target="repaid", sensitive=["sex"]).tested
    held = scores.iloc[tested]
    own = rows[(rows["model"] == compared) & (rows["measure"] == "mean_prediction")]
    for level in ("f", "m"):
        value = own.loc[own["group"] == level, "value"].item()
        assert value == pytest.approx(held.loc[held["sex"] == level, "ours"].mean())
    origin = twin["provenance"]
    assert (origin["Owner"], origin["Intended use"]) == ("A <b>", "loans")
    assert origin["Rows"].startswith("1,500 read, 1,200 to fit, 300 held out")
    assert origin["Hash of the data"].startswith("sha256")
    assert {"Date", "Software", "Command", "Seed"} <= {*origin}
    ratios = {(line["of"], line["attribute"]) for line in twin["impact_ratios"]}
    names = ("sex", "race", "sex × race")
    assert ratios == {(rate, a) for rate in ("Selection rate", "Scoring rate") for a in names}
    assert twin["proxies"]


def test_what_cannot_be_compared_is_refused(folder, tmp_path):
    given = ["frontier", folder / "loans.csv", *FIT, "--out", tmp_path / "out", "--compare"]
    assert "FILE:COLUMN" in refuse(*given, "ours")
    assert "'our'" in refuse(*given, f"{folder / 'scores.csv'}:our")
    assert "'sex'" in refuse(*given, f"{folder / 'scores.csv'}:sex")
    pd.read_csv(folder / "scores.csv")[:9].to_csv(tmp_path / "few.csv", index=False)
    line = refuse(*given, f"{tmp_path / 'few.csv'}:ours")
    assert "9 rows" in line
    assert "1,500" in line
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("threshold", [["--threshold", 0.5], pytest.param([], marks=pytest.mark.every)])
def test_an_audit_of_any_models_as_a_page(folder, tmp_path, threshold):
    given = ["audit", folder / "scores.csv", "--prediction", "ours,theirs", *threshold]
    given += ["--sensitive", "sex,race", "--truth", "repaid"]
    said = succeed(*given, "--html", tmp_path / "a.html", "--owner", "me")
    assert str(tmp_path / "a.html") in said
    page = (tmp_path / "a.html").read_text("utf-8")
    assert "Scoring rate" in page
    assert ("Selection rate" in page) == bool(threshold)
    assert "Calibration by group" in page
    result = json.loads(succeed(*given, "--json"))
    table = pd.read_csv(tmp_path / "a.csv", keep_default_na=False, na_values=[""])
    own = table[table["group"].isna() & table["attribute"].notna()]
    np.testing.assert_allclose(own["value"], [np.nan if r["value"] is None else r["value"] for r in result["table"]])
    twin = json.loads((tmp_path / "a.json").read_text("utf-8"))
    assert twin["table"] == result["table"]
    assert twin["provenance"]["Hash of the data"].startswith("sha256")


def test_in_every_table_of_a_page_a_weight_of_two_is_the_row_twice(folder, tmp_path):
    scores = pd.read_csv(folder / "scores.csv")
    w = np.arange(len(scores)) % 3
    scores.assign(w=w).to_csv(tmp_path / "w.csv", index=False)
    scores.loc[np.repeat(scores.index, w)].to_csv(tmp_path / "twice.csv", index=False)
    common = ["--prediction", "ours", "--sensitive", "sex,race", "--truth", "repaid", "--threshold", 0.5]
    twins = {}
    for name, weight in (("w", ["--weight", "w"]), ("twice", [])):
        succeed("audit", tmp_path / f"{name}.csv", *common, *weight, "--html", tmp_path / f"{name}-page.html")
        twins[name] = json.loads((tmp_path / f"{name}-page.json").read_text("utf-8"))
    weighted, repeated = twins["w"], twins["twice"]
    assert weighted["impact_ratios"] == [pytest.approx(line) for line in repeated["impact_ratios"]]
    for mine, line in zip(weighted["distributions"], repeated["distributions"], strict=True):
        assert mine["shares"] == pytest.approx(line["shares"])
    for mine, line in zip(weighted["calibration"], repeated["calibration"], strict=True):
        assert [mine[x] for x in ("predicted", "observed")] == pytest.approx([line["predicted"], line["observed"]])
    assert weighted["provenance"]["Weights"] == "w"
    assert "sums of weights" in (tmp_path / "w-page.html").read_text("utf-8")


def test_the_truth_changes_what_an_audit_prints(folder):
    given = ["audit", folder / "scores.csv", "--prediction", "ours", "--sensitive", "sex"]
    plain = succeed(*given)
    numbers = succeed(*given, "--truth", "repaid")
    decided = [succeed(*given, "--threshold", 0.5, *more) for more in ([], ["--truth", "repaid"])]
    assert plain in numbers
    assert "root mean squared error" in numbers.removeprefix(plain)
    assert "true positive rate" not in decided[0]
    assert "true positive rate" in decided[1]


def test_an_audit_of_numbers_without_groups_has_a_page_too(folder, tmp_path):
    given = ["audit", folder / "scores.csv", "--prediction", "ours", "--sensitive", "x"]
    succeed(*given, "--html", tmp_path / "x.html")
    page = (tmp_path / "x.html").read_text("utf-8")
    assert "Explained share of the predictions" in page
    assert "Scoring rate" not in page
