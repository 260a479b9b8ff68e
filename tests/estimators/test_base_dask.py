"""Base models of dask data: on a sample, or on the collections themselves."""

import dask.array as da
import dask.dataframe as dd
import numpy as np
import pytest
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.linear_model import LinearRegression
from sklearn.tree import DecisionTreeRegressor

from scalefair import CrossFit, FairKernelRidge
from tests.errors import refused
from tests.estimators.test_base import TREES, fair, problem, table

pytestmark = pytest.mark.filterwarnings("ignore:.*unique filename:UserWarning")


class Distributed(RegressorMixin, BaseEstimator):
    """Least squares that refuses anything but dask collections in `fit`."""

    def fit(self, X, y):
        X = X.to_dask_array(lengths=True) if hasattr(X, "to_dask_array") else X
        y = y.to_dask_array(lengths=True) if hasattr(y, "to_dask_array") else y
        assert isinstance(X, da.Array)
        X, y = X.compute(), y.compute()
        self.n_rows_ = len(X)
        self.model_ = LinearRegression().fit(X, y)
        return self

    def predict(self, X):
        assert not hasattr(X, "dask")
        return self.model_.predict(np.asarray(X))


def test_partitions_do_not_matter():
    X, y = problem()
    tree = DecisionTreeRegressor(max_depth=4)
    whole = fair(eta=1.0, base_estimator=tree).fit(X, y)
    for chunks in (600, 130):
        parts = da.from_array(X, chunks=(chunks, 5)), da.from_array(y, chunks=chunks)
        model = fair(eta=1.0, base_estimator=tree).fit(*parts)
        np.testing.assert_allclose(model.predict(X), whole.predict(X), rtol=1e-7, atol=1e-9)
        np.testing.assert_allclose(model.predict(parts[0]).compute(), whole.predict(X), atol=1e-8)


@pytest.mark.parametrize("hide", [False, True])
@pytest.mark.parametrize("frame", [False, True])
def test_collections_are_fitted_without_their_fold(frame, hide):
    X, y = problem()
    options = {"eta": 1.0, "hide_sensitive": hide}
    base = CrossFit(LinearRegression(), sensitive_estimator=None)
    whole = fair(base_estimator=base, **options).fit(X, y)
    given, target = da.from_array(X, chunks=(170, 5)), da.from_array(y, chunks=170)
    if frame:
        numbers, _ = table()
        numbers = numbers.assign(group=X[:, 4])
        given = dd.from_pandas(numbers, npartitions=4)
        target = dd.from_pandas(numbers["a"] * 0 + y, npartitions=4)
    model = fair(base_estimator=CrossFit(Distributed(), fit_on="collection"), **options)
    model.fit(given, target)
    assert model.n_base_samples_ == model.base_estimator_.n_rows_ == 600
    np.testing.assert_allclose(
        model.moments_.covariance("base", ("base", "y")), whole.moments_.covariance("base", ("base", "y")), rtol=1e-9
    )


def test_what_cannot_take_collections_is_named():
    X, y = problem(100)
    with refused("dask"):
        fair(eta=1.0, base_estimator=CrossFit(TREES, fit_on="collection")).fit(X, y)

    class Refuses(Distributed):
        def fit(self, X, y):
            raise TypeError("no dask here")

    base = CrossFit(Refuses(), fit_on="collection")
    model = FairKernelRidge(base_estimator=base, n_components=5)
    parts = da.from_array(X, chunks=(50, 5)), da.from_array(y, chunks=50)
    with refused("Refuses", "no dask here"):
        model.set_params(sensitive_columns=[4], eta=1.0).fit(*parts)
