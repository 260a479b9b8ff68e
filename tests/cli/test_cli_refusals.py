"""Bad input, command by command: one line, the remedy, exit code 2, and no file left behind."""

import os
import pickle

import numpy as np
import pytest

from scalefair.cli import main
from scalefair.cli._console import remedied
from scalefair.data.labels import too_many_classes
from scalefair.errors import CLASSES_REMEDY, CellError, CsvOptionError, InputError, UselessColumnError
from tests.cli_tools import people, refuse, succeed

FIT = ["--target", "pay", "--sensitive", "sex"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("bad")
    people(200).to_csv(path / "d.csv", index=False)
    people(200).assign(prediction=np.linspace(0, 1, 200)).to_parquet(path / "p.parquet")
    own = ["--map", "linear", "--alpha", 1, "--drop", "id", "--out", path / "m.scalefair"]
    succeed("fit", path / "d.csv", *FIT, *own)
    (path / "broken.parquet").write_bytes(b"PAR1 and no more")
    (path / "notes.txt").write_text("hello")
    (path / "header.csv").write_text("a,b\n")
    (path / "late.csv").write_text("pay,sex,x\n" + "1,f,2\n2,m,3\n" * 90_000 + "3,f,late\n")
    (path / "tabs.csv").write_text("pay\tsex\n1\tf, m\n")
    (path / "file").touch()
    (path / "empty").mkdir()
    succeed("moments", path / "d.csv", "--like", path / "m.scalefair", "--out", path / "p.moments")
    return path


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("fit nowhere.csv --target pay --sensitive sex", "no such file or folder; check the path"),
        ("fit none*.parquet --target pay --sensitive sex", "the pattern matches no file"),
        ("fit broken.parquet --target pay --sensitive sex", "cannot be read as a complete parquet"),
        ("fit notes.txt --target pay --sensitive sex", "cannot be read as a csv file with a header"),
        ("fit header.csv --target a --sensitive b", "no rows; give a file with data"),
        ("fit file --target a --sensitive b", "the file is empty"),
        ("fit empty --target a --sensitive b", "the folder holds no .parquet file"),
        ("fit late.csv --target pay --sensitive sex", "read it as text with --text x"),
        ("fit d.csv --target pai --sensitive sex", "--target: column 'pai' is not in the table; did you mean 'pay'?"),
        ("fit d.csv --target pay --sensitive sexe", "did you mean 'sex'?"),
        ("fit d.csv --target pay --sensitive sex --drop hour", "did you mean 'hours'?"),
        ("fit d.csv --target pay --sensitive sex --weight hours", "hours"),
        ("fit d.csv --sensitive sex", "--target is needed with DATA"),
        ("fit d.csv --target pay", "--sensitive is needed with DATA"),
        ("fit d.csv --target pay --sensitive pay", "column 'pay' is also given as --target"),
        ("fit d.csv --target pay --sensitive sex --weight pay", "--weight: column 'pay' is also given as --target"),
        ("fit d.csv --target pay --sensitive sex --drop pay", "--drop: column 'pay' is also given as --target"),
        ("fit --from-moments p.moments --like m.scalefair --weight id", "--weight has no effect with --from-moments"),
        ("fit --from-moments p.moments --like m.scalefair --hide-sensitive", "--hide-sensitive has no effect"),
        ("fit d.csv --target hired --sensitive sex", "holds datetime values"),
        ("fit d.csv --target job --sensitive sex", "missing"),
        ("fit d.csv --target pay --sensitive job", "missing value"),
        ("fit d.csv --target pay --sensitive sex --eta 1 --unfairness 0.1", "not both"),
        ("fit d.csv --target pay --sensitive sex --unfairness 2", "see scalefair fit --help"),
        ("fit d.csv --target pay --sensitive sex --delimiter ;;", "one character"),
        ("fit d.csv --target pay --sensitive sex --delimiter ;", "give --delimiter ','"),
        ("fit tabs.csv --target pay --sensitive sex", "give --delimiter $'\\t'"),
        ("fit d.csv --target job --sensitive sex --kind regression", "is text; expected numbers"),
        ("fit d.csv --target pay --sensitive sex --out empty", "Path 'empty' is a directory"),
        ("fit d.csv --target pay --sensitive sex --out no/m", "there is no folder"),
        ("fit d.csv --target pay --sensitive sex --out /dev/null", "/dev/null is not a regular file"),
        ("fit --scheduler tcp://127.0.0.1:9 --out x", "--scheduler needs DATA"),
        ("fit d.csv --target pay --sensitive sex --scheduler tcp://127.0.0.1:9", "no dask scheduler answered"),
        ("predict nowhere.scalefair d.csv", "'nowhere.scalefair' does not exist"),
        ("predict notes.txt d.csv", "notes.txt is damaged or not a scalefair file"),
        ("predict d.csv d.csv", "damaged or not a scalefair file; give one that scalefair wrote"),
        ("predict m.scalefair nowhere.csv", "no such file or folder"),
        ("predict m.scalefair p.parquet --keep idd", "--keep: column 'idd' is not in the table"),
        ("predict m.scalefair late.csv", "lacks 6 column(s)"),
        ("predict m.scalefair d.csv --out p.txt", "expected a name that ends with .parquet, .csv"),
        ("predict m.scalefair d.csv --out - --json", "leave out --json"),
        ("predict", "Missing argument 'MODEL'"),
        ("audit nowhere.parquet --sensitive sex", "no such file or folder"),
        ("audit p.parquet", "--sensitive is needed"),
        ("audit p.parquet --sensitive sx", "did you mean 'sex'?"),
        ("audit p.parquet --sensitive sex --prediction predicted", "did you mean 'prediction'?"),
        ("audit p.parquet --sensitive sex --truth payy", "did you mean 'pay'?"),
        ("audit d.csv --sensitive sex", "--prediction: column 'prediction' is not in the table"),
        ("audit p.parquet --sensitive job", "missing"),
        ("audit p.parquet --sensitive prediction", "column 'prediction' is also given as --prediction"),
        ("audit p.parquet --sensitive sex --truth sex", "--sensitive: column 'sex' is also given as --truth"),
        ("audit p.parquet --sensitive sex --positive m", "--positive has no effect without --truth"),
        ("audit p.parquet --sensitive sex --truth pay --positive 1", "--positive 1: column 'pay' is numeric"),
        ("audit p.parquet --sensitive job --truth sex --positive F", "--positive F is none of them"),
        ("audit p.parquet --sensitive sex --html p.csv", "is the name of a file that is written beside it"),
        ("certify m.scalefair p.parquet --sensitive sex --out no/c.json", "there is no folder"),
        ("certify m.scalefair p.parquet --sensitive sx", "did you mean 'sex'?"),
        ("certify m.scalefair p.parquet --sensitive sex --limit-on odds", "--limit-on odds need each other"),
        ("certify m.scalefair p.parquet --sensitive sex --control sex", "column 'sex' is also given as --sensitive"),
        ("explain d.csv", "--sensitive is needed"),
        ("explain d.csv --sensitive sx", "did you mean 'sex'?"),
        ("explain d.csv d.csv --sensitive sex", "leave out d.csv"),
        ("explain m.scalefair late.csv", "lacks 6 column(s)"),
        ("explain m.scalefair d.csv --sensitive sex", "for DATA alone"),
        ("explain notes.txt", "notes.txt is damaged or not a scalefair file"),
        ("explain", "Missing argument"),
        ("moments d.csv --like nowhere", "'nowhere' does not exist"),
        ("moments d.csv --like m.scalefair --target payy", "did you mean 'pay'?"),
        ("moments d.csv --like m.scalefair --map fourier", "--map has no effect with --like"),
        ("moments d.csv --like m.scalefair --drop id", "--drop has no effect with --like"),
        ("merge nowhere.moments", "'nowhere.moments' does not exist"),
        ("merge", "Missing argument 'PARTS...'"),
        ("frontier d.csv --target pay --sensitive sex --drop idd", "did you mean 'id'?"),
        ("frontier d.csv --target pay --sensitive sex --colour red", "No such option"),
    ],
)
def test_bad_input_is_one_line_with_the_remedy(folder, monkeypatch, command, words):
    monkeypatch.chdir(folder)
    monkeypatch.setattr("scalefair.data.sources.dask.connect.__kwdefaults__", {"timeout": 0.2, "security": None})
    before = sorted(os.listdir())
    assert words in refuse(*command.split())
    assert sorted(os.listdir()) == before


