"""Labels and rows from dask, files, frames and batches: the same model, whatever brings them."""

from functools import partial

import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest

from scalefair import FairKernelClassifier, FairKernelRegressor, scan_parquet
from tests import containers
from tests.containers import contained
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


def in_container(kind, X, y, folder=None):
    return contained(kind, X.assign(label=y), folder, X=list(X), y="label")


def as_dask(X, y):
    return in_container("dask", X, y)


def labels_in_memory(kind):
    return lambda X, y, folder: (in_container(kind, X, y, folder)[0], y)


CONTAINERS = {kind: partial(in_container, kind) for kind in containers.CONTAINERS} | {
    "labels in memory": labels_in_memory("dask"),
    "parquet, labels in memory": labels_in_memory("parquet"),
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
        scan.drop(["label", "w"]), scan["label"], sensitive_features=scan["sex"], sample_weight=scan["w"]
    )
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
    for given_X, given_y in (as_dask(X, y), in_container("parquet", X, y, tmp_path)):
        fit = FairKernelRegressor(loss="poisson", random_state=0, **settings)
        fit_within({"chunk_rows": 70}, fit, given_X, given_y)
        np.testing.assert_allclose(np.asarray(fit.predict(given_X)), reference, rtol=1e-7)
        assert fit.eta_ == pytest.approx(expected.eta_, rel=1e-6)
    assert isinstance(fit.predict(as_dask(X, y)[0]), da.Array)
    bad = y.copy()
    bad[250] = -2
    with refused("-2.0", "Poisson"):
        FairKernelRegressor(loss="poisson", **settings).fit(*as_dask(X, bad))
