"""csv files as people have them: other marks, an index, a stray word, no ending, no file at all."""

import io
import re
import subprocess
import sys
import warnings

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

import scalefair
from scalefair.cli import main
from scalefair.errors import CsvOptionError, InputError
from tests.cli_tools import ENV, call, people, refuse, succeed
from tests.errors import refused

FIT = ["--target", "pay", "--sensitive", "sex", "--model", "linear", "--quiet"]


@pytest.fixture
def table():
    return people(120).drop(columns=["id", "hired", "w"])


def fitted(path, *options, **runner):
    out = path.with_suffix(".scalefair") if path.name != "-" else path.parent / "m.scalefair"
    arguments = ["fit", str(path), *FIT, "--out", str(out), *options]
    result = CliRunner().invoke(main, arguments, **runner)
    assert result.exit_code == 0, result.output
    return scalefair.load(out)


def notes(path, *options):
    """What a fit notes of a table."""
    arguments = [x for x in FIT if x != "--quiet"]
    result = call("fit", path, *arguments, *options, "--out", path.with_suffix(".scalefair"))
    assert result.exit_code == 0, result.output
    return result.stderr


@pytest.mark.parametrize("name", ["t.csv", "t.tsv", "t.tsv.gz", "table", "table.txt"])
def test_the_ending_is_not_needed(table, tmp_path, name):
    """A model of the same table is the same, whatever the file is called."""
    table.to_parquet(tmp_path / "t.parquet")
    table.to_csv(tmp_path / name, index=False, sep="\t" if ".tsv" in name else ",")
    expected = fitted(tmp_path / "t.parquet")
    np.testing.assert_allclose(fitted(tmp_path / name).coef_, expected.coef_, rtol=1e-7)


