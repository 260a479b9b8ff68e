"""A mixed table with a known bias, and ways to run the command line, for the tests of it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
from click.testing import CliRunner

from scalefair.cli import main

ENV = {
    **os.environ,
    "PYTHONPATH": os.pathsep.join([str(Path(__file__).resolve().parents[1]), *filter(None, sys.path)]),
    "OMP_NUM_THREADS": "1",
}
ENTRY = [sys.executable, "-m", "scalefair"]
SMALL = ["--components", "20"]


def people(n=400, seed=0):
    """Pay that depends on sex, with text, dates, booleans, missing values and an identifier."""
    rng = np.random.default_rng(seed)
    sex = rng.choice(["f", "m"], n)
    hours = np.where(rng.random(n) < 0.1, np.nan, rng.normal(38, 5, n).round(2))
    hired = pd.Timestamp("2015-01-01") + pd.to_timedelta(rng.integers(0, 3000, n), unit="D")
    table = pd.DataFrame(
        {
            "id": [f"p{i}" for i in range(seed * n, seed * n + n)],
            "hired": hired.strftime("%Y-%m-%d"),
            "sex": sex,
            "age": rng.integers(18, 70, n),
            "hours": hours,
            "job": rng.choice(["clerk", "cook", None], n),
            "shift": rng.random(n) < 0.3,
            "w": rng.integers(1, 3, n),
        }
    )
    pay = 20 + 3 * (sex == "m") + 0.1 * table["age"] + 0.2 * np.nan_to_num(hours, nan=38)
    return table.assign(pay=(pay + rng.normal(size=n)).round(4))


def call(*arguments):
    """Run a command in this process."""
    return CliRunner().invoke(main, [str(argument) for argument in arguments])


def succeed(*arguments):
    """Run a command that must succeed; return its stdout."""
    result = call(*arguments)
    assert result.exit_code == 0, result.output
    return result.stdout


def refuse(*arguments):
    """Run a command that must be refused; return its one line of error."""
    result = call(*arguments)
    assert result.exit_code == 2, result.output
    assert result.stdout == ""
    (line,) = [x for x in result.stderr.splitlines() if not x.startswith("scalefair: note: ")]
    assert line.startswith("scalefair: error: ")
    return line.removeprefix("scalefair: error: ")


def start(*arguments, **options):
    """Start a command as a process of its own."""
    settings = {"env": ENV, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    # Where tests run in the background of a shell, interrupts are ignored and that is inherited.
    settings["preexec_fn"] = lambda: signal.signal(signal.SIGINT, signal.default_int_handler)
    return subprocess.Popen([*ENTRY, *map(str, arguments)], **settings | options)


def run(*arguments, **options):
    """Run a command as a process of its own; return (exit code, stdout, stderr)."""
    with start(*arguments, **options) as process:
        out, err = process.communicate(timeout=300)
    return process.returncode, out, err
