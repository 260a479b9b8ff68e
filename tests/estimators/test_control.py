"""Conditional parity: what s explains at each level of a control, in every container."""

import dask.array as da
import numpy as np
import pandas as pd
import pytest
from sklearn import set_config
from sklearn.model_selection import cross_validate

import scalefair
from scalefair import FairKernelClassifier, FairKernelRidge, FairKernelRidgeCV, FairRidge
from scalefair.data.sources import ArraySource
from scalefair.features.base import whitened as features
from scalefair.features.blocks import CROSSED
from scalefair.features.design import Design
from scalefair.features.mixed import Crossed, units_of
from scalefair.held_out import held_out_shares
from scalefair.maps import Identity, Nystroem, OneHot
from scalefair.measures import group_gaps
from scalefair.moments import accumulate
from scalefair.penalties import PENALTIES, normalized
from tests.containers import CONTAINERS, contained
from tests.errors import refused
from tests.models import RowsBlock, fit_within

SIZE = {"n_components": 30, "random_state": 0}


def problem(n=600, seed=0, opposite=True):
    """Levels a and b of c in which the groups differ by +2 and by −2 (or by +2 in both)."""
    rng = np.random.default_rng(seed)
    s = rng.choice(["f", "m"], n)
    c = rng.choice(["a", "b"], n)
    sign = np.where(c == "a", 1.0, -1.0 if opposite else 1.0)
    x = np.column_stack([rng.normal(size=n), (s == "m") * sign * 2 + rng.normal(size=n), c == "a"])
    y = x[:, 0] + x[:, 1] + 3 * x[:, 2] + 0.1 * rng.normal(size=n)
    return x, y, s, c


def conditional_variance(f, s, c, weight=None):
    """E(E[f|s, c] − E[f|c])², by a loop over the cells."""
    w = np.ones(len(f)) if weight is None else weight
    total = 0.0
    for level in np.unique(c):
        at = c == level
        mean = np.average(f[at], weights=w[at])
        for group in np.unique(s[at]):
            cell = at & (s == group)
            total += w[cell].sum() * (np.average(f[cell], weights=w[cell]) - mean) ** 2
    return total / w.sum()


def gaps(f, s, c):
    return [f[(c == k) & (s == "m")].mean() - f[(c == k) & (s == "f")].mean() for k in np.unique(c)]


def fitted(model, parts, options=None, **more):
    x, y, s, c = parts
    return fit_within(options or {}, model, x, y, sensitive_features=s, control_features=c, **more)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("levels", [2, 5])
def test_the_penalty_is_the_variance_between_groups_within_levels(levels, weighted):
    rng = np.random.default_rng(levels)
    n = 400
    s, c = rng.integers(0, 3, n), rng.integers(0, levels, n)
    Phi = rng.normal(size=(n, 4)) + np.outer(s * (c - 1), rng.normal(size=4)) + c[:, None]
    y, beta = rng.normal(size=(n, 1)), rng.normal(size=(4, 1))
    weight = rng.integers(1, 4, n).astype(float) if weighted else None
    psi, upsilon = OneHot().fit(s[:, None]), OneHot().fit(c[:, None])
    xi = Crossed(psi, upsilon)
    beside = (
        RowsBlock("upsilon", levels, lambda chunk: features(upsilon, chunk.c)),
        RowsBlock("xi", xi.width, lambda chunk: xi.rows(chunk.s, chunk.c)),
    )
    source = ArraySource(Phi, s[:, None], y, weight, c[:, None])
    (moments,) = accumulate(source, Design(Identity().fit(Phi), psi, beside=beside), rows=37)
    found = np.sum((normalized(moments, 1e-13).T @ beta) ** 2)
    expected = conditional_variance((Phi @ beta)[:, 0], s, c, weight)
    np.testing.assert_allclose(found, expected, rtol=1e-8)


def test_opposite_gaps_at_two_levels_both_go_to_zero():
    """A partial covariance of f and s would see none of them: they cancel."""
    parts = problem()
    x, y, s, c = parts
    for group in "fm":
        x[s == group] -= x[s == group].mean(axis=0)
    free = fitted(FairRidge(eta=0.0, alpha=1e-6), parts).predict(x)
    assert gaps(free, s, c)[0] > 1.5
    assert gaps(free, s, c)[1] < -1.5
    marginal = FairRidge(eta=np.inf, alpha=1e-6).fit(x, y, sensitive_features=s).predict(x)
    assert np.ptp([marginal[s == g].mean() for g in "fm"]) < 1e-8
    assert min(np.abs(gaps(marginal, s, c))) > 1.0
    model = fitted(FairRidge(eta=np.inf, alpha=1e-6), parts)
    np.testing.assert_allclose(gaps(model.predict(x), s, c), 0, atol=1e-8)
    assert model.explained_share_ < 1e-12


