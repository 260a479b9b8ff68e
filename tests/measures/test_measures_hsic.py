"""HSIC, alignment and NOCCO against their dense definitions, and their invariances."""

from functools import partial

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from scalefair import scan_parquet
from scalefair.kernels import RBF, Categorical, Laplace, Linear, Matern
from scalefair.maps import RandomFourier
from scalefair.measures import (
    alignment,
    conditional_hsic_test,
    explained_share,
    hsic,
    hsic_test,
    independence,
    nocco,
    normalized_hsic,
)
from tests import naive

rng = np.random.default_rng(7)
N = 150
X = rng.normal(size=(N, 2))
S = X[:, :1] ** 2 + 0.3 * rng.normal(size=(N, 1))
G = np.array(["p", "q", "r"])[rng.integers(0, 3, N)]
W = rng.integers(0, 3, N).astype(float)

KERNELS = [
    (RBF(1.3), RBF(0.4)),
    (Laplace(0.7), Matern(1.1, nu=2.5)),
    (Linear(), RBF((0.4,))),
    (RBF(1.0) + Linear(), RBF(2.0) * Laplace(1.0)),
]


def centred(K):
    H = np.eye(len(K)) - 1 / len(K)
    return H @ K @ H


def dense_hsic(K, L):
    return np.trace(centred(K) @ centred(L)) / len(K) ** 2


def dense_unbiased(K, L):
    """Mean over ordered quadruples of distinct rows, in its closed form (Song et al., eq. 5)."""
    n = len(K)
    K, L = K - np.diag(np.diag(K)), L - np.diag(np.diag(L))
    one = np.ones(n)
    total = np.trace(K @ L) + one @ K @ one * (one @ L @ one) / ((n - 1) * (n - 2))
    return (total - 2 / (n - 2) * one @ K @ L @ one) / (n * (n - 3))


@pytest.mark.parametrize(("k", "m"), KERNELS)
def test_exact_is_the_definition(k, m):
    K, L = k(X), m(S)
    exact = {"method": "exact"}
    assert hsic(X, S, k, m, **exact) == pytest.approx(dense_hsic(K, L), abs=1e-10, rel=1e-10)
    found = hsic(X, S, k, m, biased=False, **exact)
    assert found == pytest.approx(dense_unbiased(K, L), abs=1e-10, rel=1e-10)
    norm = np.sqrt(dense_hsic(K, K) * dense_hsic(L, L))
    assert alignment(X, S, k, m, **exact) == pytest.approx(dense_hsic(K, L) / norm, abs=1e-10)
    P, Q = (centred(M) @ np.linalg.inv(centred(M) + N * 1e-3 * np.eye(N)) for M in (K, L))
    found = nocco(X, S, k, m, eps=1e-3, **exact)
    assert found == pytest.approx(np.trace(P @ Q), abs=1e-8)


def test_unbiased_is_the_mean_over_quadruples_of_distinct_rows():
    from itertools import permutations

    K, L = RBF(1.0)(X[:7]), RBF(0.5)(S[:7])
    terms = [K[i, j] * (L[i, j] + L[q, r] - 2 * L[i, q]) for i, j, q, r in permutations(range(7), 4)]
    found = hsic(X[:7], S[:7], RBF(1.0), RBF(0.5), biased=False)
    assert found == pytest.approx(np.mean(terms), abs=1e-12)


@pytest.mark.parametrize("biased", [True, False])
@pytest.mark.parametrize(("k", "m"), KERNELS)
def test_features_reach_the_exact_value(k, m, biased):
    exact = hsic(X, S, k, m, biased=biased, method="exact")
    found = hsic(X, S, k, m, biased=biased, method="features")
    assert found == pytest.approx(exact, rel=1e-6)


def test_fourier_features_come_within_their_monte_carlo_error():
    k, m = RBF(1.3), RBF(0.4)
    exact = hsic(X, S, k, m)
    found = [
        hsic(
            X,
            S,
            RandomFourier(k, n_components=400, random_state=seed),
            RandomFourier(m, n_components=400, random_state=seed + 99),
        )
        for seed in range(8)
    ]
    assert np.mean(found) == pytest.approx(exact, abs=4 * np.std(found) / np.sqrt(8) + 1e-4)
    assert np.std(found) < 0.2 * exact


def mixed_gram(weight=None):
    """The default kernel of (G, age): equality times Gaussian of the median distance."""
    from scalefair.kernels import median_length_scale

    age = S / S.std()
    scale = median_length_scale(age)
    return (G[:, None] == G) * RBF(scale)(age)


