"""Large public tables, fitted from their parquet files where they are at hand."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from scalefair import FairKernelRidge, scan_parquet

ROOT = Path(__file__).resolve().parents[2]
DATA = Path(os.environ.get("SCALEFAIR_DATA", ROOT.parent / "shared" / "data"))


def table(name):
    path = DATA / name
    if not path.exists():
        pytest.skip(f"no {name}: set SCALEFAIR_DATA to the folder that holds it")
    return path


def test_acs_income():
    path = table("acs_income_2018_regression/acs-income-2018-holdout.parquet")
    scan = scan_parquet(path)
    income = np.log(pq.read_table(path, columns=["Income"])["Income"].to_numpy())
    model = FairKernelRidge(n_components=60, unfairness=0.05, random_state=0)
    sensitive = scan[["Gender", "Race", "Age"]]
    model.fit(scan.drop("Income"), income, sensitive_features=sensitive)
    assert model.n_samples_seen_ == 295_243
    assert model.explained_share_ == pytest.approx(0.05, abs=1e-6)
    head = scan.head(1000)
    predicted = model.predict(head.drop(["Income"]))
    assert np.corrcoef(predicted, income[:1000])[0, 1] > 0.3


def test_folktables_income():
    folder = table("folktables_2018")
    scan = scan_parquet([folder / f"ACSIncome.{part}.parquet" for part in ("test", "validation")])
    model = FairKernelRidge(n_components=60, unfairness=0.02, sensitive_kernel="categorical", random_state=0)
    model.fit(scan.drop("PINCP"), scan["PINCP"], sensitive_features=scan[["SEX", "RAC1P"]])
    assert model.n_samples_seen_ == 665_800
    assert model.explained_share_ == pytest.approx(0.02, abs=1e-6)
