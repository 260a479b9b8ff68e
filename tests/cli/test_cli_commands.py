"""fit, predict, audit and explain: from a table to a model, predictions, a judgement, a reason."""

import json
import re
from html import unescape

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest

import scalefair
from scalefair import FairKernelRidge, FairKernelRidgeCV
from tests.cli_tools import SMALL, call, people, refuse, succeed

PAY = ["--target", "pay", "--sensitive", "sex,shift"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("cli")
    table = people()
    table.to_csv(path / "pay.csv", index=False)
    table.assign(hired=pd.to_datetime(table["hired"])).to_parquet(path / "pay.parquet")
    result = call("fit", path / "pay.csv", *PAY, *SMALL, "--out", path / "m.scalefair", "--json")
    assert result.exit_code == 0, result.output
    (path / "fit.json").write_text(result.stdout)
    return path


def predictions(folder, model, data, out="p.parquet", *more):
    succeed("predict", folder / model, folder / data, "--out", folder / out, *more)
    read = pd.read_parquet if out.endswith("parquet") else pd.read_csv
    return read(folder / out)


def test_a_mixed_csv_needs_no_flags_but_target_and_sensitive(folder):
    record = json.loads((folder / "fit.json").read_text())
    assert record["kind"] == "regression"
    assert record["sensitive"] == ["sex", "shift"]
    assert record["inputs"] == ["hired", "sex", "age", "hours", "job", "shift", "w"]
    assert any("'id'" in note and "left out" in note for note in record["notes"])
    assert record["rows"] == 400
    assert record["limit"] == 0.05
    assert record["explained_share_cv"] <= 0.05
    model = scalefair.load(folder / "m.scalefair")
    assert isinstance(model, FairKernelRidgeCV)
    truth = pd.read_csv(folder / "pay.csv")["pay"]
    path = model.path_.table
    row = path[(path["alpha"] == model.alpha_) & (path["eta"] == model.eta_)]
    assert record["r2_cv"] == pytest.approx(1 - row["mse_cv"].item() / truth.var(ddof=0))


def test_the_page_of_a_mixed_csv_says_how_to_fit_it_again(folder):
    people(400).assign(pay=lambda d: np.where(d["pay"] > 32, "much", "little")).to_csv(
        folder / "other.csv", index=False, sep=";"
    )
    options = ["--delimiter", ";", "--text", "age", "--components", 20, "--out", folder / "page"]
    succeed("frontier", folder / "other.csv", "--target", "pay", "--sensitive", "sex", *options)
    page = unescape((folder / "page" / "report.html").read_text("utf-8"))
    names = {}
    exec(re.findall(r"<code>(.*?)</code>", page, re.DOTALL)[-1], names)
    kept = scalefair.load(folder / "page" / "model.scalefair")
    assert names["est"].n_samples_seen_ == 400
    assert list(names["est"].feature_names_in_) == list(kept.feature_names_in_)
    assert {names["data"].kinds[name] for name in ("age", "job", "sex")} == {"categorical"}


def test_predictions_are_those_of_the_model_in_python(folder):
    model = scalefair.load(folder / "m.scalefair")
    scan = scalefair.scan_csv(folder / "pay.csv")
    expected = model.predict(scan[list(model.feature_names_in_)])
    for data in ("pay.csv", "pay.parquet"):
        for out in ("p.parquet", "p.csv", "p.csv.gz"):
            found = predictions(folder, "m.scalefair", data, out)
            assert list(found) == ["prediction"]
            np.testing.assert_allclose(found["prediction"], expected, rtol=1e-12)


def test_the_size_of_chunks_does_not_matter(folder, monkeypatch):
    whole = predictions(folder, "m.scalefair", "pay.parquet")
    monkeypatch.setattr("scalefair.cli.predict.ROWS", 37)
    small = predictions(folder, "m.scalefair", "pay.parquet")
    np.testing.assert_allclose(small["prediction"], whole["prediction"], rtol=1e-12)
    assert pq.ParquetFile(folder / "p.parquet").num_row_groups == 11


def test_kept_columns_come_first_and_nothing_is_overwritten(folder):
    table = pd.read_csv(folder / "pay.csv").assign(prediction=7)
    table.to_csv(folder / "taken.csv", index=False)
    found = predictions(folder, "m.scalefair", "taken.csv", "k.csv", "--keep", "id,prediction")
    assert list(found) == ["id", "prediction", "prediction_"]
    assert (found["prediction"] == 7).all()
    assert found["id"].equals(table["id"])
    assert len(list(predictions(folder, "m.scalefair", "taken.csv", "k.csv", "--keep", "all"))) == 11


def test_a_hidden_attribute_is_not_needed_to_predict(folder):
    out = folder / "hidden.scalefair"
    succeed("fit", folder / "pay.csv", *PAY, *SMALL, "--hide-sensitive", "--alpha", 1e-3, "--out", out)
    table = pd.read_csv(folder / "pay.csv").drop(columns=["sex", "shift", "pay"])
    table.to_csv(folder / "without.csv", index=False)
    found = predictions(folder, "hidden.scalefair", "without.csv")
    model = scalefair.load(out)
    assert not {"sex", "shift"} & set(model.feature_names_in_)
    assert len(found) == 400
    line = refuse("predict", folder / "m.scalefair", folder / "without.csv", "--out", folder / "no.csv")
    assert "lacks 2 column(s)" in line
    assert "'sex'" in line


def test_a_weight_of_two_is_the_row_twice(folder):
    table = pd.read_csv(folder / "pay.csv")
    table.loc[table.index.repeat(table["w"])].to_csv(folder / "twice.csv", index=False)
    own = [*PAY, "--map", "linear", "--alpha", 1e-3, "--eta", 2]
    succeed("fit", folder / "pay.csv", *own, "--weight", "w", "--drop", "id", "--out", folder / "a")
    succeed("fit", folder / "twice.csv", *own, "--drop", "id,w", "--out", folder / "b")
    a, b = (scalefair.load(folder / name) for name in "ab")
    x = scalefair.scan_csv(folder / "pay.csv")[list(a.feature_names_in_)]
    np.testing.assert_allclose(a.predict(x), b.predict(x), rtol=1e-8)


def test_options_reach_the_estimator(folder):
    out = folder / "o.scalefair"
    options = ["--map", "fourier", "--alpha", 0.01, "--eta", 3, "--seed", 5, "--components", 16]
    succeed("fit", folder / "pay.csv", *PAY, *options, "--drop", "id", "--out", out)
    model = scalefair.load(out)
    assert type(model) is FairKernelRidge
    assert (model.feature_map, model.alpha, model.eta, model.random_state) == ("fourier", 0.01, 3, 5)
    assert model.moments_.blocks["phi"] == 16
    record = json.loads(
        succeed("fit", folder / "pay.csv", *PAY, *SMALL, "--eta", 0, "--drop", "id", "--out", out, "--json")
    )
    assert (record["eta"], record["limit"]) == (0, None)
    assert record["explained_share_cv"] > 0.3


@pytest.mark.parametrize(
    ("values", "classes"),
    [
        (np.array(["no", "yes", "yes"]), ["no", "yes"]),
        (np.array([0, 1, 1]), [0, 1]),
        (np.array(["a", "b", "c"]), ["a", "b", "c"]),
        (np.array([True, False, True]), [0, 1]),
        (np.array([1.5, 2.5, 3.5]), None),
    ],
)
def test_the_kind_of_the_target_decides(folder, values, classes):
    table = people(300).assign(pay=np.resize(values, 300)).drop(columns="id")
    table.to_parquet(folder / "k.parquet")
    out, own = folder / "k.scalefair", ["--target", "pay", "--sensitive", "sex"]
    record = json.loads(succeed("fit", folder / "k.parquet", *own, *SMALL, "--alpha", 0.1, "--out", out, "--json"))
    assert record["kind"] == ("regression" if classes is None else "classification")
    assert record.get("classes") == classes
    found = predictions(folder, "k.scalefair", "k.parquet")
    names = [f"probability_{c}" for c in classes or ()]
    assert list(found) == ["prediction", *names]
    if classes:
        np.testing.assert_allclose(found[names].sum(axis=1), 1)
        likely = np.array(classes)[found[names].to_numpy().argmax(axis=1)]
        assert (found["prediction"].to_numpy() == likely).all()


def test_two_numbers_may_be_a_regression(folder):
    people(300).assign(pay=np.resize([0, 1], 300)).to_parquet(folder / "b.parquet")
    own = ["--target", "pay", "--sensitive", "sex", "--kind", "regression", "--json"]
    out = folder / "b.scalefair"
    assert json.loads(succeed("fit", folder / "b.parquet", *own, *SMALL, "--out", out))["kind"] == "regression"


@pytest.mark.parametrize("command", ["fit", "frontier"])
def test_an_input_that_no_model_can_use_is_left_out_and_named(folder, command):
    people(200).drop(columns="id").assign(gap=None).to_parquet(folder / "gap.parquet")
    own = ["--target", "pay", "--sensitive", "sex", *SMALL, "--json"]
    result = call(command, folder / "gap.parquet", *own, "--out", folder / f"gap.{command}")
    assert result.exit_code == 0, result.output
    assert "'gap'" in result.stderr
    stored = folder / "gap.fit" if command == "fit" else folder / "gap.frontier/model.scalefair"
    assert "gap" not in scalefair.load(stored).feature_names_in_
    if command == "fit":
        assert any("'gap'" in note for note in json.loads(result.stdout)["notes"])


def test_text_that_looks_like_numbers_stays_text(folder):
    """Levels are those of the fit, even where a later csv has only digits in that column."""
    table = people(300).drop(columns="id").assign(job=np.resize(["1", "2", "x"], 300))
    table.to_csv(folder / "t.csv", index=False)
    own = ["--target", "pay", "--sensitive", "sex", "--alpha", 0.1, *SMALL]
    succeed("fit", folder / "t.csv", *own, "--out", folder / "t.scalefair")
    whole = predictions(folder, "t.scalefair", "t.csv")
    digits = table["job"] != "x"
    table[digits].to_csv(folder / "digits.csv", index=False)
    found = predictions(folder, "t.scalefair", "digits.csv")
    np.testing.assert_allclose(found["prediction"], whole["prediction"][digits], rtol=1e-12)
    succeed("fit", folder / "digits.csv", *own, "--text", "job", "--out", folder / "u.scalefair")
    assert len(predictions(folder, "u.scalefair", "t.csv")) == 300


def test_folders_patterns_and_other_delimiters(folder):
    table = pd.read_csv(folder / "pay.csv")
    (folder / "parts").mkdir()
    for i in range(3):
        table[i::3].to_csv(folder / "parts" / f"{i}.csv", sep=";", index=False)
    whole = predictions(folder, "m.scalefair", "pay.csv")["prediction"].to_numpy()
    expected = np.concatenate([whole[i::3] for i in range(3)])
    for data in ("parts", "parts/*.csv"):
        found = predictions(folder, "m.scalefair", data, "f.csv", "--delimiter", ";")
        np.testing.assert_allclose(found["prediction"], expected, rtol=1e-12)


def test_an_audit_is_that_of_python(folder):
    out = folder / "judged.parquet"
    keep = ["--keep", "sex,shift,pay,w", "--out", out]
    succeed("predict", folder / "m.scalefair", folder / "pay.csv", *keep)
    own = [out, "--sensitive", "sex,shift", "--truth", "pay", "--missing", "drop"]
    record = json.loads(succeed("audit", *own, "--json"))
    scan = scalefair.scan_parquet(out)
    expected = scalefair.audit(scan[["prediction"]], sensitive_features=scan[["sex", "shift"]], y_true=scan["pay"])
    assert record["n_rows"] == 400
    assert [row["measure"] for row in record["table"]] == list(expected.table["measure"])
    np.testing.assert_allclose([row["value"] for row in record["table"]], expected.table["value"], rtol=1e-9)
    words = succeed("audit", *own, "--table")
    assert expected.summary.splitlines()[0] in words
    assert "equalized" not in words
    assert "explained_share" in words


def test_an_audit_of_classes(folder):
    table = people(300).assign(p=np.linspace(0, 1, 300), y=np.resize(["no", "yes"], 300))
    table["z"] = (table["y"] == "yes").astype(int)
    table.to_csv(folder / "c.csv", index=False)
    own = ["audit", folder / "c.csv", "--prediction", "p", "--sensitive", "sex", "--threshold", 0.5]
    as_text, as_numbers, other = (
        json.loads(succeed(*own, "--json", "--truth", truth, *more))["gaps"]
        for truth, more in (("y", ()), ("z", ()), ("y", ("--positive", "no")))
    )
    assert as_text == as_numbers != other
    assert "name the one that counts" in refuse(*own, "--truth", "y", "--positive", "maybe")
    assert "probabilities" in refuse("audit", folder / "c.csv", "--prediction", "y", "--sensitive", "sex")


def test_without_data_adult_is_used(tmp_path):
    out = tmp_path / "adult.scalefair"
    own = ["--components", 5, "--alpha", 0.1, "--kind", "classification"]
    record = json.loads(succeed("fit", *own, "--out", out, "--json"))
    assert (record["target"], record["sensitive"], record["rows"]) == ("income", ["sex", "race"], 32561)
    succeed("predict", out, "--keep", "income,sex,race", "--out", tmp_path / "p.parquet")
    found = pd.read_parquet(tmp_path / "p.parquet")
    assert len(found) == 16281
    assert (found["prediction"] == found["income"]).mean() > 0.75


def test_explain_says_what_the_library_says(folder):
    model = scalefair.load(folder / "m.scalefair")
    table = scalefair.scan_csv(folder / "pay.csv")
    given = folder / "m.scalefair", folder / "pay.csv"
    record = json.loads(succeed("explain", *given, "--json"))
    expected = scalefair.explain_share(model, table[list(model.feature_names_in_)])
    assert [row["column"] for row in record["rows"]] == list(expected["column"])
    got = [row["after"] for row in record["rows"]]
    np.testing.assert_allclose(got, expected["after"], rtol=1e-6, atol=1e-10)
    printed = succeed("explain", *given).splitlines()
    assert printed[0] == "sex × shift"
    assert printed[1].split() == ["column", "before", "before_error", "after", "after_error"]


def test_explain_without_the_attributes_among_the_inputs(folder):
    hidden = folder / "hidden.scalefair"
    succeed("fit", folder / "pay.csv", *PAY, *SMALL, "--hide-sensitive", "--out", hidden)
    record = json.loads(succeed("explain", hidden, folder / "pay.csv", "--weight", "w", "--json"))
    attributes = list(dict.fromkeys(row["attribute"] for row in record["rows"]))
    assert attributes == ["sex × shift", "sex", "shift"]
    assert all(row["after_error"] > 0 for row in record["rows"])


def test_explain_shows_the_proxies_of_a_table(folder):
    options = ["--sensitive", "sex", "--drop", "pay", "--json"]
    record = json.loads(succeed("explain", folder / "pay.parquet", *options))
    columns = [row["column"] for row in record["rows"]]
    assert columns == ["hired", "age", "hours", "job", "shift", "w", "(all columns)"]
    assert any("'id'" in note for note in record["notes"])
    with_pay = json.loads(succeed("explain", folder / "pay.csv", "--sensitive", "sex", "--json"))
    (pay,) = (row for row in with_pay["rows"] if row["column"] == "pay")
    assert pay["linear_low"] > 0.3


def test_certificates_have_exit_codes(tmp_path):
    people(1500).to_csv(tmp_path / "fit.csv", index=False)
    people(1500, seed=1).to_csv(tmp_path / "new.csv", index=False)
    model = tmp_path / "m.scalefair"
    own = ["--target", "pay", "--sensitive", "sex", *SMALL, "--model", "kernel"]
    fit = ["fit", tmp_path / "fit.csv", *own, "--confidence", 0.9, "--out", model]
    record = json.loads(succeed(*fit, "--unfairness", 0.1, "--json"))
    assert record["certificate"]["upper_bound"] <= 0.1
    assert "certified with confidence 0.9" in succeed(*fit, "--unfairness", 0.1)
    certify = ["certify", model, tmp_path / "new.csv", "--json"]
    out = tmp_path / "certificate.json"
    record = json.loads(succeed(*certify, "--unfairness", 0.3, "--out", out))
    assert record["certified"]
    assert scalefair.Certificate.from_json(out.read_text()).upper_bound == record["upper_bound"]
    failed = call(*certify, "--unfairness", 0.0001)
    assert failed.exit_code == 3
    assert json.loads(failed.stdout)["least_limit"] == pytest.approx(record["upper_bound"])
    assert call(*fit, "--unfairness", 0.0001).exit_code == 3
    for more in (["--sensitive", "gender"], ["--confidence", 1.5], ["--unfairness", 0]):
        assert call(*certify, *more).exit_code == 2
    assert "--confidence" in refuse(*fit, "--eta", 1)


def test_certificates_of_odds_and_with_controls(tmp_path):
    """The command says what `certify` says in Python."""
    table = people(3000)
    table["hired"] = np.where(table["pay"] > table["pay"].median(), "yes", "no")
    table.drop(columns="pay").to_csv(tmp_path / "t.csv", index=False)
    new = people(3000, seed=1).assign(hired=table["hired"])
    new.drop(columns="pay").to_csv(tmp_path / "new.csv", index=False)
    model = tmp_path / "m.scalefair"
    own = ["--target", "hired", "--sensitive", "sex", *SMALL, "--model", "kernel"]
    succeed("fit", tmp_path / "t.csv", *own, "--out", model)
    certify = ["certify", model, tmp_path / "new.csv", "--unfairness", 0.9, "--json"]
    loaded = scalefair.load(model)
    inputs = new.drop(columns=["pay", "hired"])[list(loaded.feature_names_in_)]
    cases = {
        "odds": (["--truth", "hired"], {"y_true": new["hired"]}),
        "decisions": (["--control", "shift"], {"control_features": new[["shift"]]}),
        "scores": (["--control", "shift"], {"control_features": new[["shift"]]}),
    }
    for limit_on, (options, given) in cases.items():
        record = json.loads(succeed(*certify, "--limit-on", limit_on, *options))
        expected = scalefair.certify(
            loaded, inputs, sensitive_features=new[["sex"]], unfairness=0.9, limit_on=limit_on, **given
        )
        assert record["upper_bound"] == pytest.approx(expected.upper_bound, rel=1e-6)
    for more in (["--limit-on", "odds"], ["--truth", "hired"], ["--control", "nothing"]):
        assert call(*certify, *more).exit_code == 2
    again = ["certify", model, tmp_path / "t.csv", "--unfairness", 0.9]
    assert "not seen" in refuse(*again, "--limit-on", "decisions")


def test_certificates_of_classes(tmp_path):
    table = people(1500)
    table.assign(pay=table["pay"] > table["pay"].median()).to_csv(tmp_path / "t.csv", index=False)
    own = ["--target", "pay", "--sensitive", "sex", *SMALL, "--model", "kernel"]
    given = ["fit", tmp_path / "t.csv", *own, "--confidence", 0.9, "--out", tmp_path / "m"]
    record = json.loads(succeed(*given, "--unfairness", "20%", "--json"))
    assert (record["kind"], record["certificate"]["confidence"]) == ("classification", 0.9)
    assert record["certificate"]["upper_bound"] <= 0.2
    assert scalefair.load(tmp_path / "m").certificate_.limit == 0.2
    assert call(*given, "--unfairness", 0.0001).exit_code == 3


def test_missing_attributes_are_answered_by_an_option(folder):
    table = people(200).assign(prediction=np.linspace(0, 1, 200))
    table.to_parquet(folder / "gaps.parquet")
    for column, words in (("job", ["--missing group", "--missing drop"]), ("hours", ["--missing"])):
        message = refuse("audit", folder / "gaps.parquet", "--sensitive", column)
        assert all(word in message for word in words)
        assert "missing='" not in message
    own = ["audit", folder / "gaps.parquet", "--sensitive", "hours", "--missing", "group"]
    assert "--missing drop" in refuse(*own)
    assert "job" in succeed(*own[:3], "job", "--missing", "group")
