"""The real entry point as a process: how a run ends when all is well, and when it is not."""

import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import time
from io import StringIO

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

from scalefair import FairRidge, config_context, scan_csv
from scalefair.cli import main
from scalefair.cli._console import Console, FitProgress
from tests.cli_tools import ENV, people, run, start, succeed

FIT = ["--target", "pay", "--sensitive", "sex"]
LIMIT = 120
"""Seconds after which a run that should have ended is a hang."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("process")
    people(300).to_csv(path / "d.csv", index=False)
    succeed(
        *("fit", path / "d.csv", *FIT, "--map", "linear", "--alpha", 1e-3, "--drop", "id,w"),
        *("--out", path / "m.scalefair"),
    )
    return path


@pytest.fixture(scope="module")
def big(folder):
    """So many rows that the run is still busy when something happens to it."""
    n = 3_000_000
    rows = people(2).drop(columns=["id", "w", "pay"]).assign(hired=pd.Timestamp("2020-01-01"))
    columns = {name: pa.array(rows[name][:1]).take(np.zeros(n, int)) for name in rows}
    pq.write_table(pa.table(columns), folder / "big.parquet")
    return folder / "big.parquet"


def one_line(err):
    (line,) = [x for x in err.splitlines() if not x.startswith("scalefair: note: ")]
    assert "Traceback" not in err
    return line


@pytest.mark.processes
def test_from_a_csv_to_predictions(folder, tmp_path):
    own = ["--components", 20, "--out", tmp_path / "m.scalefair", "--json"]
    code, out, err = run("fit", folder / "d.csv", *FIT, *own)
    assert code == 0, err
    assert json.loads(out)["rows"] == 300
    assert err == ("scalefair: note: column 'id' is different in every row, an identifier: left out\n")
    own = ["--keep", "sex", "--out", tmp_path / "p.csv"]
    code, out, err = run("predict", tmp_path / "m.scalefair", folder / "d.csv", *own)
    assert (code, err) == (0, "")
    assert out == f"{tmp_path / 'p.csv'}: predictions for 300 rows\n"
    assert sorted(os.listdir(tmp_path)) == ["m.scalefair", "p.csv"]


@pytest.mark.processes
def test_the_installed_script_is_the_same_command():
    script = shutil.which("scalefair", path=os.path.dirname(sys.executable))
    if script is None:
        pytest.skip("the package is not installed")
    found = subprocess.run([script, "--help"], env=ENV, capture_output=True, text=True, check=True)
    assert all(command in found.stdout for command in main.commands)


@pytest.mark.processes
def test_errors_have_no_traceback_unless_asked_for(folder):
    code, out, err = run("fit", folder / "none.csv", *FIT)
    assert (code, out) == (2, "")
    assert one_line(err).endswith("none.csv: no such file or folder; check the path")
    code, _, err = run("fit", folder / "none.csv", *FIT, "--debug")
    assert code == 1
    assert "Traceback" in err
    assert "FileNotFoundError" in err


@pytest.mark.processes
def test_predictions_on_stdout_are_csv_and_a_reader_may_leave(folder, big):
    code, out, err = run("predict", folder / "m.scalefair", folder / "d.csv", "--out", "-")
    assert (code, err) == (0, "")
    lines = out.splitlines()
    assert lines[0] == '"prediction"'
    assert len(lines) == 301
    with start("predict", folder / "m.scalefair", big, "--out", "-") as process:
        assert process.stdout.readline() == '"prediction"\n'
        process.stdout.close()
        assert process.stderr.read() == ""
    assert process.returncode == 141


@pytest.mark.processes
def test_a_reader_that_left_before_the_only_line(folder):
    read, write = os.pipe()
    os.close(read)
    with os.fdopen(write, "w") as closed:
        code, _, err = run("merge", "--help", stdout=closed)
    assert (code, err) == (141, "")


@pytest.mark.processes
@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no /dev/full")
def test_a_full_stdout_is_an_error(folder):
    for arguments in (["--help"], ["predict", folder / "m.scalefair", folder / "d.csv", "--out", "-"]):
        with open("/dev/full", "w") as full:
            code, _, err = run(*arguments, stdout=full)
        assert code == 2
        assert one_line(err) == ("scalefair: error: No space left on device; make room, or write elsewhere")


@pytest.mark.processes
def test_a_full_disk_leaves_nothing_behind(folder, big, tmp_path):
    """A limit on the size of files stands for the disk."""

    def small_disk():
        resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))

    for arguments in (
        ["predict", folder / "m.scalefair", big, "--out", tmp_path / "p.csv"],
        ["fit", folder / "d.csv", *FIT, "--components", 150, "--alpha", 1, "--out", tmp_path / "m"],
    ):
        code, out, err = run(*arguments, preexec_fn=small_disk)
        assert (code, out) == (2, "")
        assert "make room, or write elsewhere" in one_line(err)
        assert os.listdir(tmp_path) == []


@pytest.mark.processes
@pytest.mark.parametrize("kept", ["nothing", "old"])
def test_an_interrupt_leaves_no_half_written_file(folder, big, tmp_path, kept):
    out = tmp_path / "p.parquet"
    if kept == "old":
        out.write_text("old")
    with start("predict", folder / "m.scalefair", big, "--out", out) as process:
        begin = time.monotonic()
        while not list(tmp_path.glob(".p.parquet.*")):
            assert process.poll() is None
            assert time.monotonic() - begin < LIMIT
            time.sleep(0.02)
        process.send_signal(signal.SIGINT)
        stdout, err = process.communicate(timeout=LIMIT)
    assert (process.returncode, stdout, err) == (130, "", "scalefair: error: interrupted\n")
    assert [p.name for p in tmp_path.iterdir()] == (["p.parquet"] if kept == "old" else [])
    assert kept == "nothing" or out.read_text() == "old"


@pytest.mark.processes
def test_a_dead_scheduler_is_told_within_its_ten_seconds(folder):
    begin = time.monotonic()
    own = ["--scheduler", "tcp://127.0.0.1:9", "--out", folder / "never"]
    code, out, err = run("fit", folder / "d.csv", *FIT, *own)
    assert (code, out) == (2, "")
    assert "no dask scheduler answered at tcp://127.0.0.1:9 within 10 s; check" in one_line(err)
    assert time.monotonic() - begin < 10 + LIMIT / 4  # and what a busy machine needs to start
    assert not (folder / "never").exists()


def complete(**asked):
    """What a shell gets that asks, in this process."""
    result = CliRunner().invoke(main, [], env={"_SCALEFAIR_COMPLETE": "bash_complete", **asked})
    assert result.exit_code == 0
    return result.stdout


@pytest.mark.parametrize(
    "shell",
    [pytest.param("bash", marks=pytest.mark.processes), "zsh", "fish"],  # asks its version
)
def test_completion_prints_a_script(shell):
    if shell == "bash" and shutil.which("bash") is None:
        pytest.skip("no bash")
    script = complete(_SCALEFAIR_COMPLETE=f"{shell}_source")
    assert "_SCALEFAIR_COMPLETE" in script
    assert "scalefair" in script


@pytest.mark.parametrize(
    ("words", "found"),
    [
        ("scalefair au", ["audit"]),
        ("scalefair fit {data} --target pa", ["pay"]),
        ("scalefair fit {data} --target pay --sensitive sex,s", ["sex,sex", "sex,shift"]),
        ("scalefair fit nowhere.csv --target pa", []),
    ],
)
def test_completion_knows_commands_and_columns(folder, words, found):
    words = words.format(data=folder / "d.csv")
    out = complete(COMP_WORDS=words, COMP_CWORD=str(len(words.split()) - 1))
    assert [line.split(",", 1)[1] for line in out.split()] == found


class Terminal(StringIO):
    """What a terminal is asked to show."""

    def isatty(self):
        return True


@pytest.mark.parametrize(("quiet", "shown"), [(False, True), (True, False)])
def test_progress_goes_to_a_terminal_only(monkeypatch, quiet, shown):
    for stderr in (Terminal(), StringIO()):
        monkeypatch.setattr("sys.stderr", stderr)
        console = Console(quiet=quiet)
        console("predicting")
        console.update(1, 4, "rows")
        console.update(2, 4, "rows")
        console.update(1, None, "tasks")  # another pass, of unknown length
        console.note("a note")
        console.finish()
        text = stderr.getvalue()
        assert ("predicting" in text) == (shown and stderr.isatty())
        for words in ("rows", "1/4", "2/4", "tasks"):
            assert (words in text) == (shown and stderr.isatty())
        assert ("scalefair: note: a note\n" in text) == shown


def test_a_fit_tells_of_its_chunks(monkeypatch):
    told = []
    monkeypatch.setattr(Console, "update", lambda _, *step: told.append(step))
    X, s = np.random.default_rng(0).normal(size=(2, 500))
    model = FairRidge(eta=1.0).set_callbacks(FitProgress(Console()))
    with config_context(chunk_rows=100):
        model.fit(X[:, None], X, sensitive_features=s)
    assert sorted(told) == [(i, 5, "chunks") for i in range(1, 6)]
    model.collect(X[:, None], X, sensitive_features=s)  # no fit: nobody listens
    assert len(told) == 5


def test_several_files_have_more_chunks_than_rows_would_say(monkeypatch, tmp_path):
    told = []
    monkeypatch.setattr(Console, "update", lambda _, *step: told.append(step))
    for i in range(3):
        people(50, i).to_csv(tmp_path / f"{i}.csv", index=False)
    scan = scan_csv(tmp_path)
    model = FairRidge(eta=1.0, sensitive_columns=["shift"]).set_callbacks(FitProgress(Console()))
    with config_context(chunk_rows=40):
        model.fit(scan[["age", "shift"]], scan["pay"])
    assert [step[0] for step in told] == [1, 2, 3, 4, 5, 6]
