"""Labels and rows from dask, files, frames and batches: the same model, whatever brings them."""

import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from scalefair import (
    BatchSource,
    FairKernelClassifier,
    FairKernelRegressor,
    scan_csv,
    scan_parquet,
)
from tests.errors import refused
from tests.models import fit_within

N = 300
LABELS = {"text": ["low", "mid", "top"], "integers": [3, 5, 9], "two": ["no", "yes"]}


def table(kind="text"):
    rng = np.random.default_rng(0)
    labels = np.array(LABELS[kind])
    frame = pd.DataFrame(
        {
            "age": rng.integers(18, 80, N).astype(float),
            "hours": rng.gamma(5.0, 8.0, N),
            "job": rng.choice(["clerk", "cook", "nurse"], N),
            "sex": rng.choice(["f", "m"], N),
        }
    )
    signal = frame["age"] / 20 + (frame["sex"] == "m") + (frame["job"] == "clerk")
    cuts = np.quantile(signal, np.arange(1, len(labels)) / len(labels))
    noisy = signal + 0.5 * rng.standard_normal(N)
    return frame, pd.Series(labels[np.searchsorted(cuts, noisy)], name="label")


def model(**parameters):
    settings = {"sensitive_columns": ["sex"], "eta": 0.5, "n_components": 25, "random_state": 0}
    return FairKernelClassifier(**(settings | parameters))


def as_dask(X, y):
    return dd.from_pandas(X, npartitions=4), dd.from_pandas(y.to_frame(), npartitions=4)["label"]


def unknown_lengths(X, y):
    dask_X, dask_y = as_dask(X, y)
    return dask_X[dask_X["age"] > 0], dask_y[dask_y != ""]


def files(X, y, folder, kind):
    whole = X.assign(label=y)
    for part in range(3):
        rows = whole.iloc[part * 100 : (part + 1) * 100]
        if kind == "csv":
            rows.to_csv(folder / f"{part}.csv", index=False)
        else:
            rows.to_parquet(folder / f"{part}.parquet", index=False)
    scan = (scan_csv if kind == "csv" else scan_parquet)(folder)
    return scan.drop("label"), scan["label"]


def batches(X, y):
    starts = range(0, N, 70)
    return BatchSource(lambda: ((X[a : a + 70], y[a : a + 70]) for a in starts)), None


CONTAINERS = {
    "dask": lambda X, y, _: as_dask(X, y),
    "dask of unknown lengths": lambda X, y, _: unknown_lengths(X, y),
    "labels in memory": lambda X, y, _: (as_dask(X, y)[0], y),
    "parquet": lambda X, y, folder: files(X, y, folder, "parquet"),
    "parquet, labels in memory": lambda X, y, folder: (files(X, y, folder, "parquet")[0], y),
    "csv": lambda X, y, folder: files(X, y, folder, "csv"),
    "polars": lambda X, y, _: (pl.from_pandas(X), pl.from_pandas(y)),
    "arrow": lambda X, y, _: (pa.Table.from_pandas(X), y.to_numpy()),
    "batches": lambda X, y, _: batches(X, y),
}


NUMBERS = ["dask", "parquet", "batches"]
CASES = [*((c, "text") for c in CONTAINERS if c != "batches"), *((c, "integers") for c in NUMBERS)]


@pytest.mark.parametrize(("container", "kind"), [*CASES, ("parquet", "two")])
def test_every_container_gives_the_same_model(container, kind, tmp_path):
    X, y = table(kind)
    expected = model().fit(X, y)
    given_X, given_y = CONTAINERS[container](X, y, tmp_path)
    fit = fit_within({"chunk_rows": 64}, model(), given_X, given_y)
    assert fit.classes_.tolist() == LABELS[kind]
    np.testing.assert_allclose(fit.coef_, expected.coef_, atol=1e-8)
    np.testing.assert_allclose(fit.intercept_, expected.intercept_, atol=1e-8)
    p = np.asarray(fit.predict_proba(given_X))
    np.testing.assert_allclose(p, expected.predict_proba(X), atol=1e-8)
    assert (np.asarray(fit.predict(given_X)) == expected.predict(X)).all()


