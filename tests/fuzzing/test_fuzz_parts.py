"""Maps, encoders, moments and measures on hostile data: invariants, or an error somebody wrote."""

from __future__ import annotations

from functools import reduce
from operator import add

import numpy as np
from hypothesis import assume, given
from hypothesis import strategies as st
from sklearn.ensemble import ExtraTreesRegressor, GradientBoostingRegressor
from sklearn.preprocessing import PolynomialFeatures, QuantileTransformer, StandardScaler

from scalefair import Moments, audit, measures
from scalefair.data.columns import table_statistics
from scalefair.data.encoding import SensitiveEncoder, TableEncoder
from scalefair.data.sources import ArraySource
from scalefair.maps import ConcatMap, Identity, LeafMap, Nystroem, OneHot, ProductMap, RandomFourier, TransformerMap
from tests.fuzz import Refused, answered, cases, columns, frames, honest, matrices, sizes, weights

MAPS = st.one_of(
    st.builds(
        Nystroem,
        st.sampled_from(["rbf", "laplace", "matern12", "matern52", "linear"]),
        st.sampled_from(["median", "standardized", 1.0, 1e-12, 1e12, 1e-160]),
        n_components=st.integers(1, 9),
        whitening=st.sampled_from(["eigen", "cholesky"]),
        landmarks=st.sampled_from(["uniform", "kmeans++", "leverage"]),
        random_state=st.just(0),
    ),
    st.builds(
        RandomFourier,
        st.sampled_from(["rbf", "laplace", "matern32"]),
        st.sampled_from(["median", 1.0, 1e-12, 1e12]),
        n_components=st.integers(1, 9),
        pairs=st.booleans(),
        orthogonal=st.booleans(),
        random_state=st.just(0),
    ),
    st.builds(Identity),
    st.builds(OneHot, st.sampled_from(["error", "group"])),
    st.just(ProductMap([(OneHot(), [0]), (Nystroem(length_scale="standardized"), [0])])),
    st.just(ConcatMap([(OneHot("group"), [0]), (Nystroem(n_components=3), slice(None))])),
    st.builds(
        TransformerMap, st.sampled_from([StandardScaler(), PolynomialFeatures(2), QuantileTransformer(n_quantiles=2)])
    ),
)


@st.composite
def blocks(draw, what=matrices, **options):
    n = draw(sizes())
    return draw(what(n, **options)), draw(weights(n)), n


@cases(225)
@given(MAPS, blocks())
def test_maps(feature_map, rows):
    """Features are finite, of the width said, the same alone as among others, bounded by k."""
    check_map(feature_map, *rows[:2])


@cases(50)
@given(st.sampled_from([ExtraTreesRegressor, GradientBoostingRegressor]), st.data(), blocks())
def test_leaf_maps(kind, data, rows):
    """The same of the leaves of trees; they were grown on other rows, perhaps of other columns."""
    X, weight, _ = rows
    width = data.draw(st.sampled_from([X.shape[1]] * 4 + [X.shape[1] + 1]))
    rng = np.random.default_rng(0)
    grown = kind(n_estimators=3, max_depth=2, random_state=0)
    grown.fit(rng.normal(size=(20, width)), rng.normal(size=20))
    check_map(LeafMap(grown), X, weight)


def check_map(feature_map, X, weight):
    fitted = honest(feature_map.fit, X, sample_weight=weight)
    if isinstance(fitted, Refused):
        return
    Phi = honest(fitted.transform, X)
    if isinstance(Phi, Refused):
        assert weight is not None, Phi
        return
    answered(Phi)
    assert Phi.shape == (len(X), fitted.n_features_out)
    one = fitted.transform(X[:1])
    size = np.abs(Phi).max()
    loose = 1e-3 if Phi.dtype == np.float32 else 1e-6
    np.testing.assert_allclose(one[0], Phi[0], rtol=loose, atol=loose * size)
    if isinstance(feature_map, Nystroem | RandomFourier) and feature_map.kernel != "linear":
        assert (np.sum(Phi.astype(float) ** 2, axis=1) < 2.1).all()


@cases(100)
@given(blocks(frames), st.integers(1, 5))
def test_encoder(rows, chunk):
    """Encoding is finite, and does not depend on the chunks it was learnt from."""
    X, weight, n = rows
    encoder = TableEncoder(min_frequency=0.1)
    if isinstance(honest(encoder.fit, X, sample_weight=weight), Refused):
        return
    out = answered(honest(encoder.transform, X))
    assert out.shape == (n, encoder.n_features_out_)
    assert len(set(encoder.get_feature_names_out())) == encoder.n_features_out_
    w = np.ones(n) if weight is None else weight
    parts = [slice(i, i + chunk) for i in range(0, n, chunk)]
    total = honest(lambda: reduce(add, [table_statistics(X.iloc[at], w[at]) for at in parts]))
    if isinstance(total, Refused):  # a kind that no single chunk of missing values shows
        return
    again = answered(honest(lambda: TableEncoder(min_frequency=0.1).finish(total).transform(X)))
    np.testing.assert_allclose(again, out, rtol=1e-6, atol=1e-6 * (1 + np.abs(out).max()))