def test_a_failed_fit_leaves_the_old_model_alone(folder, monkeypatch):
    monkeypatch.chdir(folder)
    old = (folder / "m.scalefair").read_bytes()
    refuse("fit", "d.csv", "--target", "pay", "--sensitive", "job", "--out", "m.scalefair")
    refuse("predict", "m.scalefair", "d.csv", "--out", "p.txt")
    assert (folder / "m.scalefair").read_bytes() == old


@pytest.mark.parametrize(
    ("command", "kept"),
    [
        ("predict m.scalefair d.csv --out d.csv", "d.csv"),
        ("predict m.scalefair ./d.csv --out {folder}/d.csv", "d.csv"),
        ("predict m.scalefair parts --out parts/d.csv", "parts/d.csv"),
        ("predict m.scalefair parts/*.csv --out parts/d.csv", "parts/d.csv"),
        ("fit d.csv --target pay --sensitive sex --out d.csv", "d.csv"),
        ("audit d.csv --prediction pay --sensitive sex --html d.html", "d.csv"),
        ("frontier parts/frontier.csv --target pay --sensitive sex --out parts", "parts/frontier.csv"),
    ],
)
def test_data_are_not_written_over(folder, tmp_path, monkeypatch, command, kept):
    for name in ("d.csv", "m.scalefair"):
        (tmp_path / name).write_bytes((folder / name).read_bytes())
    (tmp_path / "parts").mkdir()
    for name in ("d.csv", "frontier.csv"):
        (tmp_path / "parts" / name).write_bytes((folder / "d.csv").read_bytes())
    monkeypatch.chdir(tmp_path)
    assert f"{kept} is DATA and would be lost" in refuse(*command.format(folder=tmp_path).split())
    assert (tmp_path / kept).read_bytes() == (folder / "d.csv").read_bytes()


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read and write everything")
def test_what_may_not_be_read_or_written(folder, tmp_path):
    (tmp_path / "d.csv").write_text("a,b\n1,2\n")
    (tmp_path / "d.csv").chmod(0)
    line = refuse("fit", tmp_path / "d.csv", "--target", "a", "--sensitive", "b")
    assert "permission" in line.lower()
    tmp_path.chmod(0o500)
    own = ["--out", tmp_path / "m.scalefair"]
    assert "no permission to write" in refuse("fit", folder / "d.csv", *FIT, *own)


