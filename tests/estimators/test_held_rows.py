"""Rows that are kept encoded for all passes keep their control features and base predictions."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from sklearn.compose import make_column_transformer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder

from scalefair import FairKernelClassifier
from scalefair.features import rows as rows_of_fit

RNG = np.random.default_rng(0)
N = 300
X = pd.DataFrame({"a": RNG.normal(size=N), "b": RNG.choice(list("xyz"), N)})
S, C = RNG.choice(["u", "v"], N), RNG.choice(["k", "l"], N)
Y = (X["a"] + (S == "u") * (C == "k") + RNG.normal(size=N) > 0).astype(int)


def base():
    columns = make_column_transformer((OneHotEncoder(), ["b"]), remainder="passthrough")
    return make_pipeline(columns, LogisticRegression())


@pytest.mark.parametrize("control", [None, C])
@pytest.mark.parametrize("base_estimator", [None, base()])
def test_held_rows_are_the_rows(control, base_estimator, monkeypatch):
    model = FairKernelClassifier(n_components=10, eta=3.0, base_estimator=base_estimator, random_state=0)
    kept = model.fit(X, Y, sensitive_features=S, control_features=control).coef_.copy()
    monkeypatch.setattr(rows_of_fit, "MAX_ENCODED_BYTES", 0)
    anew = model.fit(X, Y, sensitive_features=S, control_features=control).coef_
    np.testing.assert_allclose(kept, anew, rtol=0, atol=1e-8)
