"""Clusters in this process, and real ones: processes over TCP that come and go."""

from __future__ import annotations

import gc
import os
import shutil
import signal
import subprocess
import time
from collections import Counter
from pathlib import Path
from uuid import uuid4

import dask
import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
from distributed import Client, LocalCluster, Security

from scalefair.data.sources import ArraySource, DaskSource, connect
from scalefair.features.design import Design
from scalefair.maps import RandomFourier
from scalefair.moments import accumulate
from tests.clusters import HERE, LIMIT, Cluster, ends
from tests.errors import refused

pytestmark = pytest.mark.processes

N = 4000
CHUNKS = N // 50 * 3
"""Chunks of 20 rows end where partitions of 50 do."""

RNG = np.random.default_rng(1)
X, Y = RNG.normal(size=(N, 3)), RNG.normal(size=(N, 1))
ROW_MAP = Design(RandomFourier(n_components=30, random_state=0).fit(X))


@pytest.fixture
def start(tmp_path):
    """Return a function that starts a cluster of n workers and connects to it."""
    opened = []

    def start(n, *options, worker=("--no-nanny",), env=(), security=None):
        cluster = Cluster(tmp_path, *options, env=env)
        opened.append(cluster)
        client = connect(cluster.address, timeout=LIMIT, security=security)
        opened.append(client)
        for _ in range(n):
            cluster.add_worker(*worker)
        client.wait_for_workers(n, timeout=LIMIT)
        return cluster, client

    yield start
    for thing in reversed(opened):
        thing.close()
    # A client that failed stays dask's scheduler, or makes its forerunner that when it is deleted.
    gc.collect()
    dask.config.config.pop("scheduler", None)


def slowly(chunk):
    time.sleep(0.02 if "SCALEFAIR_SLOW" not in os.environ else 0.4)
    return chunk


def source(client, progress=None):
    """Forty tasks of two partitions, that is six chunks of a fiftieth of a second."""
    x, y = da.from_array(X, 50), da.from_array(Y, 80)
    return DaskSource(x, y=y, client=client, rows_per_task=100, progress=progress).then(slowly)


def check_moments(found):
    assert not isinstance(found, BaseException), repr(found)
    (expected,) = accumulate(ArraySource(X, y=Y), ROW_MAP)
    (moments,) = found
    assert moments.n_rows == N
    scale = np.abs(expected.scatter).max()
    np.testing.assert_allclose(moments.scatter, expected.scatter, rtol=0, atol=1e-10 * scale)
    names = tuple(expected.blocks)
    np.testing.assert_allclose(moments.mean(*names), expected.mean(*names), rtol=0, atol=1e-10)


def when(count, action):
    """A progress callback that acts once, as soon as `count` tasks are done."""
    acted = []

    def progress(done, total):
        assert total == 40
        if done >= count and not acted:
            acted.append(action())

    progress.acted = acted
    return progress


class Workers(Counter):
    """Chunks by process; as an accumulator and as its result."""

    def add(self, chunk):
        self[os.getpid()] += 1

    def result(self):
        return self

    def __add__(self, other):
        return Workers(Counter(self) + Counter(other))


class Marked:
    """Leaves a file behind whenever it is unpickled."""

    def __init__(self, folder):
        self.folder = folder

    def __setstate__(self, state):
        self.__dict__.update(state)
        (self.folder / f"{os.getpid()}-{uuid4().hex}.mark").touch()

    def __call__(self):
        return Workers()


@pytest.fixture(scope="module")
def client():
    """Two workers in this process: quick, and graphs are pickled all the same."""
    cluster = LocalCluster(n_workers=2, threads_per_worker=1, processes=False, dashboard_address=":0")
    with cluster, Client(cluster, set_as_default=False) as client:
        yield client


def test_a_client_computes(client):
    """Given, or active; and what is in the memory of its workers stays there."""
    frame = dd.from_pandas(pd.DataFrame(Y), npartitions=3)
    given = DaskSource(da.from_array(X, 700), y=frame, client=client)
    check_moments(accumulate(given, ROW_MAP))
    held = client.persist(da.from_array(X, 700))
    with client.as_current():
        source = DaskSource(held, y=frame, rows_per_task=500)
        assert source._cluster() is client
        assert source._n_threads() == 2
        check_moments(accumulate(source, ROW_MAP))
        lazy = DaskSource(held).map(lambda: lambda c: c.x[:, 0], 30)
        np.testing.assert_array_equal(lazy.compute(), X[:, 0])
        with dask.config.set(scheduler="threads"):
            assert source._cluster() is None
    assert source._cluster() is None


def test_progress_counts_tasks_up(client):
    calls = []
    progress = lambda *counts: calls.append(counts)  # noqa: E731
    x = da.from_array(X, 400)
    DaskSource(x, client=client, rows_per_task=400, progress=progress).fold(Workers, 100)
    deadline = time.monotonic() + 10
    while len(calls) < 10 and time.monotonic() < deadline:
        time.sleep(0.01)
    assert calls == [(done, 10) for done in range(1, 11)]


class Fails(Counter):
    def add(self, chunk):
        raise ValueError(f"{chunk.where} is bad")


def test_errors_of_tasks_come_as_they_are(client):
    with refused("partition 0 is bad", error=ValueError):
        DaskSource(da.from_array(X, N), client=client).fold(Fails, N)


def test_large_maps_do_not_set_off_the_warning_about_large_graphs(client):
    heavy = np.zeros(2_000_000)
    source = DaskSource(da.from_array(X, 500), client=client)
    assert source.fold(lambda: (heavy, Workers())[1], 500).total() == 8


