"""The command line through its real entry point, and the files it reads."""

import json
import os
import re
import subprocess
import sys

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet
import pytest
from click.testing import CliRunner

import scalefair
from scalefair._files import write_atomically
from scalefair.cli import main
from scalefair.cli._data import Reading
from tests.errors import refused

SMALL = ["--components", "20"]
# One kernel: the model is chosen in test_cli_models and in the main job.
FAST = [*SMALL, "--model", "kernel"]
OPTIONS = ["--target", "y", "--sensitive", "s,t", *FAST, "--unfairness", "0.1"]


@pytest.fixture(scope="module")
def table():
    rng = np.random.default_rng(0)
    s, t, x = rng.integers(0, 2, 500), rng.integers(0, 2, 500), rng.normal(size=500)
    y = np.round(x + s + 0.5 * t + rng.normal(size=500), 6)
    return pd.DataFrame({"x": x, "s": np.take(["f", "m"], s), "t": np.take(["p", "q"], t), "y": y})


@pytest.fixture
def data(table, tmp_path):
    table.to_csv(tmp_path / "data.csv", index=False)
    return str(tmp_path / "data.csv")


@pytest.fixture
def run(tmp_path):
    def call(*arguments):
        return CliRunner().invoke(main, ["frontier", *arguments, "--out", str(tmp_path / "out")])

    return call


@pytest.fixture(scope="module")
def first(table, tmp_path_factory):
    """The result of one run, to compare others with."""
    folder = tmp_path_factory.mktemp("first")
    table.to_csv(folder / "data.csv", index=False)
    arguments = ["frontier", str(folder / "data.csv"), *OPTIONS, "--json", "--out", str(folder)]
    return json.loads(CliRunner().invoke(main, arguments).stdout)


def refusal(result):
    """The one line of an error, after checking that it is one."""
    assert result.exit_code == 2, result.output
    assert result.stdout == ""
    (line,) = result.stderr.splitlines()
    assert line.startswith("scalefair: error: ")
    return line


def test_the_main_job_writes_a_report_and_says_where(run, data, tmp_path):
    result = run(data, *OPTIONS, "--model", "auto")
    assert result.exit_code == 0, result.output
    assert result.stderr == ""
    (line,) = result.stdout.splitlines()
    page = tmp_path / "out" / "report.html"
    assert line.startswith(f"{page}: Limiting the share of the variance of the predictions that s")
    assert "100 held-out rows" in line
    finding, model = line.removeprefix(f"{page}: ").replace(" %", "\u00a0%").split(" Model ")
    assert finding.split(". ")[0] in page.read_text("utf-8")
    assert model.removesuffix(".") in page.read_text("utf-8")
    assert all(name in model for name in ("Gaussian kernel", "Laplace kernel", "boosted trees"))
    assert sorted(p.name for p in page.parent.iterdir()) == [
        "frontier.csv",
        "model.scalefair",
        "report.csv",
        "report.html",
        "report.json",
    ]
    path = pd.read_csv(page.parent / "frontier.csv")
    assert {"alpha", "eta", "mse_cv", "explained_share_cv"} <= {*path}
    assert len(path) == len(path[["alpha", "eta"]].drop_duplicates()) > 100


def test_json_is_all_that_stdout_gets_and_does_not_depend_on_the_container(run, first, table, tmp_path):
    table.to_csv(tmp_path / "b.csv.gz", index=False)
    (tmp_path / "d").mkdir()
    table[:100].to_parquet(tmp_path / "d" / "0.parquet")
    table[100:].to_parquet(tmp_path / "d" / "1.parquet")
    for name in ("b.csv.gz", "d"):
        result = run(str(tmp_path / name), *OPTIONS, "--json", "--quiet")
        assert result.exit_code == 0, result.output
        record = json.loads(result.stdout)
        assert record["data"] == str(tmp_path / name)
        assert record["rows"] == {"train": 400, "test": 100}
        own = {key: first[key] for key in ("data", "seconds", "report")}
        assert record | own == first


