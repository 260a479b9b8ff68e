"""--scheduler: the workers of a real cluster compute, and the results are the same."""

import json

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import scalefair
from scalefair import scan_csv, scan_parquet
from scalefair.data.sources.dask_tasks import dask_frame
from scalefair.data.sources.files import pieces_of, read_piece
from tests.cli_tools import people, run, succeed
from tests.data.test_dask_cluster import Cluster
from tests.tables import mixed

FIT = ["--target", "pay", "--sensitive", "sex", "--components", 20]


@pytest.mark.parametrize("size", [300, 7777, 10**9])
def test_pieces_of_a_csv_are_its_rows(tmp_path, size):
    people(300).to_csv(tmp_path / "d.csv", index=False)
    people(200, 1).to_csv(tmp_path / "e.csv", index=False)
    scan = scan_csv(tmp_path / "?.csv")[["pay", "job", "hired"]]
    pieces = pieces_of(scan, size=size)
    assert len(pieces) >= 2
    assert pa.concat_tables([read_piece(scan, p) for p in pieces]).equals(scan.read())


def test_a_compressed_csv_is_one_piece_and_the_last_line_may_be_unfinished(tmp_path):
    people(300).to_csv(tmp_path / "d.csv.gz", index=False)
    scan = scan_csv(tmp_path / "d.csv.gz")
    (piece,) = pieces_of(scan, size=10)
    assert read_piece(scan, piece).equals(scan.read())
    (tmp_path / "e.csv").write_text("a,b\n1,2\n3,4")
    scan = scan_csv(tmp_path / "e.csv")
    rows = pa.concat_tables([read_piece(scan, p) for p in pieces_of(scan, size=3)])
    assert rows.to_pydict() == {"a": [1, 3], "b": [2, 4]}


@pytest.mark.parametrize(("rows", "count"), [(1, 8), (150, 5), (10**9, 2)])
def test_pieces_of_parquet_are_whole_row_groups(tmp_path, rows, count):
    table = mixed(500)
    pq.write_table(table[:320], tmp_path / "0.parquet", row_group_size=70)
    pq.write_table(table[320:], tmp_path / "1.parquet", row_group_size=70)
    scan = scan_parquet(tmp_path)
    pieces = pieces_of(scan, rows=rows)
    assert len(pieces) == count
    found = pa.concat_tables([read_piece(scan, p) for p in pieces])
    assert found.to_pydict() == scan.read().to_pydict()


def test_a_dask_frame_of_files_gives_the_same_model(tmp_path):
    table = mixed(500)
    pq.write_table(table, tmp_path / "d.parquet", row_group_size=90)
    scan = scan_parquet(tmp_path / "d.parquet").drop("w")
    model = scalefair.FairRidge(eta=1.0, sensitive_columns=["level"], random_state=0)
    expected = model.fit(scan.drop("y"), scan["y"]).coef_
    frame = dask_frame(scan)
    assert frame.npartitions == 1
    found = model.fit(frame.drop(columns="y"), frame["y"]).coef_
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-10)


@pytest.mark.processes
def test_a_cluster_gives_the_same_results(tmp_path):
    for i in range(4):
        people(300, i).to_csv(tmp_path / f"{i}.csv", index=False)
    pattern = tmp_path / "*.csv"
    cluster = Cluster(tmp_path)
    try:
        for _ in range(2):
            cluster.add_worker("--no-nanny")
        there = ["--scheduler", cluster.address]
        results = []
        for own in ([], there):
            model, out = tmp_path / "m.scalefair", tmp_path / "p.parquet"
            steps = [
                ["fit", pattern, *FIT, "--out", model, "--json"],
                ["predict", model, pattern, "--keep", "id,sex", "--out", out, "--json"],
                ["audit", out, "--sensitive", "sex", "--json"],
                ["moments", pattern, "--like", model, "--out", tmp_path / "m.moments", "--json"],
                ["frontier", pattern, *FIT, "--model", "kernel", "--out", tmp_path / "report", "--json"],
            ]
            records = []
            for step in steps:
                code, stdout, err = run(*step, *own) if own else (0, succeed(*step), "")
                assert code == 0, err
                records.append(json.loads(stdout))
            results.append((records, pd.read_parquet(out)))
    finally:
        cluster.close()
    (here, at_home), (far, away) = results
    assert (at_home["id"] == away["id"]).all()
    np.testing.assert_allclose(at_home["prediction"], away["prediction"], rtol=1e-9)
    for name in ("alpha", "eta", "explained_share_cv", "r2_cv"):
        assert far[0][name] == pytest.approx(here[0][name], rel=1e-6)
    assert far[3]["rows"] == here[3]["rows"] == 1200
    values = [[row["value"] for row in records[2]["table"]] for records in (here, far)]
    np.testing.assert_allclose(*values, rtol=1e-6, atol=1e-9)
    assert far[4]["rows"] == here[4]["rows"]


def test_a_table_that_does_not_fit_is_streamed(tmp_path, monkeypatch):
    """The report then judges rows that were never fitted, as many as in memory."""
    table = people(1200).drop(columns="id")
    table.to_parquet(tmp_path / "d.parquet")
    rich = np.where(table["pay"] > table["pay"].median(), "yes", "no")
    table.assign(pay=rich).to_parquet(tmp_path / "c.parquet")
    for name in "dc":
        records = []
        for cells in (10**8, 0):
            monkeypatch.setattr("scalefair.cli.frontier.LARGE_CELLS", cells)
            own = [*FIT, "--model", "kernel", "--out", tmp_path / "report", "--json"]
            records.append(json.loads(succeed("frontier", tmp_path / f"{name}.parquet", *own)))
        here, streamed = records
        assert streamed["rows"] == here["rows"] == {"train": 960, "test": 240}
        assert streamed["target_levels"] == here["target_levels"]
        assert streamed["before"]["r2"] == pytest.approx(here["before"]["r2"], abs=0.05)
        assert streamed["after"]["share"]["value"] < 0.1 < streamed["before"]["share"]["value"]