def test_default_kernels_of_mixed_columns():
    frame = pd.DataFrame({"g": G, "age": S[:, 0]})
    L = mixed_gram()
    assert hsic(X, frame, RBF(1.0)) == pytest.approx(dense_hsic(RBF(1.0)(X), L), abs=1e-10)
    onehot = (G[:, None] == G).astype(float)
    expected = dense_hsic(RBF(1.0)(X), onehot)
    assert hsic(X, G, RBF(1.0)) == pytest.approx(expected, abs=1e-10)
    assert hsic(X, G, RBF(1.0), method="features") == pytest.approx(expected, rel=1e-7)
    found = hsic(X, frame, RBF(1.0), method="features")
    assert found == pytest.approx(dense_hsic(RBF(1.0)(X), L), rel=1e-6)


@pytest.mark.parametrize("method", ["exact", "features"])
def test_weight_two_is_the_row_twice(method):
    twice = np.repeat(np.arange(N), W.astype(int))
    for measure, options in ((hsic, {}), (alignment, {}), (nocco, {"eps": 1e-2})):
        weighted = measure(X, S, sample_weight=W, method=method, **options)
        repeated = measure(X[twice], S[twice], method=method, **options)
        assert weighted == pytest.approx(repeated, rel=1e-6, abs=1e-12)


@pytest.mark.parametrize("method", ["exact", "features"])
@pytest.mark.parametrize("factor", [1 / W.sum(), 1 / 7, 100.0])
def test_a_common_factor_of_the_weights_changes_nothing(method, factor):
    frame = pd.DataFrame({"g": G, "s": S[:, 0]})
    for measure, options in ((hsic, {}), (hsic, {"biased": False}), (alignment, {}), (nocco, {"eps": 1e-2})):
        for s in (S, G, frame):
            first = measure(X, s, sample_weight=W, method=method, **options)
            second = measure(X, s, sample_weight=factor * W, method=method, **options)
            assert second == pytest.approx(first, rel=1e-9)


def test_a_group_that_the_sample_lacks_knows_no_unit_of_the_weights():
    some = np.random.default_rng(1)
    x, age, w = some.normal(size=5000), some.normal(size=5000), some.exponential(size=5000)
    rare = np.zeros(5000, dtype=int)
    rare[::50] = np.repeat(np.arange(1, 51), 2)
    frame = pd.DataFrame({"g": rare.astype(str), "age": age})
    first, second = (alignment(x, frame, sample_weight=v) for v in (w, w / w.sum()))
    assert second == pytest.approx(first, rel=1e-9)


@pytest.mark.parametrize("method", ["exact", "features"])
@pytest.mark.parametrize(("k", "m"), KERNELS)
def test_weighted_and_unbiased_is_the_formula_with_kishs_count(k, m, method):
    w = np.random.default_rng(3).exponential(size=N) * 5
    found = hsic(X, S, k, m, biased=False, sample_weight=w, method=method)
    assert found == pytest.approx(naive.unbiased_hsic(k(X), m(S), w), rel=1e-6)
    present = W > 0
    some = hsic(X[present], S[present], k, m, biased=False, sample_weight=W[present], method=method)
    zeros = hsic(X, S, k, m, biased=False, sample_weight=W, method=method)
    assert zeros == pytest.approx(some, rel=1e-6)
    equal = hsic(X, S, k, m, biased=False, sample_weight=np.full(N, 0.3), method=method)
    assert equal == pytest.approx(dense_unbiased(k(X), m(S)), rel=1e-6)


@pytest.mark.parametrize(("name", "kernel"), [("categorical", Categorical()), ("linear", Linear())])
def test_a_kernel_is_the_same_by_name_and_as_an_object(name, kernel):
    # Rare values that a sample of 2,000 rows lacks are categories all the same.
    some = np.random.default_rng(1)
    x, g = some.normal(size=5000), np.zeros(5000)
    g[::50] = np.repeat(np.arange(1, 51), 2)
    for measure in (hsic, partial(hsic, biased=False), alignment, nocco):
        assert measure(x, g, "rbf", kernel) == measure(x, g, "rbf", name)
    for method in ("features", "gamma"):
        by = [hsic_test(x, g, kernel_a="rbf", kernel_b=k, method=method) for k in (kernel, name)]
        assert by[0] == by[1]
    for cv in (None, 5):
        by = [explained_share(x, g, kernel=k, cv=cv) for k in (kernel, name)]
        assert by[0] == by[1]
    few = x[:100], x[:100] + some.normal(size=100), some.integers(0, 3, 100)
    by = [conditional_hsic_test(*few, kernel_c=k) for k in (kernel, name)]
    assert by[0] == by[1]


@pytest.mark.parametrize("method", ["exact", "features"])
def test_row_order_does_not_matter(method):
    order = rng.permutation(N)
    for measure in (hsic, alignment, nocco):
        found = measure(X[order], S[order], method=method)
        assert found == pytest.approx(measure(X, S, method=method), rel=1e-6)


