"""The median heuristic against all pairs of rows."""

import numpy as np
import pytest

from scalefair.kernels import median_length_scale as median

RNG = np.random.default_rng(0)


def naive_median(X, repeats, order):
    rows = np.repeat(X, repeats, axis=0)
    pairs = [(i, j) for i in range(len(rows)) for j in range(i + 1, len(rows))]
    distances = [np.linalg.norm(rows[i] - rows[j], ord=order) for i, j in pairs]
    return np.median([d for d in distances if d > 0])


@pytest.mark.parametrize(("metric", "order"), [("l2", 2), ("l1", 1)])
def test_median_length_scale_is_the_median_of_the_distances(metric, order):
    for n in (2, 3, 4, 9, 10):
        rows = RNG.normal(0, 1, (n, 3))
        repeats = RNG.integers(0, 4, n)
        repeats[:2] += 1
        expected = naive_median(rows, np.ones(n, int), order)
        assert median(rows, metric=metric) == pytest.approx(expected, rel=1e-14)
        expected = naive_median(rows, repeats, order)
        weighted = median(rows, repeats, metric=metric)
        assert weighted == pytest.approx(expected, rel=1e-14)
        assert weighted == median(np.repeat(rows, repeats, axis=0), metric=metric)


@pytest.mark.parametrize(
    ("factor", "weight"), [(0.1, [3, 3, 1, 1, 1]), (1 / 3, [1, 1, 3, 2, 3]), (7.7e-3, [1, 2, 2, 3, 1, 3])]
)
def test_median_length_scale_ignores_a_common_factor_of_the_weights(factor, weight):
    # The half of the total falls between two distances, where rounding must not decide.
    rows = np.array([0.0, 1, 3, 7, 12, 20])[: len(weight), None]
    expected = naive_median(rows, np.array(weight), 2)
    assert median(rows, factor * np.array(weight)) == pytest.approx(expected, rel=1e-14)


def test_median_length_scale_ignores_order_weight_zero_and_distance_zero():
    rows, weight = RNG.normal(0, 1, (30, 2)), RNG.integers(0, 4, 30)
    expected = median(rows, weight)
    order = RNG.permutation(30)
    assert median(rows[order], weight[order]) == expected
    assert median(rows[weight > 0], weight[weight > 0]) == expected
    assert median(rows, 4 * weight) == expected
    rows[weight == 0] = np.nan
    assert median(rows, weight) == expected
    assert median([[0.0]] * 50 + [[3.0]]) == 3.0


@pytest.mark.parametrize("values", [RNG.normal(size=60), RNG.integers(0, 3, 60), np.arange(9) == 8])
def test_distances_that_are_equal_or_zero(values):
    for rows in (values[:, None].astype(float), values[1:, None].astype(float)):
        assert median(rows) == pytest.approx(naive_median(rows, np.ones(len(rows), int), 2), rel=1e-14)
