"""Rows from parquet and on a dask cluster: what reading and moving cost.

    python -m benchmarks.streams [--rows 2000000] [--long-rows 10000000] [--folder DIR]

Needs some disk for the tables. Writes results/streams.csv.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from time import perf_counter, time
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks._measure import Numbers, peak_megabytes
from scalefair import FairKernelRidge, scan_parquet
from scalefair.datasets import make_biased_income

SENSITIVE = ["sex", "ethnicity", "age"]
PART = 250_000


def write_table(folder: Path, rows: int) -> Path:
    """Write a pay table of 20 mixed columns and its target, in files of 250,000 rows."""
    folder.mkdir(parents=True, exist_ok=True)
    for part, start in enumerate(range(0, rows, PART)):
        count = min(PART, rows - start)
        pay = make_biased_income(count, random_state=part)
        frame = pay.data.assign(pay=np.asarray(pay.target))
        rng = np.random.default_rng(part)
        for extra in range(21 - frame.shape[1]):
            frame[f"extra{extra}"] = rng.standard_normal(count)
        pq.write_table(pa.Table.from_pandas(frame, preserve_index=False), folder / f"{part:03}.parquet")
    return folder


def model(components: int) -> FairKernelRidge:
    return FairKernelRidge(n_components=components, eta=1.0, random_state=0)


def fit_scan(folder: Path, components: int, **parameters: Any) -> Any:
    scan = scan_parquet(folder)
    estimator = model(components).set_params(**parameters)
    return estimator.fit(scan.drop("pay"), scan["pay"], sensitive_features=scan[SENSITIVE])


def fit_memory(folder: Path, components: int) -> Callable[[], Any]:
    frame = pq.read_table(folder).to_pandas()
    X, y, s = frame.drop(columns="pay"), frame["pay"].to_numpy(), frame[SENSITIVE]
    return lambda: model(components).fit(X, y, sensitive_features=s)


def fit_dask(folder: Path, components: int) -> Any:
    import dask.dataframe as dd

    frame = dd.read_parquet(folder)
    X, y, s = frame.drop(columns="pay"), frame["pay"], frame[SENSITIVE]
    return model(components).fit(X, y, sensitive_features=s)


def seconds(run: Callable[[], Any], rounds: int = 3) -> float:
    run()
    times = []
    for _ in range(rounds):
        start = perf_counter()
        run()
        times.append(perf_counter() - start)
    return median(times)


@contextmanager
def cluster(workers: int) -> Iterator[Any]:
    """Worker processes of one thread each, and a client of theirs."""
    from distributed import Client, LocalCluster

    with (
        LocalCluster(n_workers=workers, threads_per_worker=1, dashboard_address=":0") as local,
        Client(local) as client,
    ):
        yield client


def on_workers(folder: Path, components: int, workers: int) -> float:
    with cluster(workers):
        return seconds(lambda: fit_dask(folder, components))


def traffic(folder: Path, components: int) -> tuple[float, float]:
    """Tasks of a fit on two workers, and megabytes between all processes, per partition."""
    partitions = len(list(folder.glob("*.parquet")))
    with cluster(2) as client:
        client.get_task_stream()  # from now on tasks are noted
        fit_dask(folder, components)
        before, since = _loopback_bytes(), time()
        fit_dask(folder, components)
        moved = _loopback_bytes() - before
        tasks = client.get_task_stream(start=since, count=100_000)
    return len(tasks) / partitions, moved / 1e6 / partitions


def _loopback_bytes() -> int:
    import psutil

    return int(psutil.net_io_counters(pernic=True)["lo"].bytes_sent)


LONG = """
import sys
from benchmarks.streams import fit_scan
from pathlib import Path
fit_scan(Path(sys.argv[1]), 300)
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--long-rows", type=int, default=10_000_000)
    parser.add_argument("--folder", type=Path, default=None)
    options = parser.parse_args()
    keep = Numbers()

    with tempfile.TemporaryDirectory(dir=options.folder) as scratch:
        table = write_table(Path(scratch) / "table", options.rows)
        streamed = seconds(lambda: fit_scan(table, 500))
        two, one = (on_workers(table, 500, workers) for workers in (2, 1))
        keep(f"parquet, in process, {options.rows} rows, m=500, seconds", streamed)
        keep("two workers of one thread, seconds", two)
        keep("two workers / in process", two / streamed, "<= 1.25")
        keep("one worker / two workers", one / two, ">= 1.7")
        tasks, moved = traffic(table, 500)
        keep("tasks per partition of 250000 rows", tasks)
        keep("MB moved between client, scheduler and workers per partition", moved)
        in_memory = seconds(fit_memory(table, 300))
        streamed = seconds(lambda: fit_scan(table, 300))
        keep("reading parquet / frames in memory, m=300", streamed / in_memory, "<= 1.25")
        long = write_table(Path(scratch) / "long", options.long_rows)
        keep(f"peak MB, {options.long_rows} rows from parquet, m=300", peak_megabytes(LONG, long), "< 1500")
    keep.save("streams.csv")


if __name__ == "__main__":
    main()
