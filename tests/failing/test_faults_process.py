"""Processes that are interrupted, or that hit a limit of memory, at random moments."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

from scalefair import load
from scalefair.cli._console import INTERRUPTED
from tests.cli_tools import ENV, people, run, start
from tests.faults import RNG, TIMES

LIMIT = 120


@pytest.mark.processes
def test_an_interrupted_command_writes_all_or_nothing(tmp_path):
    """From the start of Python to its end; whatever is there afterwards is whole."""
    people(300).to_csv(tmp_path / "d.csv", index=False)
    out = tmp_path / "out"
    out.mkdir()
    command = ["fit", tmp_path / "d.csv", "--target", "pay", "--sensitive", "sex"]
    command += ["--components", 20, "--out", out / "m.scalefair"]
    begin = time.monotonic()
    code, _, err = run(*command)
    assert code == 0, err
    usual, expected = time.monotonic() - begin, load(out / "m.scalefair").coef_
    (out / "m.scalefair").unlink()
    for _ in range(TIMES):
        with start(*command, start_new_session=True) as process:
            # Before the interpreter has come to our code, its own traceback is all there is.
            time.sleep(RNG.uniform(0.3, 1.0) * usual)
            process.send_signal(signal.SIGINT)
            _, err = process.communicate(timeout=LIMIT)
        with pytest.raises(ProcessLookupError):
            os.killpg(process.pid, 0)  # nobody of its group is left
        assert set(os.listdir(out)) <= {"m.scalefair"}, "half-written"
        if process.returncode == 0 or os.listdir(out):
            np.testing.assert_array_equal(load(out / "m.scalefair").coef_, expected)
            (out / "m.scalefair").unlink()
        else:
            assert process.returncode in (INTERRUPTED, -signal.SIGINT)
            assert err.endswith("scalefair: error: interrupted\n") or "KeyboardInterrupt" in err


SCRIPT = """
import json, os, resource, sys, threading
import numpy as np
from scalefair import FairKernelRidge, load, save, set_config

times, folder = int(sys.argv[1]), sys.argv[2]
set_config(chunk_rows=500)
rng = np.random.default_rng(times)
X = rng.normal(size=(4000, 3))
s, y = X[:, 0] + rng.normal(size=4000), X.sum(axis=1)
path = os.path.join(folder, "m")

def fit():
    model = FairKernelRidge(n_components=600, random_state=0, n_jobs=2)
    model.fit(X, y, sensitive_features=s)
    save(model, path)
    return load(path).coef_

def used():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[0]) * resource.getpagesize()

expected = fit()
idle, counts, threads = used(), {"right": 0, "refused": 0}, threading.active_count()
for _ in range(times):
    os.unlink(path)
    resource.setrlimit(resource.RLIMIT_AS, (idle + int(rng.uniform(0, 60e6)), -1))
    try:
        found = fit()
    except MemoryError:
        counts["refused"] += 1
        whole = not os.path.exists(path) or load(path) is not None
    else:
        counts["right"] += 1
        whole = np.array_equal(found, expected)
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (-1, -1))
    assert whole and set(os.listdir(folder)) <= {"m"}, os.listdir(folder)
    assert threading.active_count() == threads, threading.enumerate()
    assert np.array_equal(fit(), expected), "other numbers after it"
print(json.dumps(counts))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="limits the address space")
@pytest.mark.processes
def test_a_limit_of_memory_is_a_memory_error(tmp_path):
    """And the next fit, with memory again, gives the same numbers as ever."""
    command = [sys.executable, "-c", SCRIPT, str(TIMES), str(tmp_path)]
    done = subprocess.run(command, check=False, env=ENV, capture_output=True, text=True, timeout=100 + 10 * TIMES)
    assert done.returncode == 0, done.stderr
    counts = json.loads(done.stdout)
    assert sum(counts.values()) == TIMES
    assert TIMES < 10 or min(counts.values()) > 0
