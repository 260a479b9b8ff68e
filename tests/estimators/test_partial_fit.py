"""Batches add up to all rows, exactly."""

from __future__ import annotations

import numpy as np
from sklearn.base import clone

from scalefair import FairKernelRidge, FairRidge
from scalefair.maps import Nystroem, OneHot
from tests import naive
from tests.estimators.test_estimators import encoded, rows


def test_batches_add_up_to_all_rows():
    X, y, s, groups, new = rows(n=60, outputs=2)
    weight = naive.weights(len(X))
    phi = Nystroem(length_scale=1.2).fit(X[:20])
    psi = Nystroem(length_scale=0.9).fit(s[:15, None])
    for kernel, attributes in ((psi, s), (OneHot().fit(encoded(groups)), groups)):
        model = FairKernelRidge(feature_map=phi, sensitive_kernel=kernel, alpha=1e-2)
        whole = clone(model).set_params(feature_map=phi, sensitive_kernel=kernel)
        whole.fit(X, y, sensitive_features=attributes, sample_weight=weight)
        for at in np.array_split(np.arange(len(X)), 4):
            model.partial_fit(X[at], y[at], sensitive_features=attributes[at], sample_weight=weight[at])
        assert model.n_samples_seen_ == len(X)
        naive.close(model.predict(new), whole.predict(new), 1e-10)
        naive.close(model.moments_.scatter, whole.moments_.scatter, 1e-10)
    linear, whole = FairRidge(sensitive_kernel="linear"), FairRidge(sensitive_kernel="linear")
    linear.partial_fit(X[:31], y[:31], sensitive_features=s[:31])
    linear.partial_fit(X[31:], y[31:], sensitive_features=s[31:])
    naive.close(linear.coef_, whole.fit(X, y, sensitive_features=s).coef_, 1e-10)