def test_what_the_control_explains_is_left_alone():
    x, y, s, c = problem(opposite=False)
    x[:, 2] = (c == "a") ^ (np.random.default_rng(1).random(len(c)) < 0.1)
    model = fitted(FairRidge(eta=np.inf, alpha=1e-6), (x, y, s, c))
    f = model.predict(x)
    assert f[c == "a"].mean() - f[c == "b"].mean() > 1.5
    np.testing.assert_allclose(gaps(f, s, c), 0, atol=1e-8)


def test_the_share_is_that_of_the_variance_of_f_and_can_be_limited():
    parts = problem()
    x, _, s, c = parts
    for model in (FairRidge(eta=0.3, eps=1e-12), FairKernelRidge(unfairness=0.02, eps=1e-9, **SIZE)):
        f = fitted(model, parts).predict(x)
        share = conditional_variance(f, s, c) / f.var()
        np.testing.assert_allclose(model.explained_share_, share, rtol=1e-5)
    assert share == pytest.approx(0.02, rel=1e-4)
    path = model.path(etas=[0.0, model.eta_, np.inf]).table
    assert path["explained_share"][1] == pytest.approx(0.02, rel=1e-4)
    assert path["hsic"][2] < 1e-10 < path["hsic"][0]


@pytest.mark.parametrize("penalty", sorted(PENALTIES))
def test_every_penalty_lowers_the_conditional_share(penalty):
    parts = problem()
    same = {"alpha": 1e-3, **SIZE}
    before = fitted(FairKernelRidge(eta=0.0, **same), parts).explained_share_
    model = fitted(FairKernelRidge(eta=10.0, penalty=penalty, **same), parts)
    assert model.explained_share_ < (0.95 if penalty == "nocco" else 0.5) * before


def test_the_exact_and_the_iterative_fit_agree_with_the_direct_one():
    x, y, s, c = (part[:150] for part in problem())
    same = {"length_scale": 2.0, "eta": 3.0, "n_components": 150, "random_state": 0}
    direct = fitted(FairKernelRidge(**same), (x, y, s, c), {"solver": "direct"})
    for other in ({"feature_map": "exact"}, {"solver": "iterative"}):
        model = fitted(FairKernelRidge(**same), (x, y, s, c), other)
        np.testing.assert_allclose(model.predict(x), direct.predict(x), atol=1e-4)
        assert model.explained_share_ == pytest.approx(direct.explained_share_, abs=1e-5)


def test_the_target_as_control_is_equalised_odds_in_expectation():
    x, y, s, _ = problem(opposite=False)
    y = (y > np.median(y)).astype(float)
    model = fitted(FairRidge(eta=np.inf, alpha=1e-6, eps=1e-10), (x, y, s, y))
    f = model.predict(x)
    np.testing.assert_allclose(gaps(f, s, y), 0, atol=1e-6)
    assert f[y == 1].mean() - f[y == 0].mean() > 0.2
    plain = FairRidge(eta=np.inf, alpha=1e-6).fit(x, y, sensitive_features=s).predict(x)
    assert max(np.abs(gaps(plain, s, y))) > 0.05


def test_a_continuous_control_and_attribute():
    """f = s·c has no covariance with s, but at given c it follows s."""
    rng = np.random.default_rng(0)
    s, c, z = rng.normal(size=(3, 4000))
    x, y = np.column_stack([s * c, z]), s * c + z
    model = FairRidge(eta=20.0, n_sensitive_components=15, eps=1e-4)
    marginal = model.fit(x, y, sensitive_features=s).coef_
    assert marginal[0] > 0.8 * marginal[1]
    conditional = fitted(model, (x, y, s, c)).coef_
    assert conditional[0] < 0.1 * conditional[1]
    assert conditional[1] > 0.7
    assert model.moments_.blocks["xi"] <= CROSSED * model.n_sensitive_components


def test_the_crossed_map_is_the_product_kernel():
    rng = np.random.default_rng(0)
    s, c = rng.normal(size=(60, 1)), rng.normal(size=(60, 2))
    psi, upsilon = (Nystroem(n_components=60).fit(v) for v in (s, c))
    kernel = psi.kernel_(s) * upsilon.kernel_(c)
    full = Crossed.fit(psi, upsilon, s, c, None, most=10**4, seed=0).rows(s, c)
    seen = Crossed.fit(psi, upsilon, s, c, None, most=60, seed=0)
    assert full.shape[1] > 60 >= seen.width
    for Xi in (full, seen.rows(s, c)):
        np.testing.assert_allclose(Xi @ Xi.T, kernel, atol=1e-5)


