"""Groups crossed with numbers: ψ stays narrow, and no group is lost."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from scalefair import FairKernelRidge, FairRidge
from scalefair.features.mixed import CROSSED, LEAST_DIRECTIONS, mixed_map
from scalefair.kernels import Categorical, Linear
from scalefair.maps import Nystroem, OneHot, ProductMap

SIZE = 100


def attributes(groups, numbers, n=4000, seed=0):
    """Numbers, and groups of which the last has 1 % of the rows."""
    rng = np.random.default_rng(seed)
    share = np.full(groups, 0.99 / max(groups - 1, 1))
    share[-1] = 0.01
    group = rng.choice(groups, n, p=share / share.sum())
    return np.column_stack([group, rng.normal(size=(n, numbers))])


def psi_of(S, **options):
    categorical = np.arange(S.shape[1]) == 0
    return mixed_map("auto", "median", SIZE, rows=S, weight=None, categorical=categorical, seed=0, **options)


@pytest.mark.parametrize(("groups", "numbers"), [(60, 3), (30, 2), (12, 3), (200, 1)])
def test_the_width_is_bounded(groups, numbers):
    psi = psi_of(attributes(groups, numbers))
    assert psi.n_raw_ <= max(CROSSED * SIZE, LEAST_DIRECTIONS * groups)
    assert psi.n_raw_ >= LEAST_DIRECTIONS * groups


@pytest.mark.parametrize(("groups", "numbers"), [(2, 3), (4, 5), (20, 1)])
def test_what_is_narrow_anyway_is_the_full_product(groups, numbers):
    S = attributes(groups, numbers)
    smooth = Nystroem(length_scale="standardized", n_components=SIZE, random_state=0)
    full = ProductMap([(OneHot(), [0]), (smooth, slice(1, None))], whiten="rows").fit(S)
    np.testing.assert_array_equal(psi_of(S).transform(S), full.transform(S))


def test_the_directions_of_largest_eigenvalue_stay():
    """Those of each group are the leading ones of the full product, and it has no others."""
    S = attributes(60, 3)
    smooth = Nystroem(length_scale="standardized", n_components=SIZE, random_state=0)
    full = ProductMap([(OneHot(), [0]), (smooth, slice(1, None))], whiten="rows").fit(S)
    kept = CROSSED * SIZE // 60
    expected = full.transform(S).reshape(len(S), 60, -1)[:, :, :kept]
    np.testing.assert_array_equal(psi_of(S).transform(S), expected.reshape(len(S), -1))


@pytest.mark.parametrize("slope", [0.0, 1.0])
def test_a_dependence_within_a_rare_group_is_seen(slope):
    """f is noise, but in 1 % of the rows it follows a number; chance explains q/n more."""
    n = 20_000
    S = attributes(60, 3, n, seed=1)
    rng = np.random.default_rng(2)
    rare = S[:, 0] == 59
    g = np.where(rare, 10 * slope * S[:, 1], 0.0)
    f = g + rng.normal(size=n)
    frame = pd.DataFrame(S[:, 1:], columns=["a", "b", "c"]).assign(group=S[:, 0].astype(str))
    model = FairKernelRidge(feature_map="linear", alpha=1e-12, eta=0.0, random_state=0)
    model.fit(f[:, None], f, sensitive_features=frame)
    q = model.moments_.blocks["psi"]
    assert q <= CROSSED * SIZE
    truth = g.var() / f.var()
    assert 0.9 * truth <= model.explained_share_ <= truth + 1.5 * q / n


@pytest.mark.parametrize(("kernel", "name"), [(Categorical(), "categorical"), (Linear(), "linear")])
@pytest.mark.parametrize("coded", [False, True])
def test_a_kernel_object_is_the_same_as_its_name(kernel, name, coded):
    S = attributes(5, 1, 3000)[:, :1]
    S[7] = 99.0  # a group of one row, which a sample may lack
    y = S[:, 0] + np.random.default_rng(0).normal(size=len(S))
    s = pd.DataFrame(S.astype(str) if coded else S, columns=["s"])
    fits = [
        FairRidge(eta=1.0, sensitive_kernel=k, random_state=0).fit(S, y, sensitive_features=s) for k in (kernel, name)
    ]
    assert fits[0].moments_.key == fits[1].moments_.key
    np.testing.assert_array_equal(fits[0].coef_, fits[1].coef_)
    assert fits[0].explained_share_ == fits[1].explained_share_
