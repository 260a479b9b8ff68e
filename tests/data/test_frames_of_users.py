"""Columns of types that only some containers have, through a whole fit."""

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from scalefair import FairKernelRidge, FairRidge, scan_parquet


def test_a_frame_of_numbers_and_durations_is_encoded_as_days_in_memory_and_from_files(tmp_path):
    rng = np.random.default_rng(0)
    hours, a, s = rng.integers(0, 99, 60), rng.normal(size=60), rng.normal(size=60)
    X = pd.DataFrame({"a": a, "wait": pd.to_timedelta(hours, unit="h")})
    days = X.assign(wait=pd.Timestamp("1970-01-01") + X["wait"])  # a date is the same number
    model = FairRidge(eta=1.0)
    expected = model.fit(days, a + hours, sensitive_features=s).predict(days)
    np.testing.assert_allclose(model.fit(X, a + hours, sensitive_features=s).predict(X), expected)
    X.to_parquet(tmp_path / "x.parquet")
    scan = scan_parquet(tmp_path / "x.parquet")
    streamed = model.fit(scan, a + hours, sensitive_features=s).predict(scan)
    np.testing.assert_allclose(streamed, expected)


@pytest.mark.parametrize("kind", ["x", "s"])
def test_string_views_of_pyarrow_are_text(kind):
    text = pa.array(list("uvwu") * 10)
    view = text.cast(pa.string_view())
    y = np.arange(40.0)
    fits = []
    for column in (text, view):
        x = pa.table({"a": y**2, "b": column if kind == "x" else text})
        s = pa.chunked_array([column if kind == "s" else text])
        fits.append(FairKernelRidge(n_components=8, eta=1.0, random_state=0))
        fits[-1].fit(x, y, sensitive_features=s)
        np.testing.assert_array_equal(fits[-1].predict(x[:9]), fits[0].predict(x[:9]))
