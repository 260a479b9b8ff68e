"""What cannot be judged is named, with the value, what was expected, and the remedy."""

import dask.array as da
import numpy as np
import pandas as pd
import pytest

from scalefair.measures import group_gaps
from tests.errors import refused
from tests.groups import people

FRAME = people(200)
P, S, Y = FRAME["score"], FRAME[["sex", "race"]], FRAME["truth"]
NAN = P.where(P.index != 7)
IDENTIFIERS = [f"id{i}" for i in range(2500)]
CASES = {
    "text as predictions": ({"y_pred": ["yes"] * 200}, ["y_pred 'y_pred'", "categorical"]),
    "no predictions": ({"y_pred": None}, ["y_pred=None"]),
    "empty": ({"y_pred": [], "sensitive_features": [], "y_true": None}, ["y_pred", "no rows"]),
    "lengths": ({"y_pred": P[1:]}, ["sensitive_features", 200, "y_pred", 199]),
    "lengths of y": ({"y_true": Y[1:]}, ["y_true", 199, "y_pred", 200]),
    "lengths of w": ({"sample_weight": [1.0]}, ["sample_weight", "1 row", "y_pred", 200]),
    "NaN": ({"y_pred": NAN}, ["y_pred", "'score'", "1 row", "row 7"]),
    "infinite": ({"y_pred": P / 0}, ["y_pred", "infinite", 200]),
    "NaN in y": ({"y_true": Y.where(Y.index != 9)}, ["y_true", "'truth'", "row 9"]),
    "text as y": ({"y_true": ["x"] * 200}, ["y_true", "text"]),
    "two targets": ({"y_true": FRAME[["truth", "target"]]}, ["y_true", "2 columns"]),
    "nothing to audit": ({"sensitive_features": None}, ["sensitive_features=None"]),
    "constant": ({"sensitive_features": S.assign(k="x")}, ["'k'", "'x'", "every row"]),
    "constant number": ({"sensitive_features": {"k": np.full(200, 3.5)}}, ["'k'", 3.5, "every row"]),
    "identifier": (
        {"y_pred": np.arange(2500.0), "sensitive_features": IDENTIFIERS, "y_true": None},
        ["'s0'", 2500, 1000],
    ),
    "missing": (
        {"sensitive_features": S.assign(sex=S["sex"].where(S.index != 3))},
        ["'sex'", "1 row", "missing='group'"],
    ),
    "all missing": ({"sensitive_features": {"k": [None] * 200}}, ["'k'", "missing", "every row"]),
    "group of one": ({"sensitive_features": {"k": ["rare", *["x", "y"] * 99, "x"]}}, ["'k'", "'rare'", "one row"]),
    "a few numbers": (
        {"y_pred": np.arange(5.0), "sensitive_features": np.arange(5.0) ** 2, "y_true": None},
        ["'s0'", "continuous"],
    ),
    "continuous": ({"sensitive_features": FRAME["age"]}, ["'age'", "continuous"]),
    "continuous and missing": (
        {"sensitive_features": FRAME["age"].where(FRAME.index > 4), "missing": "group"},
        ["'age'", "5 rows", "missing='drop'"],
    ),
    "threshold metric": ({"metrics": "selection_rate"}, ["'selection_rate'", "threshold="]),
    "error rate of scores": ({"metrics": ["accuracy"]}, ["'accuracy'", "threshold="]),
    "error rate without y": ({"metrics": "accuracy", "y_true": None, "threshold": 0.0}, ["'accuracy'", "y_true"]),
    "error rate of numbers": (
        {"metrics": "accuracy", "y_true": FRAME["target"], "threshold": 0.0},
        ["'accuracy'", "0 and 1"],
    ),
    "unknown metric": ({"metrics": "fairness"}, ["metrics", "'fairness'", "mean_prediction"]),
    "unknown policy": ({"missing": "ignore"}, ["missing='ignore'", "group"]),
    "confidence": ({"confidence": 95}, ["confidence=95", "0 and 1"]),
    "quantiles": ({"quantiles": [0.5, 1.5]}, ["quantiles", 1.5]),
    "threshold": ({"threshold": np.inf}, ["threshold=inf"]),
    "unknown bins": ({"bins": {"height": [1.8]}}, ["bins", "'height'", "sex, race"]),
    "bins of text": ({"bins": {"sex": [1.8]}}, ["bins['sex']", "categories"]),
    "falling edges": (
        {"sensitive_features": FRAME["age"], "bins": {"age": [50, 30]}},
        ["bins['age']=[50, 30]", "increasing"],
    ),
    "several models": ({"y_pred": {"a": P, "b": P}}, ["y_pred", "2 models", "audit"]),
    "no models": ({"y_pred": {}}, ["y_pred", "empty"]),
    "models of other lengths": ({"y_pred": {"a": P, "b": P[1:]}}, ["y_pred 'b'", 199, "'a'", 200]),
    "wide model": ({"y_pred": {"a": FRAME[["score", "age"]]}}, ["y_pred['a']", "2 columns"]),
    "negative weights": ({"sample_weight": -np.ones(200)}, ["sample_weight", "negative"]),
    "weights of zero": ({"sample_weight": np.zeros(200)}, ["0 of 200 rows"]),
    "sparse": ({"y_pred": np.ones((2, 2, 2))}, ["y_pred", (2, 2, 2)]),
}


@pytest.mark.parametrize("case", CASES)
def test_bad_input_is_named(case):
    changed, words = CASES[case]
    given = {"y_pred": P, "sensitive_features": S, "y_true": Y} | changed
    with np.errstate(divide="ignore"), refused(*words, error=ValueError):
        group_gaps(**given)


def test_names_of_columns_are_not_attributes():
    with refused("sensitive_features='sex'", error=TypeError):
        group_gaps(P, sensitive_features="sex")
    with refused("y_pred=3", error=TypeError):
        group_gaps(3, sensitive_features=S)


def test_an_unknown_method_is_named():
    gaps = group_gaps(P, sensitive_features=S)
    with refused("method='sideways'", error=ValueError):
        gaps.difference("sideways")


def test_too_many_intersections_are_refused_and_can_be_switched_off(monkeypatch):
    monkeypatch.setattr("scalefair.measures.group_statistics.MAX_CELLS", 5)

    for scores in (P, da.from_array(P.to_numpy(), chunks=100)):
        with refused("more than 5", "intersections=False", error=ValueError):
            group_gaps(scores, sensitive_features=S)
        assert len(group_gaps(scores, sensitive_features=S, intersections=False).frames) == 2


def test_labels_of_minus_one_and_one_are_labels():
    signs = 2 * FRAME["label"] - 1
    first = group_gaps(signs, sensitive_features=S, y_true=2 * Y - 1)
    second = group_gaps(FRAME["label"], sensitive_features=S, y_true=Y)
    pd.testing.assert_frame_equal(first.by_group, second.by_group)
