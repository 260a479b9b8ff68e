"""Every command as a process of its own, and every way in which a run can end badly."""

import ctypes
import os
import resource
import signal
import sys
import time

import pytest

from tests.cli_tools import people, run, start, succeed

pytestmark = pytest.mark.processes

pty = pytest.importorskip("pty")

FIT = ["--target", "pay", "--sensitive", "sex"]
LIBC = ctypes.CDLL(None)
PR_CAPBSET_DROP, CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH = 24, 1, 2
COMMANDS = ("frontier", "fit", "predict", "audit", "moments", "merge")
WRITERS = tuple(name for name in COMMANDS if name != "audit")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("endings")
    people(200).to_csv(path / "d.csv", index=False)
    own = ["--map", "linear", "--alpha", 1, "--drop", "id", "--out", path / "m.scalefair"]
    succeed("fit", path / "d.csv", *FIT, *own)
    succeed("moments", path / "d.csv", "--like", path / "m.scalefair", "--out", path / "a.moments")
    return path


def good(command, folder, out):
    """Arguments with which a command succeeds."""
    data, model = folder / "d.csv", folder / "m.scalefair"
    small = ["--components", 20]
    return {
        "frontier": ["frontier", data, *FIT, *small, "--out", out / "report"],
        "fit": ["fit", data, *FIT, *small, "--alpha", 1, "--out", out / "n.scalefair"],
        "predict": ["predict", model, data, "--out", out / "p.csv"],
        "audit": ["audit", data, "--prediction", "pay", "--sensitive", "sex"],
        "moments": ["moments", data, "--like", model, "--out", out / "b.moments"],
        "merge": ["merge", folder / "a.moments", "--out", out / "all.moments"],
    }[command]


def renamed(arguments, file):
    """The same with another path where DATA, or the first part, stands."""
    place = 2 if arguments[0] == "predict" else 1
    return [*arguments[:place], file, *arguments[place + 1 :]]


def refused(arguments, *words, **options):
    """Run a command that must be refused in one line without a traceback."""
    code, out, err = run(*arguments, **options)
    lines = [line for line in err.splitlines() if not line.startswith("scalefair: note: ")]
    assert (code, out, len(lines)) == (2, "", 1), err
    assert lines[0].startswith("scalefair: error: ")
    for word in words:
        assert word in lines[0]


def cheap(names, *quick):
    """All commands, of which only some are run every time."""
    return [n if n in quick else pytest.param(n, marks=pytest.mark.slow) for n in names]


def without_privilege():
    """Root may read everything; without these two capabilities it may not."""
    for capability in (CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH):
        LIBC.prctl(PR_CAPBSET_DROP, capability, 0, 0, 0)


@pytest.mark.skipif(sys.platform != "linux", reason="capabilities are Linux's")
@pytest.mark.parametrize("command", cheap(COMMANDS, "fit"))
def test_a_path_that_may_not_be_read(folder, tmp_path, command):
    closed, out = tmp_path / "closed", tmp_path / "out"
    closed.mkdir()
    out.mkdir()
    name = "a.moments" if command == "merge" else "d.csv"
    (closed / name).write_bytes((folder / name).read_bytes())
    arguments = renamed(good(command, folder, out), closed / name)
    closed.chmod(0)
    try:
        refused(arguments, "ermission", preexec_fn=without_privilege)
    finally:
        closed.chmod(0o700)
    assert os.listdir(out) == []


def small_disk():
    """A limit on the size of files stands for the disk."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (500, 500))


@pytest.mark.parametrize("command", cheap(WRITERS, "frontier", "merge"))
def test_a_full_disk(folder, tmp_path, command):
    arguments = good(command, folder, tmp_path)
    refused(arguments, "make room, or write elsewhere", preexec_fn=small_disk)
    assert [p for p in tmp_path.rglob("*") if p.is_file()] == []


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no /dev/full")
def test_a_judgement_that_cannot_be_printed(folder, tmp_path):
    with open("/dev/full", "w") as full:
        code, _, err = run(*good("audit", folder, tmp_path), stdout=full)
    assert code == 2
    assert err.count("\n") == 1
    assert "make room" in err


@pytest.mark.parametrize("command", cheap(COMMANDS, "audit"))
def test_nobody_reads_the_result(folder, tmp_path, command):
    read, write = os.pipe()
    os.close(read)
    with os.fdopen(write, "w") as closed:
        code, _, err = run(*good(command, folder, tmp_path), "--json", stdout=closed)
    notes = [line for line in err.splitlines() if not line.startswith("scalefair: note: ")]
    assert (code, notes) == (141, [])


def on_terminal(arguments):
    """Start a command whose stderr is a terminal; return it, the terminal and seconds to a sign."""
    terminal, end = pty.openpty()
    begin = time.monotonic()
    process = start(*arguments, stderr=end)
    os.close(end)
    first = os.read(terminal, 1000).decode()
    return process, terminal, first, time.monotonic() - begin


def rest(terminal):
    text = ""
    while True:
        try:
            part = os.read(terminal, 10_000).decode()
        except OSError:  # the other end is closed
            part = ""
        if not part:
            os.close(terminal)
            return text
        text += part


@pytest.mark.parametrize("command", COMMANDS)
def test_an_interrupted_run(folder, tmp_path, command):
    process, terminal, first, _ = on_terminal(good(command, folder, tmp_path))
    with process:
        assert "loading" in first
        process.send_signal(signal.SIGINT)
        shown = rest(terminal)
        assert process.stdout.read() == ""
    assert process.returncode == 130, shown
    assert shown.splitlines()[-1].endswith("scalefair: error: interrupted")
    assert "Traceback" not in shown
    assert os.listdir(tmp_path) == []


def test_a_sign_of_life_within_the_first_second(folder, tmp_path):
    """The best of three: other work on the machine is not what is measured."""
    seconds = []
    for _ in range(3):
        process, terminal, first, after = on_terminal(good("frontier", folder, tmp_path))
        process.send_signal(signal.SIGINT)
        rest(terminal)
        with process:
            process.communicate(timeout=60)
        assert "loading" in first
        seconds.append(after)
        if after < 1.0:
            break
    assert min(seconds) < 1.0, seconds


def test_a_later_interrupt_leaves_an_old_report_as_it_was(folder, tmp_path):
    out = tmp_path / "report"
    out.mkdir()
    (out / "report.html").write_text("old")
    process, terminal, _, _ = on_terminal(good("frontier", folder, tmp_path))
    with process:
        shown = ""
        while "fitting" not in shown:
            shown += os.read(terminal, 1000).decode()
        process.send_signal(signal.SIGINT)
        rest(terminal)
        assert process.stdout.read() == ""
    assert process.returncode == 130
    assert [p.name for p in out.iterdir()] == ["report.html"]
    assert (out / "report.html").read_text() == "old"
