"""Mutual information and distance correlation: closed forms, definitions, oracles."""

import numpy as np
import pandas as pd
import pytest
from sklearn.feature_selection import mutual_info_classif

from scalefair import scan_parquet
from scalefair.kernels import RBF
from scalefair.measures import alignment, distance_correlation, explained_share, hsic_test, mutual_information
from tests.errors import refused

rng = np.random.default_rng(8)


@pytest.mark.parametrize("correlation", [0.0, 0.3, 0.6, 0.9])
def test_two_gaussians(correlation):
    x, z = rng.normal(size=(2, 10_000))
    y = correlation * x + np.sqrt(1 - correlation**2) * z
    truth = -0.5 * np.log(1 - correlation**2)
    assert mutual_information(x, y) == pytest.approx(truth, abs=0.03)
    assert mutual_information(x * 1e5 + 3, -y) == pytest.approx(truth, abs=0.03)


def test_gaussian_vectors():
    """I(x; (y₁, y₂)) = ½ log(1 + 1/σ₁² + 1/σ₂²) for y_j = x + σ_j z_j."""
    x, z1, z2 = rng.normal(size=(3, 10_000))
    b = np.column_stack([x + z1, x + 2 * z2])
    assert mutual_information(x, b) == pytest.approx(0.5 * np.log(1 + 1 + 0.25), abs=0.03)


def test_discrete_variables_have_the_corrected_plug_in():
    u = rng.integers(0, 3, 2000)
    v = np.where(rng.random(2000) < 0.5, u, rng.integers(0, 3, 2000))
    p = pd.crosstab(u, v).to_numpy() / 2000
    plug_in = np.sum(p * np.log(p / np.outer(p.sum(1), p.sum(0))))
    expected = plug_in - 4 / (2 * 2000)
    text = u.astype(str), v.astype(str)
    assert mutual_information(*text) == pytest.approx(expected, abs=1e-4)
    assert mutual_information(u.astype(float), v.astype(float)) == pytest.approx(expected, abs=1e-4)


def test_discrete_and_continuous_is_that_of_ross():
    s = rng.integers(0, 3, 1500)
    f = s + rng.normal(size=1500)
    expected = mutual_info_classif(f[:, None], s, random_state=0)[0]
    assert mutual_information(f, s.astype(str)) == pytest.approx(expected, abs=1e-6)


def test_mixed_columns():
    """b = (group, age): I(f; b) adds up what independent parts of f tell."""
    n = 8000
    g, age, z = rng.integers(0, 2, n), rng.normal(size=n), rng.normal(size=n)
    b = pd.DataFrame({"g": g.astype(str), "age": age})
    assert mutual_information(age + z, b) == pytest.approx(0.5 * np.log(2), abs=0.04)
    both = mutual_information(np.where(g == 1, age, -age) + 0.5 * z, b)
    assert both == pytest.approx(0.5 * np.log(1 + 4), abs=0.06)


def test_ties_of_rounded_numbers_do_no_harm():
    age = rng.integers(18, 70, 5000)
    f = (age - 44) / 15 + rng.normal(size=5000)
    smooth = mutual_information(f, age + rng.uniform(-0.5, 0.5, 5000))
    assert mutual_information(f, age) == pytest.approx(smooth, abs=0.06)


def test_information_is_clipped_at_0_and_invariant():
    x, y = rng.normal(size=(2, 200))
    values = [mutual_information(x, rng.permutation(y), clip=False) for _ in range(20)]
    assert min(values) < 0
    assert mutual_information(x, y) >= 0
    order = rng.permutation(200)
    assert mutual_information(x[order], y[order]) == pytest.approx(mutual_information(x, y))
    assert mutual_information(y, x) == pytest.approx(mutual_information(x, y))


def test_rows_beyond_the_limit_are_sampled(tmp_path):
    x, z = rng.normal(size=(2, 20_000))
    frame = pd.DataFrame({"x": x, "y": 0.6 * x + 0.8 * z})
    frame.to_parquet(tmp_path / "rows.parquet")
    scan = scan_parquet(tmp_path / "rows.parquet")
    streamed = mutual_information(scan["x"], scan["y"], max_rows=5000)
    assert streamed == pytest.approx(mutual_information(frame["x"], frame["y"], max_rows=5000))
    assert streamed == pytest.approx(-0.5 * np.log(1 - 0.36), abs=0.06)


def dense_distance_correlation(a, b):
    def centred(v):
        D = np.sqrt(((v[:, None] - v[None]) ** 2).sum(axis=2))
        return D - D.mean(axis=0) - D.mean(axis=1)[:, None] + D.mean()

    A, B = centred(a), centred(b)
    return np.sqrt((A * B).mean() / np.sqrt((A * A).mean() * (B * B).mean()))


@pytest.mark.parametrize("ties", [False, True])
def test_distance_correlation_of_single_columns_is_the_definition(ties):
    x = rng.normal(size=400)
    y = x**2 + rng.normal(size=400)
    if ties:
        x, y = np.round(x), np.round(y, 1)
    expected = dense_distance_correlation(x[:, None], y[:, None])
    assert distance_correlation(x, y) == pytest.approx(expected, abs=1e-10)
    assert distance_correlation(1e4 * x - 3, -y) == pytest.approx(expected, abs=1e-10)
    assert distance_correlation(x, y, method="features") == pytest.approx(expected, abs=2e-3)


