"""scikit-learn's HTML of every estimator, alone, fitted, and in a pipeline."""

from html.parser import HTMLParser

import numpy as np
import pytest
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils import estimator_html_repr

import scalefair

ESTIMATORS = [name for name in scalefair.__all__ if name.startswith("Fair") and name[4:] not in ("Kernel", "Path")]

VOID = ("input", "br", "img", "link", "meta", "path")


class Balanced(HTMLParser):
    """Complains of an element that is closed and was not open."""

    def __init__(self, page):
        super().__init__()
        self.open, self.text = [], ""
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        if tag not in VOID:
            assert self.open.pop() == tag

    def handle_data(self, data):
        self.text += data


@pytest.mark.parametrize("name", ESTIMATORS)
def test_every_estimator_has_an_html_representation(name):
    own = {} if name == "FairRidge" else {"n_components": 10}
    if "GP" in name:
        own |= {"optimizer": None}
    model = getattr(scalefair, name)(**own)
    assert name in Balanced(estimator_html_repr(model)).text
    X = np.random.default_rng(0).normal(size=(60, 2))
    y = X[:, 0] > 0 if "Class" in name else X[:, 0]
    model.fit(X, y, sensitive_features=X[:, 1] > 0)
    page = Balanced(model._repr_html_())
    assert page.open == []
    assert "Fitted" in page.text
    together = make_pipeline(StandardScaler(), getattr(scalefair, name)(**own))
    assert name in Balanced(together._repr_html_()).text


def test_the_list_is_all_there_is():
    assert sorted(ESTIMATORS) == [
        "FairGPClassifier",
        "FairGPRegressor",
        "FairKernelClassifier",
        "FairKernelClassifierCV",
        "FairKernelRegressor",
        "FairKernelRegressorCV",
        "FairKernelRidge",
        "FairKernelRidgeCV",
        "FairRidge",
    ]
