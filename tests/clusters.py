"""A dask cluster of processes over TCP that come and go, and a way to see that things end."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from threading import Thread
from uuid import uuid4

HERE = "127.0.0.1"
LIMIT = 120
"""Seconds after which a test that should have ended is a hang."""


class Cluster:
    """A scheduler and workers, each a process; all of them end with the test."""

    def __init__(self, folder, *options, env=()):
        self.folder, self.options, self.workers = folder, options, []
        root = str(Path(__file__).resolve().parents[1])
        path = os.pathsep.join([root, *filter(None, sys.path)])
        self.env = {**os.environ, "PYTHONPATH": path, **dict(env)}
        self.file = folder / "scheduler.json"
        self.scheduler = self._start("scheduler", "--host", HERE, "--port", "0", "--scheduler-file", str(self.file))
        self.address = self._address()

    def _start(self, kind, *options, env=()):
        command = [sys.executable, "-m", "dask", kind, "--no-dashboard", *options, *self.options]
        with (self.folder / f"{kind}-{uuid4().hex}.log").open("w") as log:
            return subprocess.Popen(command, env={**self.env, **dict(env)}, cwd=self.folder, stdout=log, stderr=log)

    def _address(self):
        deadline = time.monotonic() + LIMIT
        while time.monotonic() < deadline:
            try:
                return json.loads(self.file.read_text())["address"]
            except (OSError, ValueError, KeyError):
                time.sleep(0.05)
        raise TimeoutError("the scheduler did not start")

    def add_worker(self, *options, env=()):
        given = (*options, "--nworkers", "1", "--nthreads", "1", "--local-directory")
        worker = self._start("worker", self.address, *given, str(self.folder), env=env)
        self.workers.append(worker)
        return worker

    def close(self):
        for worker in self.workers:
            worker.terminate()
        for worker in self.workers:
            try:
                worker.wait(5)
            except subprocess.TimeoutExpired:
                worker.kill()
        self.scheduler.kill()
        for process in [*self.workers, self.scheduler]:
            process.wait(20)


def ends(function):
    """Return what function() returns or raises, and the seconds it took; a hang is a failure."""
    outcome = []

    def run():
        try:
            outcome.append(function())
        except BaseException as error:
            outcome.append(error)

    thread, begin = Thread(target=run, daemon=True), time.monotonic()
    thread.start()
    thread.join(LIMIT)
    assert outcome, f"no end after {LIMIT} s"
    return outcome[0], time.monotonic() - begin
