"""Workers of a cluster that are killed at random moments: the same sums every time."""

from __future__ import annotations

import signal
import time
from threading import Timer

import dask.array as da
import numpy as np

from scalefair.maps import RandomFourier
from scalefair.statistics import RowMap, accumulate
from scalefair.stream import ArraySource
from scalefair.stream.dask import DaskSource, connect
from tests.clusters import LIMIT, Cluster, ends
from tests.faults import RNG, TIMES, N, X, Y, nothing_left_running

ROW_MAP = RowMap(RandomFourier(n_components=30, random_state=0).fit(X))


def slowly(chunk):
    time.sleep(0.01)
    return chunk


@TIMES
def test_a_worker_killed_at_any_moment(times, tmp_path):
    """Before, during or after its tasks; another one comes for it each time."""
    y = Y[:, None]
    (expected,) = accumulate(ArraySource(X, y=y), ROW_MAP)
    source = {"x": da.from_array(X, 50), "y": da.from_array(y, 80), "rows_per_task": 100}
    cluster = Cluster(tmp_path)
    try:
        with nothing_left_running(), connect(cluster.address, timeout=LIMIT) as client:
            for _ in range(2):
                cluster.add_worker("--no-nanny")
            client.wait_for_workers(2, timeout=LIMIT)
            usual = 0.0
            for run in range(min(times, 2) + times):
                rows = DaskSource(**source, client=client).then(slowly)
                victim = cluster.workers[RNG.integers(2)]
                killer = Timer(RNG.uniform(0, usual), victim.send_signal, [signal.SIGKILL])
                if run >= min(times, 2):  # the first runs show how long one takes
                    killer.start()
                found, seconds = ends(lambda rows=rows: accumulate(rows, ROW_MAP, rows=20))
                assert not isinstance(found, BaseException), repr(found)
                check(found, expected)
                usual = max(seconds, 0.1) if run < min(times, 2) else usual
                if killer.ident is not None:
                    replace(cluster, client, killer, victim)
    finally:
        cluster.close()


def check(found, expected):
    (moments,) = found
    assert moments.n_rows == N
    scale = np.abs(expected.scatter).max()
    np.testing.assert_allclose(moments.scatter, expected.scatter, rtol=0, atol=1e-10 * scale)


def replace(cluster, client, killer, victim):
    """Wait for the end of the victim and start another worker."""
    killer.join()
    assert victim.wait(LIMIT) == -signal.SIGKILL
    cluster.workers.remove(victim)
    cluster.add_worker("--no-nanny")
    addresses = len(client.scheduler_info()["workers"])
    client.wait_for_workers(max(2, min(addresses, 2)), timeout=LIMIT)
    deadline = time.monotonic() + LIMIT
    while len(client.scheduler_info()["workers"]) != 2 and time.monotonic() < deadline:
        time.sleep(0.05)
