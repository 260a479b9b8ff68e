"""Reports of models that limit decisions: theirs are judged, not those at some threshold."""

import json

import numpy as np
import pandas as pd
import pytest

from scalefair import Decisions, FairKernelClassifier, FairKernelRegressor
from scalefair.report import headline, make_report
from scalefair.report.relatives import DECISION_LIMITS

pytestmark = pytest.mark.filterwarnings("ignore:.*too small to judge")

COMMON = {"unfairness": 0.05, "n_components": 15, "random_state": 0, "alpha": 1e-3}


def people(n=600, seed=0):
    rng = np.random.default_rng(seed)
    sex = rng.choice(["f", "m"], n)
    X = pd.DataFrame({"x": rng.normal(size=n), "grade": (sex == "m") + 0.5 * rng.normal(size=n)})
    y = X["x"] + 1.5 * (sex == "m") + 0.5 * rng.normal(size=n)
    return X, y.to_numpy(), pd.DataFrame({"sex": sex})


@pytest.mark.parametrize("kind", ["classes", "threshold", "top"])
def test_the_decisions_of_the_model_are_judged_at_every_limit(tmp_path, kind):
    X, y, S = people()
    if kind == "classes":
        model, y = FairKernelClassifier(limit_on="decisions", **COMMON), np.where(y > 0.7, "b", "a")
    else:
        asked = Decisions(**{kind: 1.0 if kind == "threshold" else 0.2})
        model = FairKernelRegressor(loss="squared", limit_on=asked, **COMMON)
    found = make_report(model, X, y, sensitive_features=S, out=tmp_path, target="hired")
    assert [one.limit for one in found.positions] == [*DECISION_LIMITS, None]
    assert found.after.limit == 0.05
    test = found.problem.test
    sex, outcome = test.sensitive["sex"].to_numpy(), test.y
    if kind == "classes":
        p = found.baseline.predict_proba(test.X)[:, 1]
        own, start = found.estimator.predict(test.X) == 1, p >= 0.5
    else:
        own, at = found.estimator.decide(test.X), found.estimator.decisions_.crossing.at
        start, outcome = found.baseline.predict(test.X) >= at, test.y > at
    for position, decided in ((found.after, own), (found.before, start)):
        for level in ("f", "m"):
            rate = position.get("selection_rate", "sex", level).value
            assert rate == pytest.approx(decided[sex == level].mean())
    assert (own != start).any()
    assert found.after.get("changed_decisions").value == (own != start).sum()
    fewer = found.after.get("fewer_right_decisions").value
    if kind == "top":  # a rank has no outcome
        assert np.isnan(fewer)
    else:
        assert fewer == (start == outcome).sum() - (own == outcome).sum()
    gaps = [one.get("selection_rate_difference", "sex").value for one in found.positions]
    assert gaps[found.chosen] < gaps[-1]
    (selection, *_) = found.after.impacts["Selection rate"]
    assert selection.selected == own[sex == "f"].sum()
    assert headline(found).startswith("Limiting the gap in the rate of positive decisions by sex")
    page = (tmp_path / "report.html").read_text("utf-8")
    assert "Limit on the gap of decisions" in page
    assert json.loads((tmp_path / "report.json").read_text("utf-8"))["limit"] == 0.05
