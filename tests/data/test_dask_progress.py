"""Callbacks hear of the tasks of a fit on dask; `with client.as_current()` chooses who computes."""

from __future__ import annotations

import dask
import dask.array as da
import numpy as np
import pytest
from distributed import Client, LocalCluster

from scalefair import FairKernelRidge, FairRidge
from scalefair.data.sources import DaskSource
from tests.errors import refused
from tests.solve.test_solver_choice import Recorder

pytestmark = pytest.mark.processes

RNG = np.random.default_rng(0)
S = RNG.integers(0, 2, 600).astype(float)
X = RNG.normal(size=(600, 3)) + S[:, None]
Y = X.sum(axis=1) + RNG.normal(size=600)


def fit(recorder=None):
    model = FairKernelRidge(n_components=20, eta=1.0, random_state=0)
    if recorder is not None:
        model.set_callbacks(recorder)
    X_, Y_, S_ = (da.from_array(part, chunks=100) for part in (X, Y, S))
    return model.fit(X_, Y_, sensitive_features=S_)


@pytest.fixture(scope="module")
def clients():
    """Two clusters within this process, neither of them the default."""

    def start():
        return LocalCluster(n_workers=1, threads_per_worker=1, processes=False, dashboard_address=":0")

    with (
        start() as one,
        start() as two,
        Client(one, set_as_default=False) as first,
        Client(two, set_as_default=False) as second,
    ):
        yield first, second


def check(recorder):
    """The pass over the moments is one task of its own, and each of its parts ends once begun."""
    assert recorder.begun.count("tasks") >= 2
    assert sorted(recorder.begun) == sorted(recorder.ended)


@pytest.mark.parametrize("scheduler", ["synchronous", "threads"])
def test_callbacks_hear_of_tasks_in_process(scheduler):
    recorder = Recorder()
    with dask.config.set(scheduler=scheduler):
        fitted = fit(recorder)
    check(recorder)
    np.testing.assert_allclose(fitted.coef_, fit().coef_, rtol=0, atol=1e-10)


def test_callbacks_hear_of_tasks_on_a_cluster(clients):
    recorder = Recorder()
    with clients[0].as_current():
        fit(recorder)
    check(recorder)


def test_the_current_client_computes(clients):
    first, second = clients
    with first.as_current():
        assert DaskSource(da.from_array(X, chunks=100))._cluster() is first
        with second.as_current():
            assert DaskSource(da.from_array(X, chunks=100))._cluster() is second
    assert DaskSource(da.from_array(X, chunks=100), client=second)._cluster() is second


def test_tasks_ran_where_they_were_sent(clients):
    """The scheduler of the client that was not current has seen none of a fit's tasks."""
    first, second = clients

    def seen(client):
        def groups(dask_scheduler):
            return sum(name.startswith("scalefair") for name in dask_scheduler.task_prefixes)

        return client.run_on_scheduler(groups)

    before = seen(second)
    with first.as_current():
        fit()
    assert seen(first) > 0
    assert seen(second) == before


def test_a_failing_fit_on_dask_leaves_no_callback_open():
    recorder = Recorder()
    bad = da.from_array(np.where(np.arange(600)[:, None] == 555, np.nan, X), chunks=100)
    model = FairRidge(eta=0).set_callbacks(recorder)
    with refused("partition 5", error=ValueError):
        model.fit(bad, da.from_array(Y, chunks=100))
    assert not hasattr(model, "coef_")