def test_no_scheduler_at_the_address_is_an_error_in_time():
    begin = time.monotonic()
    with refused("tcp://127.0.0.1:1", "1 s", error=ConnectionError):
        connect(f"tcp://{HERE}:1", timeout=1)
    assert time.monotonic() - begin < 5


def test_two_workers_over_tcp_unpickle_the_maps_once_each(start, tmp_path):
    cluster, client = start(2)
    check_moments(ends(lambda: accumulate(source(client), ROW_MAP, rows=20))[0])
    chunks, _ = ends(lambda: source(client).fold(Marked(tmp_path), 20))
    pids = {worker.pid for worker in cluster.workers}
    assert set(chunks) == pids
    assert chunks.total() == CHUNKS
    marks = Counter(int(mark.name.split("-")[0]) for mark in tmp_path.glob("*.mark"))
    assert marks == dict.fromkeys(pids, 1)


def test_a_local_cluster_of_processes(monkeypatch):
    monkeypatch.syspath_prepend(Path(__file__).parents[2])  # where the workers find this module
    with (
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0") as cluster,
        connect(cluster.scheduler_address, timeout=LIMIT) as client,
    ):
        check_moments(ends(lambda: accumulate(source(client), ROW_MAP, rows=20))[0])
        lazy = DaskSource(da.from_array(X, 700)).map(lambda: lambda c: c.x[:, 0] * 2, 64)
        computed, _ = ends(lambda: lazy.compute(scheduler=client))
        np.testing.assert_array_equal(computed, 2 * X[:, 0])


@pytest.mark.skipif(shutil.which("openssl") is None, reason="needs openssl")
def test_tls(start, tmp_path):
    key, certificate = str(tmp_path / "key.pem"), str(tmp_path / "certificate.pem")
    make = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2"]
    names = ["-subj", "/CN=localhost", "-keyout", key, "-out", certificate]
    subprocess.run([*make, *names], check=True, capture_output=True, timeout=LIMIT)
    security = Security(
        tls_ca_file=certificate, tls_client_cert=certificate, tls_client_key=key, require_encryption=True
    )
    options = ("--tls-ca-file", certificate, "--tls-cert", certificate, "--tls-key", key)
    cluster, client = start(2, "--protocol", "tls", *options, security=security)
    assert cluster.address.startswith("tls://")
    check_moments(ends(lambda: accumulate(source(client), ROW_MAP, rows=20))[0])
    with refused(cluster.address, error=ConnectionError):
        connect(cluster.address, timeout=2)


def test_a_worker_killed_in_the_middle(start):
    cluster, client = start(2)
    victim = cluster.workers[0]
    kill = when(3, lambda: victim.send_signal(signal.SIGKILL))
    check_moments(ends(lambda: accumulate(source(client, kill), ROW_MAP, rows=20))[0])
    assert kill.acted
    assert victim.wait(LIMIT) == -signal.SIGKILL
    # The next pass has one worker, and what was shared went to nobody else.
    check_moments(ends(lambda: accumulate(source(client), ROW_MAP, rows=20))[0])


def test_a_worker_added_late_helps(start):
    cluster, client = start(1)
    late = when(2, cluster.add_worker)

    def start_slowly():
        time.sleep(1)
        return Workers()

    chunks, _ = ends(lambda: source(client, late).fold(start_slowly, 20))
    assert chunks.total() == CHUNKS
    assert len(chunks) == 2


def test_a_slow_worker_gets_fewer_tasks(start):
    cluster, client = start(1)
    slow = cluster.add_worker("--no-nanny", env={"SCALEFAIR_SLOW": "1"})
    client.wait_for_workers(2, timeout=LIMIT)
    chunks, _ = ends(lambda: source(client).fold(Workers, 20))
    assert chunks.total() == CHUNKS
    assert chunks[slow.pid] < chunks[cluster.workers[0].pid]
    check_moments(ends(lambda: accumulate(source(client), ROW_MAP, rows=20))[0])


class Glutton(Workers):
    def add(self, chunk):
        self.hoard = []
        for _ in range(100):
            self.hoard.append(np.ones(2_000_000))
            time.sleep(0.1)


def test_a_worker_out_of_memory_is_an_error_that_says_so(start):
    _, client = start(
        1, worker=("--nanny", "--memory-limit", "400MiB"), env={"DASK_DISTRIBUTED__SCHEDULER__ALLOWED_FAILURES": "0"}
    )
    error, _ = ends(lambda: source(client).fold(Glutton, 20))
    assert isinstance(error, RuntimeError)
    assert "out of memory" in str(error)


def test_a_lost_scheduler_is_an_error_in_time(start):
    cluster, client = start(2)
    address = cluster.address
    kill = when(3, lambda: cluster.scheduler.send_signal(signal.SIGKILL))
    error, _ = ends(lambda: accumulate(source(client, kill), ROW_MAP, rows=20))
    assert kill.acted
    assert isinstance(error, ConnectionError)
    assert address in str(error)
    again, seconds = ends(lambda: source(client).fold(Workers, 20))
    assert isinstance(again, OSError)
    assert seconds < 5


def test_a_dead_address_is_an_error_within_ten_seconds():
    error, seconds = ends(lambda: connect(f"tcp://{HERE}:1"))
    assert isinstance(error, ConnectionError)
    assert f"tcp://{HERE}:1" in str(error)
    assert seconds < 12