def test_distance_correlation_of_numbers_and_categories_is_the_definition():
    x, w = rng.normal(size=300), rng.integers(0, 3, 300)
    g = np.array(list("pqr"))[rng.integers(0, 3, 300)]
    one_hot = (g[:, None] == np.array(list("pqr"))) / np.sqrt(2)
    expected = dense_distance_correlation(x[:, None], one_hot)
    assert distance_correlation(x, g) == pytest.approx(expected, abs=1e-10)
    assert distance_correlation(g, 1e4 * x) == pytest.approx(expected, abs=1e-10)
    twice = np.repeat(np.arange(300), w)
    weighted = distance_correlation(x, g, sample_weight=w)
    assert weighted == pytest.approx(distance_correlation(x[twice], g[twice]), abs=1e-10)


def test_distance_correlation_of_several_columns_is_the_definition():
    a = rng.normal(size=(300, 3))
    g = np.array(list("pq"))[rng.integers(0, 2, 300)]
    frame = pd.DataFrame({"x": a[:, 0] + rng.normal(size=300), "g": g})
    b = np.column_stack([frame["x"], (g == "p") / np.sqrt(2), (g == "q") / np.sqrt(2)])
    expected = dense_distance_correlation(a, b)
    assert distance_correlation(a, frame) == pytest.approx(expected, abs=1e-10)
    assert distance_correlation(a, frame, method="features") == pytest.approx(expected, abs=0.03)


@pytest.mark.parametrize("columns", [1, 2])
def test_weight_two_is_the_row_twice(columns):
    x, y = rng.normal(size=(2, 100, columns))
    y += x**2
    w = rng.integers(0, 3, 100)
    twice = np.repeat(np.arange(100), w)
    weighted = distance_correlation(x, y, sample_weight=w)
    assert weighted == pytest.approx(distance_correlation(x[twice], y[twice]), abs=1e-10)


@pytest.mark.parametrize("method", ["exact", "features"])
@pytest.mark.parametrize("columns", [1, 2])
def test_a_common_factor_of_the_weights_changes_nothing(columns, method):
    some = np.random.default_rng(1)
    x, w = some.normal(size=(100, columns)), some.exponential(size=100)
    y = x**2 + some.normal(size=(100, columns))
    first = distance_correlation(x, y, sample_weight=w, method=method)
    for factor in (1 / w.sum(), 100.0):
        second = distance_correlation(x, y, sample_weight=factor * w, method=method)
        assert second == pytest.approx(first, rel=1e-9)


@pytest.mark.parametrize("seed", range(3))
def test_a_number_that_a_sample_shows_one_value_of_has_every_measure(seed):
    """The maps of samples without the other values give what all pairs of rows give."""
    some = np.random.default_rng(seed)
    x = some.normal(size=6000)
    z = np.where(np.isin(np.arange(6000), some.choice(6000, 3, replace=False)), 5.0, 0.0)
    options = {"random_state": seed}
    found = alignment(x, z, RBF(1.0), method="features", **options)
    assert found == pytest.approx(alignment(x, z, RBF(1.0), method="exact"), rel=1e-5)
    assert mutual_information(x, z, max_rows=40, **options) < 1e-12
    assert mutual_information(x, z * 1e-200) < 1e-3
    assert 0 <= explained_share(x, z) < 0.01
    assert hsic_test(x, z, method="features").pvalue > 0.001
    two = np.column_stack([z, z])
    found = distance_correlation(x, two, method="features")
    assert found == pytest.approx(distance_correlation(x, two, method="exact"), abs=0.01)


def test_distance_correlation_streams(tmp_path):
    x = rng.normal(size=3000)
    frame = pd.DataFrame({"x": x, "y": np.abs(x) + rng.normal(size=3000)})
    frame.to_parquet(tmp_path / "rows.parquet")
    scan = scan_parquet(tmp_path / "rows.parquet")
    streamed = distance_correlation(scan["x"], scan["y"])
    assert streamed == pytest.approx(distance_correlation(frame["x"], frame["y"]), abs=5e-3)
    with refused("method='exact'", "memory", error=ValueError):
        distance_correlation(scan["x"], scan["y"], method="exact")


@pytest.mark.slow  # both compile for a long time when they are imported
def test_dcor_says_the_same():
    dcor = pytest.importorskip("dcor")
    x = rng.normal(size=300)
    y = np.sin(3 * x) + 0.2 * rng.normal(size=300)
    assert distance_correlation(x, y) == pytest.approx(dcor.distance_correlation(x, y), abs=1e-9)
    a, b = rng.normal(size=(2, 200, 3))
    b += a
    assert distance_correlation(a, b) == pytest.approx(dcor.distance_correlation(a, b), abs=1e-9)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_hyppo_says_the_same():
    """Its statistic is the square root of the alignment; its γ is 1/(2θ²)."""
    independence = pytest.importorskip("hyppo.independence")
    x = rng.normal(size=(150, 1))
    y = 0.25 * x**2 + rng.normal(size=(150, 1))
    theirs = independence.Hsic(bias=True, gamma=0.5)
    ours = alignment(x, y, RBF(1.0), RBF(1.0))
    assert np.sqrt(ours) == pytest.approx(theirs.statistic(x, y), abs=1e-9)
    p = theirs.test(x, y, reps=1000, auto=False, random_state=0)[1]
    assert hsic_test(x, y, kernel_a=RBF(1.0), kernel_b=RBF(1.0)).pvalue == pytest.approx(p, abs=0.05)