@pytest.mark.parametrize("kind", ["text", "two"])
def test_dask_in_dask_out(kind):
    X, y = table(kind)
    dask_X, dask_y = as_dask(X, y)
    fit = model().fit(dask_X, dask_y)
    k = len(LABELS[kind])
    outs = [fit.predict(dask_X), fit.predict_proba(dask_X), fit.decision_function(dask_X)]
    assert all(isinstance(out, da.Array) for out in outs)
    labels, p, f = (out.compute() for out in outs)
    assert outs[0].dtype == labels.dtype
    assert p.shape == (N, k)
    assert f.shape == ((N,) if k == 2 else (N, k))
    assert (labels == np.array(LABELS[kind])[p.argmax(axis=1)]).all()
    assert isinstance(fit.coef_, np.ndarray)


def test_weights_and_attributes_of_a_stream(tmp_path):
    X, y = table()
    weight = np.random.default_rng(1).integers(0, 3, N).astype(float)
    weight[y == "mid"] = 0.0  # a class without weight is none
    s = X["sex"]
    apart = model(sensitive_columns=None)
    expected = apart.fit(X, y, sensitive_features=s, sample_weight=weight)
    assert expected.classes_.tolist() == ["low", "top"]
    reference = np.asarray(expected.predict_proba(X))
    dask_X, dask_y = as_dask(X, y)
    dask_s = dd.from_pandas(s.to_frame(), npartitions=2)["sex"]
    fit = model(sensitive_columns=None).fit(
        dask_X, dask_y, sensitive_features=dask_s, sample_weight=da.from_array(weight, chunks=50)
    )
    np.testing.assert_allclose(fit.predict_proba(dask_X).compute(), reference, atol=1e-8)
    X.assign(label=y, w=weight).to_parquet(tmp_path / "all.parquet", index=False)
    scan = scan_parquet(tmp_path)
    fit = model(sensitive_columns=None).fit(
        scan.drop(["label", "w"]), scan["label"], sensitive_features=scan["sex"],
        sample_weight=scan["w"],
    )  # fmt: skip
    np.testing.assert_allclose(fit.predict_proba(X), reference, atol=1e-8)


def test_the_path_of_a_stream():
    X, y = table()
    dask_X, dask_y = as_dask(X, y)
    fit = model().fit(X, y)
    etas = [0.0, 0.5, np.inf]
    expected = fit.path(X, y, etas).table
    found = fit.path(dask_X, dask_y, etas).table
    np.testing.assert_allclose(found["loss"], expected["loss"], rtol=1e-9)
    np.testing.assert_allclose(found["explained_share"], expected["explained_share"], atol=1e-9)


def test_missing_labels_of_a_stream_are_named():
    X, y = table()
    y[3] = None
    with refused("y", "1 row"):
        model().fit(*as_dask(X, y))
    one = pd.Series(np.zeros(N), name="label")
    with refused("one class"):
        model().fit(*as_dask(X, one))


def test_counts_from_dask_and_files(tmp_path):
    X, _ = table()
    y = pd.Series(np.random.default_rng(2).poisson(X["age"] / 20).astype(float), name="label")
    settings = {"sensitive_columns": ["sex"], "unfairness": 0.01, "n_components": 25}
    expected = FairKernelRegressor(loss="poisson", random_state=0, **settings).fit(X, y)
    reference = expected.predict(X)
    for given_X, given_y in (as_dask(X, y), files(X, y, tmp_path, "parquet")):
        fit = FairKernelRegressor(loss="poisson", random_state=0, **settings)
        fit_within({"chunk_rows": 70}, fit, given_X, given_y)
        np.testing.assert_allclose(np.asarray(fit.predict(given_X)), reference, rtol=1e-7)
        assert fit.eta_ == pytest.approx(expected.eta_, rel=1e-6)
    assert isinstance(fit.predict(as_dask(X, y)[0]), da.Array)
    bad = y.copy()
    bad[250] = -2
    with refused("-2.0", "Poisson"):
        FairKernelRegressor(loss="poisson", **settings).fit(*as_dask(X, bad))
