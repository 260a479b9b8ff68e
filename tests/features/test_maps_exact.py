"""Exact maps and maps made of maps."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone

from scalefair.features.product import column_numbers
from scalefair.kernels import Categorical
from scalefair.maps import ConcatMap, Identity, Nystroem, OneHot, ProductMap
from tests.errors import refused

rng = np.random.default_rng(0)
ROWS = rng.normal(size=(60, 3))
GROUPS = rng.integers(0, 3, size=(60, 1)).astype(float)
MIXED = np.hstack([GROUPS, ROWS])


# Exact maps


def test_onehot_is_the_kernel_of_equal_rows():
    S = np.random.default_rng(4).integers(0, 3, size=(50, 3)).astype(float)
    Psi = OneHot().fit_transform(S)
    assert_array_equal(Psi @ Psi.T, Categorical()(S))
    assert_array_equal(Psi @ Psi.T, (S[:, None] == S[None]).all(axis=2))
    assert_array_equal(Psi.sum(axis=1), 1)
    assert (Psi.sum(axis=0) > 0).all()


def test_onehot_is_the_same_for_codes_strings_and_frames():
    codes = np.random.default_rng(5).integers(0, 3, size=(40, 2))
    words = np.array(["a", "bb", "ccc"])[codes]
    frame = pd.DataFrame({"first": pd.Categorical(words[:, 0]), "second": codes[:, 1]})
    expected = OneHot().fit_transform(codes)
    for S in (codes.astype(np.float32), words, words.astype(object), frame):
        assert_array_equal(OneHot().fit_transform(S), expected)


def test_onehot_names_read_well():
    S = pd.DataFrame({"sex": ["F", "M", "F"], "child": [0.0, 1.0, 2.5]})
    onehot = OneHot().set_output(transform="pandas").fit(S)
    assert list(onehot.transform(S)) == ["sex=F & child=0", "sex=F & child=2.5", "sex=M & child=1"]
    assert_array_equal(onehot.combinations_, S.to_numpy()[[0, 2, 1]])


@pytest.mark.parametrize("S", [np.array([[0.0, 1.0], [1.0, 0.0]]), np.array([list("ab"), list("ba")])])
def test_onehot_unseen_combination(S):
    other = S[:, ::-1].copy()
    other[:, 1] = other[:, 0]
    name = f"x0={str(other[0, 0]).removesuffix('.0')} & x1={str(other[0, 1]).removesuffix('.0')}"
    with refused(name, "row 2", error=ValueError):
        OneHot().fit(S).transform(np.vstack([S, other]))
    Psi = OneHot(unknown="group").fit(S).transform(np.vstack([S, other]))
    assert_array_equal(Psi, np.vstack([np.eye(2), np.zeros((2, 2))]))


def test_onehot_unseen_values_between_and_beyond_the_seen():
    onehot = OneHot(unknown="group").fit([[1.0], [3.0]])
    assert_array_equal(onehot.transform([[0.0], [1.0], [2.0], [3.0], [4.0]])[:, 0], [0, 1, 0, 0, 0])


def test_onehot_leaves_out_rows_of_weight_zero():
    onehot = OneHot(unknown="group").fit([[1], [2], [3]], sample_weight=[1, 0, 2])
    assert_array_equal(onehot.transform([[1], [2], [3]]), [[1, 0], [0, 0], [0, 1]])


def test_onehot_crosses_more_columns_than_an_integer_holds():
    S = np.random.default_rng(6).integers(0, 2, size=(30, 200)).astype(float)
    S[20:] = S[:10]
    Psi = OneHot().fit_transform(S)
    assert Psi.shape == (30, 20)
    assert_array_equal(Psi @ Psi.T, Categorical()(S))
    for column in (0, 100, 199):
        # Arithmetic that wraps would forget the first columns.
        other = S.copy()
        other[:, column] = 1 - other[:, column]
        assert_array_equal(OneHot("group").fit(S).transform(other), 0)
        rows = np.vstack([S[:1], other[:1], 1 - S[:1]])
        assert_array_equal(OneHot().fit_transform(rows).sum(axis=0), [1, 1, 1])


def test_onehot_knows_a_category_in_single_precision():
    onehot = OneHot().fit([[0.1], [0.7]])
    Psi = onehot.transform(np.array([[0.7], [0.1]], dtype=np.float32))
    assert_array_equal(Psi, [[0, 1], [1, 0]])
    assert Psi.dtype == np.float32


def test_onehot_refuses_what_it_cannot_sort():
    with refused("column 0", "NoneType", "str", error=TypeError):
        OneHot().fit(np.array([["a"], [None]], dtype=object))


# Products and sums


def parts():
    return [(OneHot(), [0]), (Nystroem(n_components=8, random_state=0), slice(1, None))]


def gram(phi, X):
    Phi = phi.fit(X).transform(X)
    return Phi @ Phi.T


@pytest.mark.parametrize("whiten", ["moments", "rows"])
def test_product_map_multiplies_kernels(whiten):
    first, second = (gram(part, MIXED[:, where]) for part, where in parts())
    assert_allclose(gram(ProductMap(parts(), whiten=whiten), MIXED), first * second, atol=1e-10)


def test_product_of_three_and_of_one():
    three = [*parts(), (Identity(), [2, 3])]
    factors = [gram(part, MIXED[:, where]) for part, where in three]
    assert_allclose(gram(ProductMap(three), MIXED), np.prod(factors, axis=0), atol=1e-10)
    assert_allclose(gram(ProductMap(three[:1]), MIXED), factors[0])


def test_product_features_are_row_wise_kronecker_products():
    psi = ProductMap(parts()).fit(MIXED)
    (first, _), (second, _) = psi.parts_
    rows = zip(first.transform(MIXED[:, :1]), second.transform(MIXED[:, 1:]), strict=True)
    assert_allclose(psi.transform(MIXED), [np.kron(a, b) for a, b in rows], atol=1e-10)
    assert psi.n_raw_ == first.n_raw_ * second.n_raw_
    assert psi.linear_.shape == (psi.n_raw_, 3 * second.rank_)


def test_whitened_rows_have_fewer_columns():
    smooth = [(OneHot(), [0]), (Nystroem(length_scale=5.0, cutoff=1e-6), [1])]
    rows = ProductMap(smooth, whiten="rows").fit(MIXED)
    moments = ProductMap(smooth).fit(MIXED)
    assert rows.linear_ is None
    assert 5 * rows.n_raw_ < moments.n_raw_
    assert_allclose(rows.transform(MIXED), moments.transform(MIXED), atol=1e-9)


def test_concat_map_adds_kernels():
    first, second = (gram(part, MIXED[:, where]) for part, where in parts())
    assert_allclose(gram(ConcatMap(parts()), MIXED), first + second, atol=1e-10)


@pytest.mark.parametrize("cls", [ProductMap, ConcatMap])
def test_composite_of_exact_maps_has_no_linear_part(cls):
    assert cls([(OneHot(), [0]), (Identity(), [1])]).fit(MIXED).linear_ is None


def test_composites_nest():
    inner = ProductMap(parts())
    outer = ConcatMap([(inner, slice(None)), (Identity(), 1)])
    expected = gram(inner, MIXED) + np.outer(MIXED[:, 1], MIXED[:, 1])
    assert_allclose(gram(outer, MIXED), expected, atol=1e-10)


@pytest.mark.parametrize("whiten", ["moments", "rows"])
def test_product_map_of_a_mixed_frame(whiten):
    words = np.array(["x", "y", "z"])[GROUPS[:, 0].astype(int)]
    frame = pd.DataFrame({"age": ROWS[:, 0], "sex": words, "wage": ROWS[:, 1]})
    pair = [(OneHot(), "sex"), (Nystroem(n_components=5, random_state=0), ["age", "wage"])]
    psi = ProductMap(pair, whiten=whiten).set_output(transform="pandas").fit(frame)
    numbers = ProductMap([(pair[0][0], [0]), (pair[1][0], [1, 2])], whiten=whiten)
    Psi = psi.transform(frame)
    assert_array_equal(Psi, numbers.fit_transform(MIXED[:, :3]))
    assert Psi.columns[0] == "sex=x * nystroem0"
    assert list(ConcatMap(pair).fit(frame).get_feature_names_out())[2:4] == ["part0__sex=z", "part1__nystroem0"]


class FloatsOnly(Identity):
    def filler(self, dtype):
        def fill(X, out):
            assert X.dtype == np.float64
            assert X.flags.c_contiguous
            out[...] = X

        return fill


def test_parts_get_plain_rows_even_of_a_mixed_frame():
    frame = pd.DataFrame({"sex": ["F", "M"], "age": [1, 2], "wage": [0.5, 0.25]})
    phi = ConcatMap([(OneHot(), "sex"), (FloatsOnly(), ["age", "wage"])])
    assert_array_equal(phi.fit_transform(frame), [[1, 0, 1, 0.5], [0, 1, 2, 0.25]])


def test_composite_passes_weights_on():
    weight = (GROUPS[:, 0] < 2).astype(float)
    psi = ProductMap([(OneHot("group"), [0]), (Nystroem(), [1])]).fit(MIXED, sample_weight=weight)
    assert psi.parts_[0][0].n_raw_ == 2
    assert psi.parts_[1][0].n_raw_ == weight.sum()


def test_parameters_of_parts():
    psi = ProductMap(parts())
    psi.set_params(part0__unknown="group", part1__n_components=3)
    assert psi.get_params()["part1__n_components"] == psi.parts[1][0].n_components == 3
    psi.set_params(part1=Identity())
    assert isinstance(psi.parts[1][0], Identity)
    assert psi.parts[1][1] == slice(1, None)
    assert clone(psi).parts[0][0].unknown == "group"


@pytest.mark.parametrize(
    ("columns", "expected"),
    [
        (1, [1]),
        ([2, 0], [2, 0]),
        (-1, [2]),
        (slice(1, None), [1, 2]),
        (np.array([True, False, True]), [0, 2]),
        ("b", [1]),
        (["c", "a"], [2, 0]),
    ],
)
def test_column_numbers(columns, expected):
    assert_array_equal(column_numbers(columns, 3, ["a", "b", "c"]), expected)


@pytest.mark.parametrize(
    ("columns", "names", "error", "named"),
    [
        (3, None, ValueError, "columns=3"),
        ("d", ["a", "b", "c"], ValueError, "column 'd'"),
        ("a", None, ValueError, "column 'a'"),
        ([True, False], None, ValueError, "columns=[True, False]"),
        ([], None, TypeError, "columns=[]"),
        (slice(0, 0), None, ValueError, "columns=slice(0, 0"),
        (1.5, None, TypeError, "columns=1.5"),
    ],
)
def test_bad_columns(columns, names, error, named):
    with refused(named, error=error):
        column_numbers(columns, 3, names)


def test_unseen_combinations_are_what_their_levels_give():
    """Where β is a sum of effects of levels, so it is for a combination that fit has not seen."""
    S = np.array([[0, 0], [0, 1], [0, 2], [1, 0], [1, 1], [2, 0], [2, 2]], dtype=float)
    rows = np.repeat(S, [5, 1, 3, 2, 2, 1, 4], axis=0)
    psi = OneHot(unknown="levels").fit(rows)
    effects = np.array([1.0, -2.0, 0.5]), np.array([0.3, 4.0, -1.0])
    beta = effects[0][S[:, 0].astype(int)] + effects[1][S[:, 1].astype(int)]
    new = np.array([[1.0, 2.0], [2.0, 1.0], [0.0, 1.0]])
    with pytest.warns(UserWarning, match="x0=1 & x1=2"):
        Psi = psi.transform(new)
    np.testing.assert_allclose(Psi @ beta, [-3.0, 4.5, 5.0], atol=1e-12)
    np.testing.assert_allclose(Psi.sum(axis=1), 1.0)
    np.testing.assert_array_equal(Psi[2], OneHot().fit(rows).transform(new[2:])[0])
    with refused("x0=3", error=ValueError):
        psi.transform([[3.0, 0.0]])


def test_frequent_groups_count_more_where_effects_do_not_add_up():
    """The nearest sum of effects in the weighted mean square, by its normal equations."""
    rng = np.random.default_rng(0)
    S = np.array([[a, b] for a in range(4) for b in range(3) if (a, b) != (3, 2)], dtype=float)
    count, beta = rng.integers(1, 9, len(S)), rng.normal(size=len(S))
    psi = OneHot(unknown="levels").fit(np.repeat(S, count, axis=0))
    Z = np.hstack([S[:, [0]] == np.arange(4), S[:, [1]] == np.arange(3)]).astype(float)
    effects = np.linalg.lstsq(np.sqrt(count)[:, None] * Z, np.sqrt(count) * beta, rcond=None)[0]
    with pytest.warns(UserWarning, match="not seen"):
        found = psi.transform([[3.0, 2.0]]) @ beta
    np.testing.assert_allclose(found, effects[3] + effects[6], atol=1e-12)
