"""How many tests run at once, which cases they try, and settings that numpy must not miss."""

import os
import sys

import hypothesis
import pytest
from hypothesis.internal.conjecture import providers

os.environ["MPLBACKEND"] = "agg"  # no test opens a window

if "PYTEST_XDIST_WORKER" in os.environ:
    # Tests run side by side, one a core: threads of BLAS would only wait for each other. Tests of
    # threads ask for them by name.
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ.setdefault(name, "1")

# Boosted trees ask for the number of cores, which starts a process, once. joblib imports numpy, so
# not before the threads are set.
import joblib

joblib.cpu_count(only_physical_cores=True)

# The same cases in every run, wherever a test runs; others in each run with SCALEFAIR_FUZZ.
same = "SCALEFAIR_FUZZ" not in os.environ
hypothesis.settings.register_profile("ours", derandomize=same, deadline=None, database=None)
hypothesis.settings.load_profile("ours")
if same and hasattr(providers, "_get_local_constants"):
    # hypothesis also tries the numbers of our modules that are imported already: which ones, that
    # depends on the tests a worker has run before.
    providers._get_local_constants = lambda: providers._local_constants


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers(config):
    """One process a core, and no more than OMP_NUM_THREADS says; none beside this one if one."""
    try:
        cores = len(os.sched_getaffinity(0))
    except AttributeError:  # not on every operating system
        cores = os.cpu_count() or 1
    limit = os.environ.get("OMP_NUM_THREADS", "")
    count = min(cores, int(limit)) if limit.isdecimal() else cores
    return count if count > 1 else 0


@pytest.fixture
def one_blas_thread():
    """Keep BLAS from waiting for a second thread on small matrices."""
    from threadpoolctl import threadpool_limits

    with threadpool_limits(1, user_api="blas"):
        yield


@pytest.fixture
def routing():
    """scikit-learn routes sensitive features and weights to those who ask for them."""
    from sklearn import config_context

    with config_context(enable_metadata_routing=True):
        yield


STARTS = ("subprocess.Popen", "os.fork", "os.posix_spawn")
unmarked = []  # the test that runs, unless it may start processes


def watch(event, arguments):
    """Raise where a test without the mark starts a process: it would be slow, or hang, unseen."""
    fonts = "fc-list" in str(arguments)  # matplotlib lists them once, on a new machine
    if event in STARTS and unmarked and not fonts:
        raise RuntimeError(f"{unmarked[0]} starts a process; mark it pytest.mark.processes")


sys.addaudithook(watch)


def pytest_runtest_setup(item):
    unmarked[:] = [] if item.get_closest_marker("processes") else [item.nodeid]