def test_the_seed_decides(run, first, data):
    other = json.loads(run(data, *OPTIONS, "--json", "--seed", "1").stdout)
    assert other["before"] != first["before"]
    assert other["finding"] != first["finding"]


def test_the_limit_is_obeyed_and_reported(run, first, data):
    loose = json.loads(run(data, *OPTIONS, "--json", "--unfairness", "0.2").stdout)
    tight = first
    assert tight["limit"] == 0.1
    assert loose["limit"] == 0.2
    assert tight["after"]["share"]["value"] < loose["after"]["share"]["value"]
    if tight["chosen"] == loose["chosen"]:
        assert tight["before"] == loose["before"]


def test_quiet_prints_nothing(run, data):
    result = run(data, *OPTIONS, "--quiet")
    assert (result.exit_code, result.output) == (0, "")


@pytest.mark.parametrize("model", ["kernel", "trees", "gp"])
def test_every_model_has_a_frontier(run, table, tmp_path, model):
    table.assign(y=table["y"] > 0).to_csv(tmp_path / "two.csv", index=False)
    result = run(str(tmp_path / "two.csv"), *OPTIONS, "--model", model, "--json")
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["after"]["share"]["value"] < 0.2
    assert len(pd.read_csv(tmp_path / "out" / "frontier.csv")) > 5


def test_text_levels_are_mapped_and_the_report_says_so(run, table, tmp_path):
    table.assign(y=np.where(table["y"] > 0, "rich", "poor")).to_csv(tmp_path / "l.csv", index=False)
    result = run(str(tmp_path / "l.csv"), *OPTIONS, "--json")
    assert json.loads(result.stdout)["target_levels"] == ["poor", "rich"]
    assert "“poor” read as 0, “rich” as 1" in (tmp_path / "out" / "report.html").read_text("utf-8")


def test_sensitive_columns_with_commas_and_repeats(run, table, tmp_path):
    table.rename(columns={"s": "s,t"}).drop(columns="t").to_csv(tmp_path / "c.csv", index=False)
    result = run(str(tmp_path / "c.csv"), "--target", "y", "--sensitive", "s,t", *FAST, "--json")
    assert json.loads(result.stdout)["sensitive"] == ["s,t"]
    table.to_csv(tmp_path / "r.csv", index=False)
    repeated = ["--target", "y", "--sensitive", "s", "--sensitive", "t, s", *FAST, "--json"]
    assert json.loads(run(str(tmp_path / "r.csv"), *repeated).stdout)["sensitive"] == ["s", "t"]


def test_hostile_names_do_not_break_out(run, table, tmp_path):
    name = "<img src=x onerror=alert(1)>"
    hostile = table.rename(columns={"t": name}).replace({"s": {"f": "</style><script>"}})
    hostile.to_parquet(tmp_path / "h.parquet")
    result = run(str(tmp_path / "h.parquet"), "--target", "y", "--sensitive", f"s,{name}", *FAST)
    assert result.exit_code == 0, result.output
    html = (tmp_path / "out" / "report.html").read_text("utf-8")
    assert "<img" not in html
    assert html.count("<script") == 1  # our own
    assert html.count("</style>") == 1 + html.count("<style type")
    assert "&lt;img src=x" in html


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["nowhere.csv", *OPTIONS], "nowhere.csv: no such file or folder"),
        (["{data}", "--sensitive", "s"], "--target is needed with DATA"),
        (["{data}", "--target", "y"], "--sensitive is needed with DATA"),
        (["--target", "y"], "--target belongs to DATA"),
        (["{data}", "--target", "yy", "--sensitive", "s"], "target: column 'yy' is not in the table"),
        (["{data}", "--target", "y", "--sensitive", "s,u"], "sensitive: column 'u' is not"),
        (["{data}", "--target", "w", "--sensitive", "s"], "column 'w' is text with 3 levels"),
        (["{data}", *OPTIONS, "--unfairness", "1.5"], "'--unfairness': 1.5 is not between 0 and 1"),
        (["{data}", *OPTIONS, "--components", "0"], "'--components'"),
        (["{data}", *OPTIONS, "--colour", "red"], "No such option"),
        (["{data}", "extra", *OPTIONS], "unexpected extra argument"),
    ],
)
def test_errors_are_one_line_and_exit_code_2(run, table, tmp_path, arguments, words):
    data = tmp_path / "data.csv"
    table.assign(w=["a", "b", "c", "a", "b"] * 100).to_csv(data, index=False)
    arguments = [argument.replace("{data}", str(data)) for argument in arguments]
    assert words in refusal(run(*arguments))
    assert not (tmp_path / "out").exists()


