"""Workers of a cluster that are killed at random moments: the same sums every time."""

from __future__ import annotations

import signal
import time
from threading import Timer

import dask.array as da
import numpy as np
import pytest

from scalefair.data.sources import ArraySource
from scalefair.data.sources.dask import DaskSource, connect
from scalefair.features.design import Design
from scalefair.maps import RandomFourier
from scalefair.moments import accumulate
from tests.clusters import LIMIT, Cluster, ends
from tests.faults import RNG, TIMES, N, X, Y, nothing_left_running

ROW_MAP = Design(RandomFourier(n_components=30, random_state=0).fit(X))


def slowly(chunk):
    time.sleep(0.01)
    return chunk


@pytest.mark.processes
def test_a_worker_killed_at_any_moment(tmp_path):
    """Before, during or after its tasks; others come for those that went."""
    (expected,) = accumulate(ArraySource(X, y=Y[:, None]), ROW_MAP)
    cluster = Cluster(tmp_path)
    try:
        with nothing_left_running(), connect(cluster.address, timeout=LIMIT) as client:
            for _ in range(3):
                cluster.add_worker("--no-nanny")
            client.wait_for_workers(3, timeout=LIMIT)
            run(client, expected)  # the maps are compiled and sent
            usual = run(client, expected)
            for _ in range(TIMES):
                if len(cluster.workers) < 2:
                    refill(cluster, client)
                victim = cluster.workers[RNG.integers(len(cluster.workers))]
                killer = Timer(RNG.uniform(0, usual), victim.send_signal, [signal.SIGKILL])
                killer.start()
                run(client, expected)
                killer.join()
                assert victim.wait(LIMIT) == -signal.SIGKILL
                cluster.workers.remove(victim)
    finally:
        cluster.close()


def run(client, expected):
    """Sum all rows, in thirty tasks; return the seconds it took."""
    rows = DaskSource(da.from_array(X, 50), y=da.from_array(Y[:, None], 80), client=client, rows_per_task=100)
    found, seconds = ends(lambda: accumulate(rows.then(slowly), ROW_MAP, rows=20))
    assert not isinstance(found, BaseException), repr(found)
    (moments,) = found
    assert moments.n_rows == N
    scale = np.abs(expected.scatter).max()
    np.testing.assert_allclose(moments.scatter, expected.scatter, rtol=0, atol=1e-10 * scale)
    return seconds


def refill(cluster, client):
    """Start workers until there are three again."""
    while len(cluster.workers) < 3:
        cluster.add_worker("--no-nanny")
    deadline = time.monotonic() + LIMIT
    while len(client.scheduler_info()["workers"]) != 3 and time.monotonic() < deadline:
        time.sleep(0.05)