def test_tiles_do_not_matter(monkeypatch):
    whole = hsic(X, S), hsic(X, S, biased=False), alignment(X, S)
    monkeypatch.setattr(independence, "TILE_ROWS", 17)
    cut = hsic(X, S), hsic(X, S, biased=False), alignment(X, S)
    np.testing.assert_allclose(cut, whole, rtol=1e-12)


def test_alignment_is_between_0_and_1_and_blind_to_scale():
    assert alignment(X, X) == pytest.approx(1.0, abs=1e-12)
    independent = alignment(X, rng.normal(size=N))
    assert 0 < independent < 0.2
    scaled = alignment(X * [1e3, 1e-3] + 5, -S * 1e4)
    assert scaled == pytest.approx(alignment(X, S), rel=1e-9)
    assert normalized_hsic is alignment


def test_unbiased_hsic_is_0_on_average():
    values = [hsic(*rng.normal(size=(2, 20)), RBF(1.0), RBF(1.0), biased=False) for _ in range(200)]
    assert abs(np.mean(values)) < 4 * np.std(values) / np.sqrt(200)
    assert np.min(values) < 0
    # With weights a bias of order 1/n² is left; that of the plug-in is of order 1/n.
    some = np.random.default_rng(1)
    for draws in (some.exponential(size=(300, 60)), some.integers(1, 9, (300, 60)) / 60):
        means, errors = [], []
        for biased in (False, True):
            values = [
                hsic(*some.normal(size=(2, 60)), RBF(1.0), RBF(1.0), biased=biased, sample_weight=w) for w in draws
            ]
            means.append(np.mean(values))
            errors.append(np.std(values) / np.sqrt(300))
        assert abs(means[0]) < 4 * errors[0] < means[1] / 3


def test_nocco_of_categories_counts_the_associations():
    """For one-hots as ε → 0 it is χ²/n, the inertia of the table."""
    H = np.where(rng.random(N) < 0.7, G, "p")
    table = pd.crosstab(G, H).to_numpy() / N
    expected = np.outer(table.sum(1), table.sum(0))
    inertia = np.sum((table - expected) ** 2 / expected)
    assert nocco(G, H, eps=1e-12) == pytest.approx(inertia, rel=1e-6)
    assert nocco(G, H, eps=1e-12, method="exact") == pytest.approx(inertia, rel=1e-6)


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    n = 3000
    r = np.random.default_rng(1)
    age = r.normal(size=n)
    group = np.array(["u", "v", "w"])[r.integers(0, 3, n)]
    frame = pd.DataFrame(
        {
            "p": age**2 + (group == "u") + r.normal(size=n),
            "age": age,
            "group": group,
            "weight": r.integers(1, 4, n).astype(float),
        }
    )
    folder = tmp_path_factory.mktemp("measures")
    for part in range(3):
        frame[part * 1000 : part * 1000 + 1000].to_parquet(folder / f"{part}.parquet")
    return frame, folder


@pytest.mark.parametrize("weighted", [False, True])
def test_any_container_gives_the_same(table, weighted):
    import dask.dataframe as dd

    frame, folder = table
    scan = scan_parquet(folder)
    lazy = dd.from_pandas(frame, npartitions=4)
    arrow = pa.Table.from_pandas(frame)
    s = ["age", "group"]
    sources = {
        "pandas": (frame["p"], frame[s], frame["weight"]),
        "polars": (pl.from_pandas(frame)["p"], pl.from_pandas(frame)[s], frame["weight"]),
        "arrow": (arrow["p"], arrow.select(s), frame["weight"].to_numpy()),
        "scan": (scan["p"], scan[s], scan["weight"]),
        "scan second": (frame["p"], scan[s], frame["weight"]),
        "dask": (lazy["p"], lazy[s], lazy["weight"]),
    }
    found = {
        name: alignment(p, part, sample_weight=w if weighted else None, method="features")
        for name, (p, part, w) in sources.items()
    }
    assert found == pytest.approx(dict.fromkeys(sources, found["pandas"]), rel=1e-6)


def test_chunks_do_not_matter(monkeypatch):
    from scalefair.measures import _features

    r = np.random.default_rng(2)
    x = r.normal(size=6000)
    y = np.sin(3 * x) + r.normal(size=6000)
    whole = hsic(x, y, method="features"), hsic(x, y, method="features", biased=False)
    monkeypatch.setattr(_features, "MAX_BLOCK_NUMBERS", 1)
    cut = hsic(x, y, method="features"), hsic(x, y, method="features", biased=False)
    np.testing.assert_allclose(cut, whole, rtol=1e-10)
    exact = hsic(x, y, RBF(1.0), RBF(1.0), method="exact")
    assert hsic(x, y, RBF(1.0), RBF(1.0), method="features") == pytest.approx(exact, rel=1e-6)