def in_containers(parts, folder):
    x, y, s, c = parts
    frame = pd.DataFrame(x, columns=["x0", "x1", "x2"]).assign(y=y, s=s, c=c)
    roles = {"X": ["x0", "x1", "x2"], "y": "y", "sensitive_features": "s", "control_features": "c"}
    for kind in CONTAINERS:
        (folder / kind).mkdir()
        found = contained(kind, frame, folder / kind, **roles)
        yield kind, found
        if kind == "parquet":
            yield "parquet and memory", (*found[:3], c)
    sizes = (130, 170, 600, 90)
    yield (
        "dask arrays",
        [da.from_array(part, chunks=(size, *part.shape[1:])) for part, size in zip(parts, sizes, strict=True)],
    )


def test_every_container_and_chunking_gives_the_same_fit(tmp_path):
    parts = problem()
    expected = fitted(FairKernelRidge(eta=2.0, **SIZE), parts)
    for name, (X, y, s, c) in in_containers(parts, tmp_path):
        model = fitted(FairKernelRidge(eta=2.0, **SIZE), (X, y, s, c), {"chunk_rows": 47})
        np.testing.assert_allclose(model.coef_, expected.coef_, rtol=1e-8, atol=1e-8, err_msg=name)
        share = model.explained_share_
        assert share == pytest.approx(expected.explained_share_, rel=1e-8), name


def test_weight_two_is_the_row_twice_and_weight_zero_no_row():
    parts = problem(300)
    times = np.random.default_rng(0).integers(0, 3, 300)
    c = parts[3].astype(object)
    c[times == 0] = "a level of no row"
    twice = [np.repeat(part, times, axis=0) for part in (*parts[:3], c)]
    one = fitted(FairRidge(eta=2.0), twice)
    other = fitted(FairRidge(eta=2.0), (*parts[:3], c), sample_weight=times.astype(float))
    np.testing.assert_allclose(one.coef_, other.coef_, rtol=1e-9)
    assert one.explained_share_ == pytest.approx(other.explained_share_, rel=1e-8)


def test_batches_add_up_files_keep_and_keys_tell_controls_apart(tmp_path):
    parts = problem()
    first, rest = ([part[cut] for part in parts] for cut in (slice(300), slice(300, None)))
    model = fitted(FairKernelRidge(eta=2.0, **SIZE), first)
    x, y, s, c = rest
    more = model.collect(x, y, sensitive_features=s, control_features=c)
    whole = model.moments_ + more
    model.partial_fit(x, y, sensitive_features=s, control_features=c)
    np.testing.assert_allclose(model.moments_.scatter, whole.scatter, rtol=1e-10)
    scalefair.save(model, tmp_path / "model")
    again = scalefair.load(tmp_path / "model")
    np.testing.assert_array_equal(again.predict(x), model.predict(x))
    assert again.collect(x, y, sensitive_features=s, control_features=c).key == more.key
    plain = FairKernelRidge(eta=2.0, **SIZE).fit(x, y, sensitive_features=s)
    with refused():
        plain.moments_ + more
    renamed = np.where(first[3] == "a", "z", "b")
    other = fitted(FairKernelRidge(eta=2.0, **SIZE), (*first[:3], renamed))
    with refused("control"):
        other.moments_ + more


def test_cross_validation_judges_the_conditional_share():
    parts = problem(900)
    model = fitted(FairKernelRidgeCV(unfairness=0.05, cv=3, **SIZE), parts)
    assert model.explained_share_cv_ <= 0.05
    f = model.predict(parts[0])
    assert conditional_variance(f, *parts[2:]) / f.var() <= 0.0501


def test_the_held_out_share_of_independent_groups_is_zero_on_average():
    """Chance explains a share of what the control has left; without it the mean would be off."""
    rng, found = np.random.default_rng(0), []
    for _ in range(200):
        n = 60
        s, c = rng.integers(0, 4, (n, 1)), rng.integers(0, 3, (n, 1))
        f = rng.normal(size=(n, 1)) + 2 * c
        psi, upsilon = OneHot().fit(np.arange(4)[:, None]), OneHot().fit(np.arange(3)[:, None])
        xi = Crossed(psi, upsilon)
        beside = (
            RowsBlock("upsilon", 3, lambda k, u=upsilon: features(u, k.c)),
            RowsBlock("xi", 12, lambda k, x=xi: x.rows(k.s, k.c), units_of(xi)),
        )
        source = ArraySource(f, s, f, None, c)
        (moments,) = accumulate(source, Design(Identity().fit(f), psi, beside=beside))
        found.append(held_out_shares(moments, ("phi",), np.ones((1, 1)), 1).shares[0, 0])
    error = np.std(found) / np.sqrt(len(found))
    assert abs(np.mean(found)) < 3 * error
    assert error < 0.01


