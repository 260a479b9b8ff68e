"""Whole numbers with few levels as sensitive attributes: one warning a call, and both ways out."""

from __future__ import annotations

import warnings

import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
from sklearn.tree import DecisionTreeRegressor

import scalefair
from scalefair import measures
from scalefair.data.columns import sensitive_statistics
from scalefair.data.encoding import SensitiveEncoder, numbers_or_codes

ESTIMATORS = {
    "ridge": scalefair.FairRidge(),
    "kernel": scalefair.FairKernelRidge(n_components=10, random_state=0),
    "cv": scalefair.FairKernelRidgeCV(n_components=10, unfairness=0.2, random_state=0),
    "joined": scalefair.FairRidge(base_estimator=DecisionTreeRegressor(max_depth=2)),
    "regressor": scalefair.FairKernelRegressor(n_components=10, random_state=0),
    "gp": scalefair.FairGPRegressor(n_components=10, optimizer=None, random_state=0),
}


def rows(n=200):
    rng = np.random.default_rng(0)
    s = rng.integers(0, 4, n)
    X = rng.normal(size=(n, 2))
    return X, X[:, 0] + s + rng.normal(size=n), s


def asked(call):
    """Warnings of a call that ask for the meaning of whole numbers."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        call()
    return [str(w.message) for w in caught if "numbers or codes?" in str(w.message)]


def fit_of(name, s):
    X, y, _ = rows()
    return lambda: ESTIMATORS[name].fit(X, y, sensitive_features=s)


@pytest.mark.parametrize("name", ESTIMATORS)
def test_a_fit_asks_once_and_names_column_levels_and_both_ways_out(name):
    s = rows()[2]
    (message,) = asked(fit_of(name, pd.DataFrame({"race": s, "region": 10 * (s % 3)})))
    for part in ("'race' (4 levels)", "'region' (3 levels)", "astype(str)", "astype(float)"):
        assert part in message


@pytest.mark.parametrize(
    "convert",
    [
        lambda s: s.astype(float),
        lambda s: s.astype(str),
        lambda s: pd.Series(s, dtype="category"),
        lambda s: s % 2,
        lambda s: s > 1,
        lambda s: s + np.arange(len(s)) // 8,
        lambda s: np.arange(len(s)),
    ],
    ids=["floats", "text", "categories", "two levels", "booleans", "many levels", "all differ"],
)
def test_nothing_is_asked_of_other_columns(convert):
    s = convert(rows()[2])
    assert not asked(fit_of("ridge", s))
    X, y, _ = rows()
    assert not asked(lambda: measures.explained_share(y, s))
    assert not asked(lambda: scalefair.FairRidge(sensitive_columns=[1]).fit(np.c_[X[:, 0], y], y))


@pytest.mark.parametrize("kernel", ["categorical", "linear", "rbf"])
def test_a_kernel_of_ones_own_says_what_they_are(kernel):
    X, y, s = rows()
    model = scalefair.FairKernelRidge(n_components=10, sensitive_kernel=kernel, random_state=0)
    assert not asked(lambda: model.fit(X, y, sensitive_features=s))


@pytest.mark.parametrize("container", ["array", "frame", "mixed", "parquet", "dask"])
def test_columns_of_x_are_asked_for_in_every_container(container, tmp_path):
    X, y, s = rows()
    frame = pd.DataFrame({"a": X[:, 0], "s": s, "y": y})
    frame.to_parquet(tmp_path / "t.parquet")
    scan, lazy = (scalefair.scan_parquet(tmp_path / "t.parquet"), dd.from_pandas(frame, npartitions=3))
    given = {
        "array": (np.c_[s, 3 * s], y),
        "frame": (frame[["s", "a"]], y),
        "mixed": (frame[["s"]].assign(t=np.where(y > 0, "p", "n")), y),
        "parquet": (scan[["s", "a"]], scan["y"]),
        "dask": (lazy[["s", "a"]], lazy["y"]),
    }[container]
    assert len(asked(lambda: scalefair.FairRidge(sensitive_columns=[0]).fit(*given))) == 1


@pytest.mark.parametrize("measure", ["hsic", "nocco", "explained_share", "distance_correlation", "hsic_test"])
def test_a_measure_asks_of_its_second_argument_once(measure):
    _, y, s = rows()
    assert len(asked(lambda: getattr(measures, measure)(y, s))) == 1
    assert not asked(lambda: getattr(measures, measure)(np.round(y).astype(int) % 5, y))


def test_audits_and_fair_models_ask_once():
    X, y, s = rows()
    result = []
    assert len(asked(lambda: result.append(scalefair.audit(y, sensitive_features=s)))) == 1
    assert sum("numbers or codes?" in note for note in result[0].notes) == 1
    tree = DecisionTreeRegressor(max_depth=2)
    fair = scalefair.make_fair
    assert len(asked(lambda: fair(tree, X, y, s, n_components=10, random_state=0))) == 1
    assert not asked(lambda: measures.group_gaps(y, sensitive_features=s))


def test_levels_add_up_over_chunks():
    s = np.arange(40) % 25
    parts = sum((sensitive_statistics(part) for part in (s[:12], s[12:])), sensitive_statistics(s))
    assert parts.columns[0].codes is None
    few = sensitive_statistics(s[:12] % 4) + sensitive_statistics(10 + s[:12] % 3)
    assert few.columns[0].codes == (0, 1, 2, 3, 10, 11, 12)
    assert numbers_or_codes(few.columns, 70)
    assert not numbers_or_codes(few.columns, 69)
    mixed = sensitive_statistics(s[:12]) + sensitive_statistics(s[:12].astype(float))
    assert mixed.columns[0].codes is None
    assert not asked(lambda: SensitiveEncoder().fit(s % 3))