def test_a_folder_that_cannot_be_written_is_refused_before_the_work(data, tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    for out in ("file", "file/below"):
        monkeypatch.setattr("scalefair.report.fit_frontier", pytest.fail)
        arguments = ["frontier", data, *OPTIONS, "--out", str(tmp_path / out)]
        assert "--out" in refusal(CliRunner().invoke(main, arguments))


def test_an_unknown_command_is_one_line():
    assert "No such command 'fronteer'" in refusal(CliRunner().invoke(main, ["fronteer"]))


def test_debug_shows_the_traceback(run, tmp_path):
    result = run(str(tmp_path / "none.csv"), *OPTIONS, "--debug")
    assert isinstance(result.exception, FileNotFoundError)


def test_a_bug_is_told_from_a_bad_input(run, data, monkeypatch):
    def broken(*_):
        raise KeyError("oops")

    monkeypatch.setattr("scalefair.report.fit_frontier", broken)
    result = run(data, *OPTIONS)
    assert result.exit_code == 1
    assert result.stderr == "scalefair: error: KeyError: 'oops' (a bug; --debug shows where)\n"


def test_missing_packages_name_the_extra(run, data, monkeypatch):
    def missing(*_):
        raise ModuleNotFoundError("No module named 'matplotlib'", name="matplotlib")

    monkeypatch.setattr("scalefair.report.fit_frontier", missing)
    assert "pip install 'scalefair[plots]'" in refusal(run(data, *OPTIONS))


def test_an_interrupt_leaves_no_half_written_file(run, data, tmp_path, monkeypatch):
    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("os.replace", interrupted)
    result = run(data, *OPTIONS)
    assert result.exit_code == 130
    assert list((tmp_path / "out").iterdir()) == []


def test_a_failed_write_leaves_the_old_file_alone(tmp_path, monkeypatch):
    path = tmp_path / "x.txt"
    write_atomically(path, b"old")

    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("os.replace", interrupted)
    with pytest.raises(KeyboardInterrupt):
        write_atomically(path, b"new")
    assert [p.read_text() for p in tmp_path.iterdir()] == ["old"]


def test_version_and_help():
    for option in ("--version", "-V"):
        version = CliRunner().invoke(main, [option])
        assert version.stdout == f"scalefair, version {scalefair.__version__}\n"
    for arguments in ([], ["--help"], ["-h"], ["frontier", "--help"], ["frontier", "-h"]):
        result = CliRunner().invoke(main, arguments)
        assert result.exit_code == 0
        assert "frontier" in result.stdout
    listed = CliRunner().invoke(main, []).stdout.partition("Commands:\n")[2]
    parts = [part.splitlines() for part in listed.split("\n\n")]
    assert [line.split()[0] for line in parts[0]] == ["frontier", "fit", "predict", "audit", "explain", "certify"]
    assert [line.split()[0] for line in parts[1][1:]] == ["moments", "merge"]
    commands = [*parts[0], *parts[1][1:]]
    assert all(line.endswith(".") and not line.endswith("...") for line in commands)


@pytest.mark.processes
def test_a_terminal_sees_progress_and_a_pipe_the_finding(data, tmp_path):
    pty = pytest.importorskip("pty")
    terminal, its_end = pty.openpty()
    code = "from scalefair.cli import main; main()"
    run = subprocess.run(
        [sys.executable, "-c", code, "frontier", data, *OPTIONS, "--out", str(tmp_path / "out")],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        stdout=subprocess.PIPE,
        stderr=its_end,
        check=True,
        text=True,
        encoding="utf-8",
    )
    os.close(its_end)
    shown = os.read(terminal, 100_000).decode().splitlines()
    os.close(terminal)
    assert len(run.stdout.splitlines()) == 1
    assert re.match(r"\[  0\.\d s\] loading", shown[0])
    assert any("fitting the path on 400 rows" in line for line in shown)
    assert shown[-1].endswith("done")


@pytest.mark.processes
def test_starting_does_not_wait_for_the_heavy_packages():
    heavy = "{'pandas', 'sklearn', 'matplotlib'}"
    code = f"import sys; import scalefair.cli; print({heavy} & {{*sys.modules}})"
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    command = [sys.executable, "-c", code]
    run = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    assert run.stdout.strip() == "set()", run.stderr


def read_table(path):
    return Reading(str(path)).table().table.read()


@pytest.mark.parametrize("where", ["a.parquet", "b.csv", "c.csv.gz", "d"])
def test_tables_are_read_whole(table, tmp_path, where):
    path = tmp_path / where
    if where == "d":
        path.mkdir()
        table.to_parquet(path / "part-0.parquet")
        (path / "_SUCCESS").touch()
    else:
        table.to_csv(path, index=False) if "csv" in where else table.to_parquet(path)
    pd.testing.assert_frame_equal(read_table(path).to_pandas(), table, check_dtype=False)


def test_partitioned_folders_give_their_column(table, tmp_path):
    pa.parquet.write_to_dataset(pa.Table.from_pandas(table), tmp_path / "p", partition_cols=["s"])
    found = read_table(tmp_path / "p")
    assert found.num_rows == len(table)
    assert sorted(set(found["s"].to_pylist())) == ["f", "m"]


def test_missing_cells_of_a_csv_are_missing(tmp_path):
    (tmp_path / "m.csv").write_text('x,t\n1,a\n,\n3,NA\n4,"NA"\n')
    found = read_table(tmp_path / "m.csv")
    assert found["x"].to_pylist() == [1, None, 3, 4]
    assert found["t"].to_pylist() == ["a", None, None, "NA"]


@pytest.mark.parametrize(
    ("name", "content", "error"),
    [
        ("gone.parquet", None, FileNotFoundError),
        ("empty.parquet", b"", ValueError),
        ("empty.csv", b"", ValueError),
        ("empty", b"", ValueError),
        ("header.csv", b"a,b\n", ValueError),
        ("text.parquet", b"a,b\n1,2\n", ValueError),
        ("text.txt", b"hello", ValueError),
        ("short.parquet", b"PAR1" + b"\0" * 50, ValueError),
        ("ragged.csv", b"a,b\n1,2\n3\n", ValueError),
        ("latin.csv", b"a,b\n1,\xe9\n", ValueError),
        ("gzip.csv.gz", b"not gzip", ValueError),
    ],
)
def test_unreadable_files_are_named(tmp_path, name, content, error):
    path = tmp_path / name
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(error) as caught:
        read_table(path)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_cut_and_empty_parquet_and_folders_without_any_are_refused(table, tmp_path):
    table.to_parquet(tmp_path / "whole.parquet")
    content = (tmp_path / "whole.parquet").read_bytes()
    table[:0].to_parquet(tmp_path / "none.parquet")
    (tmp_path / "folder").mkdir()
    for keep in (8, len(content) // 2, len(content) - 1):
        (tmp_path / f"cut{keep}.parquet").write_bytes(content[:keep])
    for path in ("cut8.parquet", f"cut{len(content) - 1}.parquet", "none.parquet", "folder"):
        with refused(path, error=ValueError):
            read_table(tmp_path / path)
