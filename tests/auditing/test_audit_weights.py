"""The audit of weighted rows, of kernels by name and as objects, and of rare numbers."""

import json

import numpy as np
import pandas as pd
import pytest

from scalefair import audit
from scalefair.auditing.dependence import MEASURE_NAMES
from scalefair.kernels import Categorical
from scalefair.measures import explained_share
from tests.errors import refused
from tests.groups import people, repeated

S = ["sex", "race"]
QUICK = ["explained_share", "explained_share_in_sample"]


@pytest.fixture(scope="module")
def frame():
    return people(500)


def test_weight_two_is_the_row_twice():
    frame = people(900)
    many = repeated(frame)
    names = ["explained_share_in_sample", "normalized_hsic", "hsic"]
    first = audit(frame["score"], sensitive_features=frame[S], sample_weight=frame["weight"], measures=names)
    second = audit(many["score"], sensitive_features=many[S], measures=names)
    np.testing.assert_allclose(first.table["value"], second.table["value"], rtol=1e-8)
    assert first.n_rows == (frame["weight"] > 0).sum()


def test_a_common_factor_of_the_weights_changes_no_line(frame):
    def found(weight):
        s = frame[[*S, "age"]]
        return audit(
            frame["score"], sensitive_features=s, y_true=frame["truth"], sample_weight=weight, threshold=0.3
        ).table

    weight = frame["weight"] + 0.5
    n = len(frame)
    for first, second in (
        *((weight, weight * factor) for factor in (n / weight.sum(), 1 / weight.sum(), 100.0)),
        (None, np.full(n, 0.3)),
    ):
        pd.testing.assert_frame_equal(found(first), found(second), rtol=1e-7, atol=1e-10)


def test_every_line_uses_the_weights(frame):
    weight = np.where(frame["age"] > frame["age"].median(), 1.7, 0.3)
    columns = [*S, "age"]
    plain, weighted = (
        audit(
            frame["score"], sensitive_features=frame[columns], y_true=frame["truth"], threshold=0.3, sample_weight=w
        ).table
        for w in (None, weight * len(frame) / weight.sum())
    )
    keys = ["model", "attribute", "measure"]
    both = plain.merge(weighted, on=keys, suffixes=("", "_weighted"))
    assert len(both) == len(weighted)
    for end in ("value", "low", "high"):
        known = both[np.isfinite(both[end]) & ~both[end].isin([0.0, 1.0])]
        differ = known[end] != known[f"{end}_weighted"]
        assert differ[~known["measure"].str.startswith("quantile")].all()


def test_weighted_rows_leave_out_what_knows_no_weights(frame):
    weight = frame["weight"] + 1
    for w in (weight, weight * len(frame) / weight.sum()):
        found = audit(frame["score"], sensitive_features=frame["sex"], y_true=frame["truth"], sample_weight=w)
        measures = ("mutual_information", "hsic_pvalue", "conditional_hsic_pvalue")
        assert not set(measures) & set(found.table["measure"])
    with refused("measures", "'hsic_pvalue'", "weighted", error=ValueError):
        audit(frame["score"], sensitive_features=frame["sex"], sample_weight=weight, measures=["hsic_pvalue"])
    with refused("measures", "'conditional_hsic_pvalue'", "y_true", error=ValueError):
        audit(frame["score"], sensitive_features=frame["sex"], measures=["conditional_hsic_pvalue"])


@pytest.mark.filterwarnings("ignore:.*groups of fewer")
def test_the_sensitive_kernel_may_be_an_object():
    rng = np.random.default_rng(0)
    score, code = rng.normal(size=5000), np.zeros(5000)
    code[::50] = np.repeat(np.arange(1, 51), 2)
    by_name, by_object = (
        audit(score, sensitive_features={"code": code}, measures=QUICK, sensitive_kernel=kernel).table
        for kernel in ("categorical", Categorical())
    )
    pd.testing.assert_frame_equal(by_name, by_object)
    expected = explained_share(score, code, kernel="categorical", cv=None)
    assert by_name["value"][1] == pytest.approx(expected, rel=1e-9)


@pytest.mark.filterwarnings("ignore:.*groups of fewer")
@pytest.mark.parametrize("values", [[1.0, 1.0, 1.0], [1.0, 2.0, 3.0]])
def test_a_rare_number_costs_no_line(values):
    rng = np.random.default_rng(0)
    n = 2000
    rare, sex = np.zeros(n), rng.choice(["f", "m"], n)
    rare[[7, 700, 1500]] = values
    found = audit(rng.normal(size=n), sensitive_features={"sex": sex, "rare": rare}, y_true=rng.integers(0, 2, n))
    for name in ("rare", "sex × rare"):
        lines = found.table[(found.table["attribute"] == name) & found.table["measure"].isin(MEASURE_NAMES)]
        assert set(lines["measure"]) == set(MEASURE_NAMES)
        assert np.isfinite(lines["value"]).all()


@pytest.mark.filterwarnings("ignore:.*groups of fewer")
def test_a_measure_that_rows_do_not_allow_is_missing_and_named():
    rng = np.random.default_rng(0)
    n = 6000
    score, target, rare = *rng.normal(size=(2, n)), np.zeros(n)
    rare[[3, 5]] = 1.0  # not among the rows of the conditional test
    with pytest.warns(UserWarning, match=r"^rare( × age)?: conditional_hsic_pvalue is"):
        found = audit(score, sensitive_features={"rare": rare, "age": rng.normal(size=n)}, y_true=target)
    lines = found.table.set_index(["attribute", "measure"])
    missing = lines.index[lines["value"].isna()]
    assert ("rare", "conditional_hsic_pvalue") in missing
    assert not any(name == "age" for name, _ in missing)
    measured = lines.loc["rare"].drop("conditional_hsic_pvalue")["value"]
    assert np.isfinite(measured[[*MEASURE_NAMES[:-1]]]).all()
    json.dumps(found.to_dict(), allow_nan=False)
