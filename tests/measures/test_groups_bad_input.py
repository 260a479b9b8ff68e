"""What cannot be judged is named, with the value, what was expected, and the remedy."""

import dask.array as da
import numpy as np
import pandas as pd
import pytest

from scalefair.measures import group_gaps
from tests.groups import people

FRAME = people(200)
P, S, Y = FRAME["score"], FRAME[["sex", "race"]], FRAME["truth"]
NAN = P.where(P.index != 7)
CASES = {
    "text as predictions": ({"y_pred": ["yes"] * 200}, "y_pred 'y_pred' is categorical"),
    "no predictions": ({"y_pred": None}, "y_pred=None; expected predictions"),
    "empty": ({"y_pred": [], "sensitive_features": [], "y_true": None}, "has no rows"),
    "lengths": ({"y_pred": P[1:]}, "sensitive_features has 200 rows but y_pred has 199"),
    "lengths of y": ({"y_true": Y[1:]}, "y_true has 199 rows but y_pred has 200"),
    "lengths of w": ({"sample_weight": [1.0]}, "sample_weight has 1 rows but y_pred has 200"),
    "NaN": ({"y_pred": NAN}, r"NaN, missing or infinite in 1 rows \(first in row 7\)"),
    "infinite": ({"y_pred": P / 0}, "infinite in 200 rows"),
    "NaN in y": ({"y_true": Y.where(Y.index != 9)}, "first in row 9"),
    "text as y": ({"y_true": ["x"] * 200}, "is text; expected numbers"),
    "two targets": ({"y_true": FRAME[["truth", "target"]]}, "y_true has 2 columns"),
    "nothing to audit": ({"sensitive_features": None}, "nothing to audit for"),
    "constant": ({"sensitive_features": S.assign(k="x")}, "'k' is 'x' in every row"),
    "constant number": ({"sensitive_features": {"k": np.full(200, 3.5)}}, "'k' is 3.5 in every"),
    "identifier": (
        {
            "y_pred": np.arange(2500.0),
            "sensitive_features": [f"id{i}" for i in range(2500)],
            "y_true": None,
        },
        "2500 levels, more than 1000: it looks like an identifier",
    ),
    "missing": (
        {"sensitive_features": S.assign(sex=S["sex"].where(S.index != 3))},
        "'sex' is missing in 1 rows; say what that means: missing='group'",
    ),
    "all missing": ({"sensitive_features": {"k": [None] * 200}}, "'k' is missing in every row"),
    "group of one": (
        {"sensitive_features": {"k": ["rare", *["x", "y"] * 99, "x"]}},
        "'k': the group 'rare' has only one row",
    ),
    "a few numbers": (
        {"y_pred": np.arange(5.0), "sensitive_features": np.arange(5.0) ** 2, "y_true": None},
        "are continuous and have no groups",
    ),
    "continuous": ({"sensitive_features": FRAME["age"]}, "'age' are continuous and have no groups"),
    "continuous and missing": (
        {"sensitive_features": FRAME["age"].where(FRAME.index > 4), "missing": "group"},
        "missing in 5 rows, which missing='group' cannot make a group of",
    ),
    "threshold metric": (
        {"metrics": "selection_rate"},
        "judges decisions, but the predictions are continuous .* give the threshold=",
    ),
    "error rate of scores": ({"metrics": ["accuracy"]}, "judges decisions, but"),
    "error rate without y": (
        {"metrics": "accuracy", "y_true": None, "threshold": 0.0},
        "compares with targets; give y_true",
    ),
    "error rate of numbers": (
        {"metrics": "accuracy", "y_true": FRAME["target"], "threshold": 0.0},
        "error rates need targets of 0 and 1",
    ),
    "unknown metric": ({"metrics": "fairness"}, "'fairness' is unknown; choose among"),
    "unknown policy": ({"missing": "ignore"}, "missing='ignore' is unknown"),
    "unknown interval": ({"interval": "exact"}, "interval='exact' is unknown"),
    "confidence": ({"confidence": 95}, "confidence=95; expected a number between 0 and 1"),
    "quantiles": ({"quantiles": [0.5, 1.5]}, "quantiles has 1.5"),
    "threshold": ({"threshold": np.inf}, "threshold=inf; expected a finite number"),
    "resamples": ({"interval": "bootstrap", "n_resamples": 3}, "n_resamples=3; expected at least"),
    "unknown bins": ({"bins": {"height": [1.8]}}, "bins names 'height', which is not among"),
    "bins of text": ({"bins": {"sex": [1.8]}}, "the column holds categories"),
    "falling edges": (
        {"sensitive_features": FRAME["age"], "bins": {"age": [50, 30]}},
        "expected increasing edges",
    ),
    "several models": ({"y_pred": {"a": P, "b": P}}, "y_pred has 2 models; group_gaps judges one"),
    "no models": ({"y_pred": {}}, "y_pred is an empty dict"),
    "models of other lengths": ({"y_pred": {"a": P, "b": P[1:]}}, "y_pred 'b' has 199 rows but"),
    "wide model": ({"y_pred": {"a": FRAME[["score", "age"]]}}, "has 2 columns; expected one"),
    "negative weights": ({"sample_weight": -np.ones(200)}, "sample_weight is negative"),
    "weights of zero": ({"sample_weight": np.zeros(200)}, "0 of 200 rows can be judged"),
    "sparse": ({"y_pred": np.ones((2, 2, 2))}, "Expected 2D array, got 3D"),
}


@pytest.mark.parametrize("case", CASES)
def test_bad_input_is_named(case):
    changed, message = CASES[case]
    given = {"y_pred": P, "sensitive_features": S, "y_true": Y} | changed
    with np.errstate(divide="ignore"), pytest.raises(ValueError, match=message):
        group_gaps(**given)


def test_names_of_columns_are_not_attributes():
    with pytest.raises(TypeError, match="sensitive_features='sex'"):
        group_gaps(P, sensitive_features="sex")
    with pytest.raises(TypeError, match="y_pred=3"):
        group_gaps(3, sensitive_features=S)


def test_an_unknown_method_is_named():
    gaps = group_gaps(P, sensitive_features=S)
    with pytest.raises(ValueError, match="method='sideways'"):
        gaps.difference("sideways")


def test_too_many_intersections_are_refused_and_can_be_switched_off(monkeypatch):
    monkeypatch.setattr("scalefair.measures.group_statistics.MAX_CELLS", 5)

    for scores in (P, da.from_array(P.to_numpy(), chunks=100)):
        with pytest.raises(ValueError, match=r"more than 5 .*intersections=False"):
            group_gaps(scores, sensitive_features=S)
        assert len(group_gaps(scores, sensitive_features=S, intersections=False).frames) == 2


def test_labels_of_minus_one_and_one_are_labels():
    signs = 2 * FRAME["label"] - 1
    first = group_gaps(signs, sensitive_features=S, y_true=2 * Y - 1)
    second = group_gaps(FRAME["label"], sensitive_features=S, y_true=Y)
    pd.testing.assert_frame_equal(first.by_group, second.by_group)