def test_errors_of_the_system_name_the_file_and_the_remedy():
    assert remedied(OSError(28, "No space left on device", "p.csv")) == (
        "p.csv: No space left on device; make room, or write elsewhere"
    )
    assert remedied(PermissionError(13, "Permission denied", "d.csv")) == (
        "d.csv: Permission denied; check its permissions, or give another path"
    )
    assert remedied(MemoryError()).startswith("not enough memory")
    assert remedied(ValueError("the table is empty")) == "the table is empty"


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (InputError("it is wrong", "mend it"), "it is wrong; mend it"),
        (UselessColumnError("x is empty", "drop it", column="x"), "x is empty; leave it out of --sensitive"),
        (too_many_classes("500 classes"), "--kind regression"),
        (InputError("it is text", CLASSES_REMEDY), "--kind classification"),
        (CellError("a text", "column_types", column="a b"), "read it as text with --text 'a b'"),
        (CsvOptionError("one cell", "delimiter", ";"), "one cell; give --delimiter ';'"),
    ],
)
def test_remedies_are_options_not_arguments_of_python(error, words):
    assert remedied(error).endswith(words)
    again = pickle.loads(pickle.dumps(error))  # as the worker of a cluster sends it
    assert (remedied(again), str(again)) == (remedied(error), str(error))
    at = error.at("--target")
    assert (str(at), at.where, at.column) == (f"--target: {error}", "--target", error.column)


COMMANDS = ["frontier", "fit", "predict", "audit", "explain", "moments", "merge"]


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help_with_an_example(command):
    text = succeed(command, "--help")
    assert f"scalefair {command} " in text
    assert main.commands[command].help
    # click would run examples together without the mark before them
    assert all(len(line) <= 100 for line in text.splitlines())
