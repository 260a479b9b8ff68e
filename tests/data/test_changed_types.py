"""A column that holds something else than in fit is refused by name, also where fit had numbers only."""

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from scalefair import BatchSource, FairGPRegressor, FairKernelClassifier, FairKernelRidge, FairRidge, scan_parquet
from scalefair.errors import InputError
from tests.cli_tools import call, refuse
from tests.errors import refused

N = 60
RNG = np.random.default_rng(0)
X = pd.DataFrame({"a": RNG.normal(size=N), "b": RNG.normal(size=N)})
Y, S = X["a"].to_numpy() + 0.1 * RNG.normal(size=N), RNG.choice(["f", "m"], N)
DAYS = pd.Timestamp("2020-01-01") + pd.to_timedelta(RNG.integers(0, 900, N), unit="D")
OTHER = {
    "datetime": DAYS,
    "duration": DAYS - DAYS[0],
    "text": ["x"] * N,
    "text that reads as numbers": X["a"].astype(str),
    "category": pd.Categorical(X["b"].round().astype(str)),
}
OPTIONS = {"unfairness": 0.05, "n_components": 10, "random_state": 0}
MODELS = [FairRidge(unfairness=0.05), FairKernelRidge(**OPTIONS), FairGPRegressor(**OPTIONS)]
CONTAINERS = {
    "pandas": lambda frame, folder: frame,
    "polars": lambda frame, folder: pl.from_pandas(frame),
    "pyarrow": lambda frame, folder: pa.Table.from_pandas(frame, preserve_index=False),
    "batches": lambda frame, folder: BatchSource([(frame,)]),
    "file": lambda frame, folder: frame.to_parquet(folder / "x.parquet") or scan_parquet(folder / "x.parquet"),
}


def names_the_column(was, now):
    return refused("'a'", f"is {now}", f"was {was}", error=InputError)


@pytest.mark.parametrize("container", CONTAINERS)
@pytest.mark.parametrize("kind", OTHER)
@pytest.mark.parametrize("beside", ["numbers", "text"])
def test_prediction_never_reads_dates_or_text_as_numbers(beside, kind, container, tmp_path):
    first = X if beside == "numbers" else X.assign(g=S)
    model = FairKernelRidge(**OPTIONS).fit(first, Y, sensitive_features=S)
    later = CONTAINERS[container](first.assign(a=OTHER[kind]), tmp_path)
    with names_the_column("numeric", "datetime" if kind in ("datetime", "duration") else "categorical") as caught:
        model.predict(later)
    assert caught.value.column == "a"
    for same in (first, first.assign(a=first["a"].astype("float32"))):
        assert len(model.predict(CONTAINERS[container](same, tmp_path))) == N


@pytest.mark.parametrize("model", [*MODELS, FairKernelClassifier(**OPTIONS)], ids=lambda m: type(m).__name__)
@pytest.mark.parametrize("width", [["a"], ["a", "b"]])
def test_every_estimator(model, width):
    y = Y > 0 if isinstance(model, FairKernelClassifier) else Y
    model.fit(X[width], y, sensitive_features=S)
    with names_the_column("numeric", "datetime"):
        model.predict(X[width].assign(a=DAYS))
    model.predict(X[width].assign(a=X["a"] > 0))  # a boolean is a number


def test_batches_and_other_tables_after_the_first():
    model = FairKernelRidge(**OPTIONS).fit(X, Y, sensitive_features=S)
    before = model.predict(X)
    for later in (lambda: model.partial_fit(X.assign(a=DAYS), Y, sensitive_features=S),
                  lambda: model.collect(X.assign(a=DAYS), Y, sensitive_features=S)):  # fmt: skip
        with names_the_column("numeric", "datetime"):
            later()
    np.testing.assert_array_equal(model.predict(X), before)
    with names_the_column("numeric", "datetime"):
        FairKernelRidge(**OPTIONS).fit(X, Y, sensitive_data=(X.assign(a=DAYS), S))


def test_other_names_are_still_said_to_be_others():
    model = FairKernelRidge(**OPTIONS).fit(X, Y, sensitive_features=S)
    for later, word in ((X.assign(c="x"), "c"), (X[["a"]], "b"), (X.rename(columns={"a": "z"}), "z")):
        with pytest.raises(ValueError, match=rf"feature names should match[\s\S]*- {word}"):
            model.predict(later)


def test_arrays_of_dates_are_days_as_frames_are():
    D = np.column_stack([DAYS.to_numpy(), DAYS.to_numpy()[::-1]])
    for dates in (D, D - D.min()):
        expected = FairRidge(unfairness=0.5).fit(pd.DataFrame(dates), Y, sensitive_features=S)
        model = FairRidge(unfairness=0.5).fit(dates, Y, sensitive_features=S)
        np.testing.assert_array_equal(model.coef_, expected.coef_)
        np.testing.assert_allclose(model.predict(BatchSource([(dates,)])), expected.predict(pd.DataFrame(dates)))
        batches = FairRidge(unfairness=0.5).fit(BatchSource([(dates, Y, S)]), None)
        np.testing.assert_allclose(batches.predict(dates), model.predict(dates), rtol=1e-9)
    numbers = FairRidge(unfairness=0.5).fit(X.to_numpy(), Y, sensitive_features=S)
    for later in (D, BatchSource([(D,)])):
        with refused("'x0'", "is datetime", "was numeric", error=InputError):
            numbers.predict(later)


def test_on_the_command_line(tmp_path):
    table = X.assign(s=S, pay=Y)
    table.to_csv(tmp_path / "t.csv", index=False)
    model, own = tmp_path / "m.scalefair", ["--target", "pay", "--sensitive", "s", "--hide-sensitive"]
    assert call("fit", tmp_path / "t.csv", *own, "--model", "linear", "--out", model).exit_code == 0
    table.assign(a="34 years").to_csv(tmp_path / "new.csv", index=False)
    said = refuse("predict", model, tmp_path / "new.csv", "--out", tmp_path / "p.csv")
    for word in ("column 'a'", "is categorical", "was numeric in fit"):
        assert word in said
    assert not (tmp_path / "p.csv").exists()