def test_metadata_routing():
    x, y, s, c = problem(200)
    set_config(enable_metadata_routing=True)
    try:
        model = FairRidge(eta=1.0).set_fit_request(sensitive_features=True, control_features=True)
        params = {"sensitive_features": s, "control_features": c}
        scores = cross_validate(model, x, y, params=params, cv=2, return_estimator=True)
    finally:
        set_config(enable_metadata_routing=False)
    assert all("xi" in fit.moments_.blocks for fit in scores["estimator"])


@pytest.mark.parametrize(
    ("change", "error", "named"),
    [
        ({"control_features": "age"}, TypeError, ["control_features='age'"]),
        ({"control_features": np.ones(5)}, ValueError, ["control_features", "5", "200"]),
        ({"control_features": np.ones(200)}, ValueError, ["'s0'", "1.0"]),
        ({"control_features": np.empty((200, 0))}, ValueError, ["control_features"]),
        ({"sensitive_features": None, "eta": 0.0}, ValueError, ["sensitive"]),
        ({"control_features": np.char.add(*problem(200)[2:])}, ValueError, ["sensitive"]),
        ({"control_features": np.r_[np.nan, np.arange(199.0)]}, ValueError, ["'s0'", "1 missing"]),
    ],
)
def test_bad_controls(change, error, named):
    x, y, s, c = problem(200)
    given = {"sensitive_features": s, "control_features": c} | change
    with refused(*named, error=error):
        FairRidge(eta=given.pop("eta", 1.0)).fit(x, y, **given)


def test_later_batches_need_the_control_too():
    parts = problem(200)
    x, y, s, _ = parts
    model = fitted(FairRidge(), parts)
    with refused("control_features", "partial_fit"):
        model.partial_fit(x, y, sensitive_features=s)


@pytest.mark.parametrize("text", [False, True])
def test_classification_given_the_label(text):
    """Scores have equal means in both groups given y; rates of thresholded ones are not promised.

    A frame with text is encoded once and held, which must not lose the control.
    """
    x, y, s, _ = problem(opposite=False)
    label = np.where(y > np.median(y), "yes", "no")
    X = pd.DataFrame(x, columns=["x0", "x1", "x2"])
    X["word"] = np.where(x[:, 0] > 0, "high", "low") if text else x[:, 0] > 0
    common = {"feature_map": "linear", "eta": 1e6, "alpha": 1e-4, "eps": 1e-9}
    model = fitted(FairKernelClassifier(**common), (X, label, s, label))
    f = model.decision_function(X)
    np.testing.assert_allclose(gaps(f, s, label), 0, atol=1e-3)
    plain = FairKernelClassifier(**common).fit(X, label, sensitive_features=s)
    assert max(np.abs(gaps(plain.decision_function(X), s, label))) > 0.1
    assert model.explained_share_ < 1e-6
    share = conditional_variance(f, s, label) / f.var()
    assert share == pytest.approx(model.explained_share_, abs=1e-6)
    path = model.path(X, label, [0.0, 1e3], sensitive_features=s, control_features=label)
    assert np.diff(path.table["explained_share"])[0] < 0


def test_error_rates_are_reported_beside_and_not_promised():
    """Given y, mean scores are equal; but one group's scores spread more, and so err more often."""
    rng = np.random.default_rng(0)
    n = 4000
    s, y = rng.choice(["f", "m"], n), rng.integers(0, 2, n)
    noise = rng.normal(size=n) * np.where(s == "m", 2.0, 0.5)
    for cell in ((s == group) & (y == level) for group in "fm" for level in (0, 1)):
        noise[cell] -= noise[cell].mean()
    x = np.column_stack([2.0 * y - 1 + noise + 0.8 * (s == "m"), s == "m"])
    common = {"feature_map": "linear", "alpha": 1e-6, "eps": 1e-9, "eta": np.inf}
    model = fitted(FairKernelClassifier(**common), (x, y, s, y))
    np.testing.assert_allclose(gaps(model.decision_function(x), s, y), 0, atol=1e-6)
    found = group_gaps(model.predict(x), sensitive_features=s, y_true=y).difference()
    wrong = model.predict(x) != y
    for name, at in (("false_positive_rate", y == 0), ("false_negative_rate", y == 1)):
        by_group = [wrong[at & (s == group)].mean() for group in "fm"]
        assert found[name] == pytest.approx(np.ptp(by_group), abs=1e-12)
        assert found[name] > 0.1