def test_standard_input(table, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    table.to_csv("t.csv", index=False)
    expected = fitted(tmp_path / "t.csv")
    for content in ((tmp_path / "t.csv").read_bytes(), table.to_parquet()):
        result = CliRunner().invoke(main, ["fit", "-", *FIT, "--out", "m"], input=content)
        assert result.exit_code == 0, result.output
        np.testing.assert_allclose(scalefair.load("m").coef_, expected.coef_, rtol=1e-7)


def test_decimal_commas_are_named_and_read(table, tmp_path):
    table.to_csv(tmp_path / "a.csv", index=False)
    path = tmp_path / "b.csv"
    table.to_csv(path, index=False, sep=";", decimal=",")
    assert "give --delimiter ';'" in refuse("fit", path, *FIT)
    assert "give --decimal ','" in refuse("fit", path, *FIT, "--delimiter", ";")
    model = fitted(path, "--delimiter", ";", "--decimal", ",")
    np.testing.assert_allclose(model.coef_, fitted(tmp_path / "a.csv").coef_, rtol=1e-7)
    with refused("'hours'", "decimal=','", error=CsvOptionError) as caught:
        scalefair.scan_csv(path, delimiter=";")
    assert (caught.value.option, caught.value.value) == ("decimal", ",")
    with refused("decimal='.'", error=CsvOptionError):
        scalefair.scan_csv(tmp_path / "a.csv", decimal=",")
    assert scalefair.scan_csv(path, delimiter=";", column_types=dict.fromkeys(table, "string")).kinds


def test_text_that_is_not_utf_8(table, tmp_path):
    table = table.assign(job="Käse" + table["sex"])
    table.to_csv(tmp_path / "a.csv", index=False)
    expected = fitted(tmp_path / "a.csv")
    for encoding in ("latin-1", "utf-16"):
        path = tmp_path / f"{encoding}.csv"
        table.to_csv(path, index=False, encoding=encoding)
        assert f"give --encoding '{encoding}'" in refuse("fit", path, *FIT)
        model = fitted(path, "--encoding", encoding)
        np.testing.assert_allclose(model.coef_, expected.coef_, rtol=1e-7)
        scan = scalefair.scan_csv(path, encoding=encoding)
        pieces = scan.files.pieces(10, 500)
        assert (len(pieces) > 1) == (encoding == "latin-1")
        parts = [scan.files.read_piece(scan.columns, piece).to_pandas() for piece in pieces]
        assert pd.concat(parts)["job"].tolist() == table["job"].tolist()
    with refused("'klingon'", error=InputError):
        scalefair.scan_csv(path, encoding="klingon")


def test_one_odd_cell_is_said_to_make_text_of_numbers(table, tmp_path):
    path = tmp_path / "odd.csv"
    odd = table.assign(age=table["age"].astype(str).where(table.index != 7, "unknown"))
    odd.to_csv(path, index=False)
    said = notes(path)
    for word in ("'age'", "119", "120", "'unknown'"):
        assert word in said
    assert "unknown" not in notes(path, "--text", "age")
    with pytest.warns(UserWarning, match="119 of 120"):
        scalefair.scan_csv(path)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        scalefair.scan_csv(path, column_types={"age": "string"})


@pytest.mark.parametrize(
    ("written", "shown"),
    [
        ("{:,.2f}", "1,0"),
        ("€{:.2f}", "€"),
        ("{:.2f} %", " %"),
        ("{:,.0f}".replace(",", "_"), None),  # no mark that anybody writes
    ],
)
def test_numbers_with_signs_or_thousands_are_said_to_be_text(table, tmp_path, written, shown):
    path = tmp_path / "t.csv"
    table.assign(age=[written.format(1000 + age) for age in table["age"]]).to_csv(path, index=False)
    said = notes(path)
    if shown is None:
        assert "plain numbers" not in said
    else:
        assert said.count("'age'") == 1
        assert f"{shown}" in said.partition("'age'")[2]
        assert "write plain numbers, as 1234.5" in said
        assert "plain numbers" not in notes(path, "--text", "age")


def test_a_mark_between_thousands_is_not_taken_for_a_decimal_mark(table, tmp_path):
    path = tmp_path / "t.csv"
    table.assign(age=[f"{1000 * age:,}" for age in table["age"]]).to_csv(path, index=False)
    first = f"{1000 * table['age'][0]}"
    said = refuse("fit", path, *FIT)
    assert f"give --decimal ',', or write {first} if it separates thousands" in said
    with refused("decimal=','", f"or write {first}", error=CsvOptionError):
        scalefair.scan_csv(path)
    table.to_csv(path, index=False, sep=";", decimal=",")
    assert "separates" not in refuse("fit", path, *FIT, "--delimiter", ";")


@pytest.mark.parametrize("name", ["", "Unnamed: 0"])
def test_an_index_without_a_name_is_left_out(table, tmp_path, name):
    path = tmp_path / "t.csv"
    table.to_csv(path, index_label=name)
    assert "left out" in notes(path)
    with pytest.warns(UserWarning, match=re.escape(repr(name))):
        scan = scalefair.scan_csv(path)
    assert scan.columns == list(table)
    model = path.with_suffix(".scalefair")
    assert list(scalefair.load(model).feature_names_in_) == list(table)[:-1]
    predicted = call("predict", model, path, "--out", tmp_path / "p.csv")  # which opens the csv twice
    assert (predicted.exit_code, predicted.stderr.count("left out")) == (0, 1)


@pytest.mark.filterwarnings("ignore:The number of unique classes")
def test_one_row_and_as_many_classes_as_rows(table, tmp_path):
    path = tmp_path / "t.csv"
    table[:1].to_csv(path, index=False)
    assert "one row" in refuse("fit", path, *FIT)
    table.assign(pay=[f"p{i}" for i in range(120)]).to_csv(path, index=False)
    message = refuse("fit", path, *FIT)
    assert "120 classes" in message
    with refused("y", 120, error=ValueError):
        scalefair.FairKernelClassifier(eta=0).fit(table[["age"]], [f"p{i}" for i in range(120)])
    data = scalefair.scan_csv(path)
    with refused("y", 120, error=ValueError):
        scalefair.FairKernelClassifier(eta=0).fit(data[["age"]], data["pay"])


def test_a_target_that_is_the_same_number_in_every_row_is_no_class(table, tmp_path):
    table.assign(pay=3.5).to_csv(tmp_path / "t.csv", index=False)
    message = refuse("fit", tmp_path / "t.csv", *FIT)
    assert "--target: column 'pay' is 3.5 in every row" in message
    assert "class" not in message


@pytest.mark.filterwarnings("ignore:The number of unique classes", "ignore:.*cells in the first rows")
@pytest.mark.parametrize("decimals", [1, 5])
def test_one_odd_cell_does_not_make_classes_of_a_numeric_target(table, tmp_path, decimals):
    """Neither where numbers repeat nor where nearly every row has its own."""
    y = table["pay"].round(decimals).astype(str).where(table.index != 7, "unknown")
    path = tmp_path / "t.csv"
    table.assign(pay=y).to_csv(path, index=False)
    assert "'unknown'" in refuse("fit", path, *FIT)
    with refused("y", "'unknown'", error=ValueError):
        scalefair.FairKernelClassifier(eta=0).fit(table[["age"]], y)


def test_a_spreadsheet_is_told_how_to_become_a_table(tmp_path):
    for name, head in (("t.xlsx", b"PK\x03\x04"), ("t.xls", b"\xd0\xcf\x11\xe0"), ("t", b"PK\x03\x04")):
        (tmp_path / name).write_bytes(head + bytes(99))
        message = refuse("fit", tmp_path / name, *FIT)
        assert "csv" in message
        assert "read_excel" in message
    (tmp_path / "binary").write_bytes(bytes(99))
    assert "neither parquet nor text" in refuse("fit", tmp_path / "binary", *FIT)


def test_limits_as_percentages(table, tmp_path):
    table.to_csv(tmp_path / "t.csv", index=False)
    assert fitted(tmp_path / "t.csv", "--unfairness", "5%").unfairness == 0.05
    for wrong in ("5", "101%", "-1%"):
        message = refuse("fit", tmp_path / "t.csv", *FIT, "--unfairness", wrong)
        assert f"{wrong} is not between 0 and 1" in message


HEAVY = ("sklearn", "scipy.stats", "numba", "pandas", "matplotlib", "dask", "distributed")


@pytest.mark.processes
@pytest.mark.parametrize(
    "command",
    [
        "--help",
        "-h",
        "-V",
        "fit t.csv --target nope --sensitive sex",
        "frontier t.csv --target pay",
        "fit t.csv --target pay --sensitive sex --unfairness 7",
        "audit t.csv --sensitive nope",
        "predict nowhere t.csv",
        "explain t.csv --sensitive nope",
        "fit t.xlsx --target a",
    ],
)
def test_a_wrong_header_or_option_is_known_before_anything_heavy_is_loaded(table, tmp_path, command):
    table.to_csv(tmp_path / "t.csv", index=False)
    (tmp_path / "t.xlsx").write_bytes(b"PK\x03\x04")
    code = (
        "import sys\nfrom scalefair.cli import main\ntry:\n    main()\nexcept SystemExit: pass\n"
        f"print('LOADED', [name for name in {HEAVY} if name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, *command.split()],
        env=ENV,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert done.stdout.splitlines()[-1] == "LOADED []", done.stderr


def test_formulas_in_csv_output_are_escaped_on_demand(table, tmp_path):
    """Text that a spreadsheet would run is marked as text; numbers stay numbers."""
    hostile = ["=1+1", "@sum", "+cmd", "-x", "\tt", "fine"] * 20
    table = table.assign(job=hostile)
    table.to_csv(tmp_path / "t.csv", index=False)
    fitted(tmp_path / "t.csv", "--drop", "job")
    common = ["predict", tmp_path / "t.scalefair", tmp_path / "t.csv", "--keep", "job,age"]
    plain = pd.read_csv(io.StringIO(succeed(*common, "--out", "-")))
    safe = pd.read_csv(io.StringIO(succeed(*common, "--out", "-", "--escape-formulas")))
    assert plain["job"].tolist() == hostile
    assert safe["job"].tolist() == [cell if cell == "fine" else f"'{cell}" for cell in hostile]
    pd.testing.assert_frame_equal(safe.drop(columns="job"), plain.drop(columns="job"))


def test_views_of_strings_in_parquet_are_text(table, tmp_path):
    plain = pa.Table.from_pandas(table, preserve_index=False)
    at = plain.column_names.index("sex")
    views = plain.set_column(at, "sex", plain["sex"].cast(pa.string_view()))
    for name, content in (("plain", plain), ("views", views)):
        pq.write_table(content, tmp_path / f"{name}.parquet")
    scan = scalefair.scan_parquet(tmp_path / "views.parquet")
    assert scan.kinds["sex"] == "categorical"
    models = [fitted(tmp_path / f"{name}.parquet") for name in ("plain", "views")]
    np.testing.assert_array_equal(models[0].coef_, models[1].coef_)


def test_a_gap_of_means_may_be_certified_beyond_one(tmp_path):
    """In the unit of the predictions, unlike a share."""
    people(400).to_csv(tmp_path / "t.csv", index=False)
    fitted(tmp_path / "t.csv", "--drop", "id")
    people(400, seed=1).to_csv(tmp_path / "new.csv", index=False)
    own = ["certify", tmp_path / "t.scalefair", tmp_path / "new.csv", "--sensitive", "sex"]
    assert "certified" in succeed(*own, "--limit-on", "means", "--unfairness", 200)
