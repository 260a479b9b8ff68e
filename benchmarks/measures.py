"""What measuring costs beyond reading the rows, and next to hyppo.

    python -m benchmarks.measures [--rows 10000000] [--folder DIR]

Needs some disk for the table; hyppo where it is to be compared with. Writes results/measures.csv.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks._measure import Numbers, peak_megabytes
from scalefair import scan_parquet
from scalefair.features.base import whitened
from scalefair.measures import explained_share, hsic, hsic_test, mutual_information
from scalefair.measures._features import CHUNK_ROWS, feature_pair
from scalefair.measures._pair import open_pair
from scalefair.measures.share import open_share

PART = 250_000
TEST_ROWS = 10_000


def write_table(folder: Path, rows: int) -> Path:
    """Write predictions, an age and a group, in files of 250,000 rows."""
    folder.mkdir(parents=True, exist_ok=True)
    for part, start in enumerate(range(0, rows, PART)):
        count = min(PART, rows - start)
        rng = np.random.default_rng(part)
        age, group = rng.normal(size=count), rng.integers(0, 4, count)
        columns = {
            "prediction": np.sin(age) + 0.3 * group + rng.normal(size=count),
            "age": age,
            "group": pa.array(np.array(["a", "b", "c", "d"])[group]).dictionary_encode(),
        }
        pq.write_table(pa.table(columns), folder / f"{part:03}.parquet")
    return folder


class _Mapper:
    """Accumulator that maps the rows and forgets them."""

    def __init__(self, features: Any) -> None:
        self._features, self._rows = features, 0

    def add(self, chunk: Any) -> None:
        whitened(self._features.phi, chunk.x)
        whitened(self._features.psi, chunk.s)
        self._rows += chunk.n_rows

    def result(self) -> int:
        return self._rows


def maps_of(measure: Callable[..., float], folder: Path, columns: list[str]) -> Any:
    """Return the rows and the very maps that a measure uses."""
    scan = scan_parquet(folder)
    f, s = scan["prediction"], scan[columns]
    if measure is hsic:
        return feature_pair(open_pair(f, s))
    return open_share(f, s, None, kernel="auto", length_scale="median", size=100, random_state=0)


def read_and_map(features: Any) -> int:
    """Read the rows and compute their features, and nothing else."""
    return features.pair.source.fold(lambda: _Mapper(features), CHUNK_ROWS)


def seconds(run: Callable[[], Any], rounds: int = 3) -> float:
    run()
    times = []
    for _ in range(rounds):
        start = perf_counter()
        run()
        times.append(perf_counter() - start)
    return median(times)


def pair_of(rows: int) -> tuple[Any, Any]:
    rng = np.random.default_rng(0)
    x = rng.normal(size=rows)
    return x, 0.02 * x + rng.normal(size=rows)


STREAMED = """
import sys
from scalefair import scan_parquet
from scalefair.measures import explained_share, hsic
scan = scan_parquet(sys.argv[1])
hsic(scan["prediction"], scan[["age", "group"]])
explained_share(scan["prediction"], scan[["age", "group"]])
"""
AUDITED = """
import sys
from scalefair import audit, scan_parquet
scan = scan_parquet(sys.argv[1])
audit(scan["prediction"], sensitive_features=scan[["age", "group"]])
"""
BASE = """
import numpy as np
from benchmarks.measures import pair_of, TEST_ROWS
{imports}
x, y = pair_of({rows})
{run}
"""
OURS = {"imports": "from scalefair.measures import hsic_test", "run": "hsic_test(x, y)"}
THEIRS = {"imports": "from hyppo.independence import Hsic", "run": "Hsic().test(x[:, None], y[:, None], auto=True)"}


def test_peak(who: dict[str, str]) -> float:
    """Peak memory of a test of 10,000 rows beyond that of one of 100."""
    peaks = [peak_megabytes(BASE.format(rows=rows, **who)) for rows in (TEST_ROWS, 100)]
    return max(peaks[0] - peaks[1], 0.1)


def against_hyppo(keep: Callable[..., None]) -> None:
    try:
        from hyppo.independence import Hsic
    except ImportError:
        print("hyppo is not installed: pip install hyppo to compare")
        return
    x, y = pair_of(TEST_ROWS)
    theirs = seconds(lambda: Hsic().test(x[:, None], y[:, None], auto=True), rounds=3)
    ours = seconds(lambda: hsic_test(x, y), rounds=5)
    keep(f"hsic_test, {TEST_ROWS} rows, seconds", ours)
    keep("hyppo's chi-square / hsic_test, time", theirs / ours, ">= 20")
    keep("hyppo's chi-square / hsic_test, MB", test_peak(THEIRS) / test_peak(OURS), ">= 20")


def permutation_error(rows: int, repeats: int) -> float:
    """Largest distance of p-values from those of 10,000 permutations."""
    errors = []
    for seed in range(repeats):
        rng = np.random.default_rng(seed)
        x = rng.normal(size=rows)
        y = 0.5 / np.sqrt(rows) * x + rng.normal(size=rows)
        many = hsic_test(x, y, method="permutation", n_permutations=10_000).pvalue
        errors.append(abs(hsic_test(x, y).pvalue - many))
    return max(errors)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--folder", type=Path, default=None)
    options = parser.parse_args()
    keep = Numbers()

    with tempfile.TemporaryDirectory(dir=options.folder) as scratch:
        table = write_table(Path(scratch) / "table", options.rows)
        scan = scan_parquet(table)
        for columns in (["age"], ["age", "group"]):
            for measure in (hsic, explained_share):
                what = f"{measure.__name__} of {' and '.join(columns)}"
                features = maps_of(measure, table, columns)
                mapping = seconds(partial(read_and_map, features))
                time = seconds(partial(measure, scan["prediction"], scan[columns]))
                keep(f"{what}, {options.rows} rows, seconds", time)
                keep(f"{what} / reading and mapping", time / mapping, "<= 3")
        short = write_table(Path(scratch) / "short", options.rows // 10)
        # A whole audit takes many passes: a tenth of the rows is enough to tell.
        least = write_table(Path(scratch) / "least", options.rows // 100)
        runs = ("", STREAMED, table, short), ("audit, ", AUDITED, short, least)
        for what, code, *folders in runs:
            peaks = [peak_megabytes(code, folder) for folder in folders]
            n_rows = options.rows // (1 if folders[0] == table else 10)
            keep(f"{what}peak MB, {n_rows} rows", peaks[0])
            ratio = peaks[0] / peaks[1]
            keep(f"{what}peak MB, ten times the rows / a tenth of them", ratio, "<= 1.25")
    against_hyppo(keep)
    keep("largest error of p-values, 2000 rows", permutation_error(2000, 5), "<= 0.02")
    x, y = pair_of(100_000)
    keep("mutual information, 100000 rows, seconds", seconds(lambda: mutual_information(x, y), 1), "< 60")
    keep.save("measures.csv")


if __name__ == "__main__":
    main()