@cases(75)
@given(st.one_of(blocks(frames, missing=False), blocks()))
def test_sensitive_encoder(rows):
    """Codes tell every value from every other."""
    s, weight, _ = rows
    encoder = SensitiveEncoder()
    if isinstance(honest(encoder.fit, s, sample_weight=weight), Refused):
        return
    out = honest(encoder.transform, s)
    assert isinstance(out, Refused) or answered(out).shape == s.shape


@st.composite
def merge_trees(draw, count):
    """An order in which to add up `count` parts: pairs to merge, two at a time."""
    left, order = list(range(count)), []
    while len(left) > 1:
        i = draw(st.integers(0, len(left) - 2))
        order.append((left[i], left[i + 1]))
        del left[i + 1]
    return order


@cases(125)
@given(st.data())
def test_moments_do_not_depend_on_chunks_and_merges(data):
    n = data.draw(st.integers(2, 30))
    X, s = (np.stack([data.draw(columns(n)) for _ in range(2)], axis=1) for _ in range(2))
    y = data.draw(columns(n))[:, None]
    weight = data.draw(weights(n))
    assume(weight is None or 0 < np.sum(weight) < 1e75)
    X, s, y = (np.clip(part, -1e70, 1e70) for part in (X, s, y))
    weight = None if weight is None else np.asarray(weight, dtype=float)
    phi, psi = Identity().fit(X), Identity().fit(s)
    whole = Moments.accumulate(ArraySource(X, s, y, weight), phi, psi)
    cuts = sorted(data.draw(st.lists(st.integers(0, n), max_size=5)))
    spans = [slice(a, b) for a, b in zip([0, *cuts], [*cuts, n], strict=True) if a < b]
    parts = {
        i: Moments.accumulate(ArraySource(X[at], s[at], y[at], None if weight is None else weight[at]), phi, psi)
        for i, at in enumerate(spans)
    }
    for a, b in data.draw(merge_trees(len(parts))):
        parts[a] = parts[a] + parts.pop(b)
    (merged,) = parts.values()
    assert merged.n_rows == whole.n_rows
    np.testing.assert_allclose(merged.weight, whole.weight, rtol=1e-12)
    # Within rounding of the largest number of each column: what any sum could promise.
    size = np.abs(np.hstack([X, s, y])).max(axis=0)
    bound = 1e-13 * n * whole.weight * np.outer(size, size) + 1e-300
    assert (np.abs(merged.scatter - whole.scatter) <= bound).all()
    mean = merged.mean("phi", "psi", "y") - whole.mean("phi", "psi", "y")
    assert (np.abs(mean) <= 1e-12 * n * size + 1e-300).all()


PAIRS = {
    "hsic": (lambda a, b, w: measures.hsic(a, b, sample_weight=w), -1e-12, 2.0),
    "unbiased hsic": (lambda a, b, w: measures.hsic(a, b, biased=False), -1.0, 2.0),
    "features hsic": (lambda a, b, w: measures.hsic(a, b, method="features", n_components=9), -1e-9, 2.0),
    "alignment": (lambda a, b, w: measures.alignment(a, b, sample_weight=w), -1e-9, 1 + 1e-9),
    "nocco": (lambda a, b, w: measures.nocco(a, b, sample_weight=w), -1e-9, np.inf),
    "distance": (lambda a, b, w: measures.distance_correlation(a, b, sample_weight=w), 0, 1 + 1e-9),
    "information": (lambda a, b, w: measures.mutual_information(a, b), 0, np.inf),
    "share": (lambda a, b, w: measures.explained_share(a, b, sample_weight=w, cv=2), 0, 1 + 1e-9),
    "share in sample": (lambda a, b, w: measures.explained_share(a, b, sample_weight=w, cv=None), 0, 1 + 1e-9),
    "test": (lambda a, b, w: measures.hsic_test(a, b, n_permutations=19).pvalue, 0, 1 + 1e-12),
    "conditional": (lambda a, b, w: measures.conditional_hsic_test(a, b, b, n_permutations=9).pvalue, 0, 1 + 1e-12),
}


@cases(250)
@given(st.sampled_from(sorted(PAIRS)), st.data())
def test_measures(name, data):
    """A number within its range."""
    n = data.draw(sizes())
    kinds = st.one_of(matrices(n, most=2), frames(n, missing=False), columns(n))
    a, b, weight = data.draw(kinds), data.draw(kinds), data.draw(weights(n))
    measure, low, high = PAIRS[name]
    value = honest(measure, a, b, weight)
    assert isinstance(value, Refused) or low <= value <= high, value


@cases(30)
@given(st.data())
def test_groups_and_audit(data):
    """Tables of groups are made, or refused."""
    n = data.draw(sizes())
    y, f, weight = (data.draw(each(n)) for each in (columns, columns, weights))
    s = data.draw(frames(n, missing=False))
    gaps = honest(measures.group_gaps, f, sensitive_features=s, y_true=y, sample_weight=weight)
    if not isinstance(gaps, Refused):
        assert len(gaps.by_group) >= 1
    honest(audit, f, sensitive_features=s, y_true=y, sample_weight=weight, measures=["explained_share"])
