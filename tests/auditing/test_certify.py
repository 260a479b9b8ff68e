"""Certificates of any model: what is certified, what is not, and what is refused."""

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LinearRegression, LogisticRegression

import scalefair
from scalefair import (
    Certificate,
    FairGPClassifier,
    FairGPRegressor,
    FairKernelRidge,
    NotCertifiedError,
    certify,
    scan_parquet,
)
from scalefair.measures import explained_share, group_gaps
from tests.errors import refused

rng = np.random.default_rng(0)
N = 2400
SEX = rng.choice(["f", "m"], N)
AGE = rng.normal(size=N)
X = pd.DataFrame({"a": rng.normal(size=N) + 0.4 * (SEX == "m"), "b": rng.normal(size=N)})
Y = X["a"] + X["b"] + 0.5 * (SEX == "m") + rng.normal(size=N)
FIT, NEW = slice(0, 1200), slice(1200, N)
MODEL = FairKernelRidge(unfairness=0.01, n_components=30, random_state=0).fit(
    X[FIT], Y[FIT], sensitive_features=SEX[FIT]
)


def certified(model=MODEL, rows=NEW, **options):
    options = {"unfairness": 0.1, "sensitive_features": SEX[rows]} | options
    return certify(model, X[rows], **options)


def test_what_a_certificate_says():
    made = certified(confidence=0.9)
    share = explained_share(MODEL.predict(X[NEW]), SEX[NEW], clip=False)
    assert made.estimate == pytest.approx(share, abs=1e-4)
    assert made.estimate < made.upper_bound <= made.limit == 0.1
    assert (made.confidence, made.rows, made.method) == (0.9, 1200, "new rows")
    assert "2 groups" in made.functions
    assert made.version == scalefair.__version__
    assert "0.1" in str(made)


def test_the_upper_bound_is_the_least_limit():
    bound = certified().upper_bound
    assert certified(unfairness=bound + 1e-6).upper_bound == bound
    with refused(error=NotCertifiedError) as caught:
        certified(unfairness=bound - 1e-6)
    assert caught.value.least_limit == pytest.approx(bound)
    assert caught.value.rows > 1000
    with refused(error=NotCertifiedError) as caught:
        certified(unfairness=1e-4)
    assert np.isinf(caught.value.rows)


def test_json_there_and_back():
    made = certified()
    assert Certificate.from_json(made.to_json()) == made
    for text in ("{}", "[1]", made.to_json().replace("1200", '"many"')):
        with refused(error=ValueError):
            Certificate.from_json(text)


def test_predictions_and_models_are_the_same():
    predictions = MODEL.predict(X[NEW])
    made = certify(predictions, sensitive_features=SEX[NEW], unfairness=0.1)
    assert made.upper_bound == pytest.approx(certified().upper_bound, rel=1e-9)
    scaled = certify(3 - 100 * predictions, sensitive_features=SEX[NEW], unfairness=0.1)
    assert scaled.upper_bound == pytest.approx(made.upper_bound, rel=1e-6)


def test_other_models():
    linear = LinearRegression().fit(X[FIT], Y[FIT])
    assert certified(linear, unfairness=0.9).estimate > certified().estimate
    classes = LogisticRegression().fit(X[FIT], Y[FIT] > 0)
    scores = certified(classes, unfairness=0.9)
    share = explained_share(classes.decision_function(X[NEW]), SEX[NEW], clip=False)
    assert scores.estimate == pytest.approx(share, abs=1e-4)


@pytest.mark.parametrize("limit_on", ["means", "decisions"])
def test_gaps(limit_on):
    model = LogisticRegression().fit(X[FIT], Y[FIT] > 0)
    made = certified(model, unfairness=1.0 if limit_on == "decisions" else 9.0, limit_on=limit_on)
    f = model.predict(X[NEW]) if limit_on == "decisions" else model.decision_function(X[NEW])
    gaps = group_gaps(f.astype(float), sensitive_features=SEX[NEW], confidence=0.9)
    name = {"means": "mean_prediction", "decisions": "selection_rate"}[limit_on]
    (frame,) = gaps.frames.values()
    # One-sided, so the two-sided interval of twice the error has the same end.
    assert made.upper_bound == pytest.approx(frame.gap(name, 0.9)[0].high)
    with refused(error=NotCertifiedError) as caught:
        certified(model, unfairness=made.upper_bound - 1e-3, limit_on=limit_on)
    assert caught.value.least_limit == pytest.approx(made.upper_bound)


def test_the_share_of_the_distribution():
    f = rng.normal(size=N) * np.where(SEX == "m", 2.0, 0.5)  # equal means, not equal spread
    assert certify(f, sensitive_features=SEX, unfairness=0.02).estimate < 0.01
    with refused(error=NotCertifiedError):
        certify(f, sensitive_features=SEX, unfairness=0.02, limit_on="output")
    own = FairKernelRidge(output_kernel="rbf", eta=1.0, n_components=20, random_state=0)
    own.fit(X[FIT], Y[FIT], sensitive_features=SEX[FIT])
    made = certify(own.predict(X[FIT]), sensitive_features=SEX[FIT], unfairness=0.9, limit_on="output")
    assert made.estimate == pytest.approx(own.output_share_, abs=0.01)


def test_numbers_and_weights():
    f = np.sin(AGE) + 2 * rng.normal(size=N)
    made = certify(f, sensitive_features=AGE, unfairness=0.3)
    assert "features" in made.functions
    assert 0.05 < made.estimate < 0.15
    w = rng.exponential(size=N)
    first, second = (certify(f, sensitive_features=SEX, unfairness=0.3, sample_weight=c * w) for c in (1, 9))
    assert first.upper_bound == pytest.approx(second.upper_bound, rel=1e-6)
    assert first.upper_bound > certify(f, sensitive_features=SEX, unfairness=0.3).upper_bound


@pytest.mark.parametrize("limit_on", ["scores", "means"])
def test_streams(tmp_path, limit_on):
    dd = pytest.importorskip("dask.dataframe")
    table = X[NEW].assign(sex=SEX[NEW])
    table.to_parquet(tmp_path / "new.parquet")
    scan, options = scalefair.scan_parquet(tmp_path / "new.parquet"), {"unfairness": 0.9}
    expected = certified(limit_on=limit_on, **options)
    frame = dd.from_pandas(table, npartitions=3)
    for part in (scan, frame):
        made = certify(MODEL, part[["a", "b"]], sensitive_features=part[["sex"]], limit_on=limit_on, **options)
        assert made.upper_bound == pytest.approx(expected.upper_bound, rel=1e-6)
        assert made.rows == 1200


def test_rows_that_the_model_was_fitted_on():
    with refused("1,200", "not seen"):
        certified(rows=FIT)


@pytest.mark.parametrize(
    "options",
    [{"confidence": c} for c in (0.0, 1.0, 1.5)] + [{"unfairness": u} for u in (0, -1.0, 2.0)] + [{"limit_on": "odd"}],
)
def test_bad_parameters(options):
    ((name, value),) = options.items()
    with refused(name, repr(value)):
        certified(**options)


def test_nothing_can_be_said():
    with refused("constant"):
        certify(np.ones(200), sensitive_features=SEX[:200], unfairness=0.1)
    with refused("40", "50"):
        certify(Y[:40], sensitive_features=SEX[:40], unfairness=0.1)
    groups = np.where(np.arange(200) == 7, "alone", SEX[:200])
    with refused("1 of 3", "two"):
        certify(Y[:200], sensitive_features=groups, unfairness=0.1)
    with refused("X=None"):
        certify(MODEL, sensitive_features=SEX, unfairness=0.1)
    with refused("ndarray", "X"):
        certify(np.ones(200), X, sensitive_features=SEX, unfairness=0.1)


@pytest.mark.parametrize("kind", [FairGPRegressor, FairGPClassifier])
def test_gaussian_processes_are_certified_on_new_rows_only(kind):
    own = np.random.default_rng(1)
    sex = own.choice(["f", "m"], 700)
    X = own.normal(size=(700, 2)) + 0.2 * np.outer(sex == "m", [1, 0])
    y = X.sum(axis=1) + own.normal(size=700)
    y = y if kind is FairGPRegressor else y > 0
    model = kind(eta=1.0, n_components=20, optimizer=None, random_state=0)
    model.set_params(**({"noise": 1.0} if kind is FairGPRegressor else {}))
    model.fit(X[:300], y[:300], sensitive_features=sex[:300])
    new = {"sensitive_features": sex[300:], "unfairness": 0.3}
    f = model.predict(X[300:]) if kind is FairGPRegressor else model.decision_function(X[300:])
    for limit_on in ("scores", "output"):
        made = certify(model, X[300:], limit_on=limit_on, **new)
        assert made.upper_bound == certify(f, limit_on=limit_on, **new).upper_bound
    with refused("300 rows", "not seen", error=ValueError):
        certify(model, X[:300], sensitive_features=sex[:300], unfairness=0.3)


def decided(seed, n=800, gap=0.0):
    """Decisions whose rates at y = 1 differ by `gap` between groups; y depends on the group."""
    own = np.random.default_rng(seed)
    s = own.random(n) < 0.4
    y = own.random(n) < np.where(s, 0.7, 0.4)
    rate = np.where(y, 0.5 + gap * s, 0.3)
    return (own.random(n) < rate).astype(int), np.where(s, "a", "b"), np.where(y, "yes", "no")


def test_odds_are_rates_of_decisions_at_each_target(tmp_path):
    d, s, y = decided(0, n=20_000)
    made = certify(d, sensitive_features=s, unfairness=0.9, limit_on="odds", y_true=y)
    bounds = []
    for level in ("yes", "no"):
        frame = group_gaps(d[y == level], sensitive_features=s[y == level])["s0"]
        bounds.append(frame.gap("selection_rate", 0.9)[0].high)
    assert made.upper_bound == pytest.approx(max(bounds), rel=1e-12)
    same = certify(d, sensitive_features=s, unfairness=0.9, limit_on="decisions", control_features=y)
    assert same.upper_bound == made.upper_bound
    plain = certify(d, sensitive_features=s, unfairness=0.9, limit_on="decisions")
    assert plain.estimate > 0.02 + made.estimate  # y differs between the groups
    path = tmp_path / "rows.parquet"
    pd.DataFrame({"d": d, "s": s, "y": y == "yes"}).to_parquet(path)
    rows = scan_parquet(path)
    streamed = certify(rows["d"], sensitive_features=rows["s"], unfairness=0.9, limit_on="odds", y_true=rows["y"])
    assert streamed.upper_bound == pytest.approx(made.upper_bound, rel=1e-12)


def controlled(seed, share, n=500):
    """f = c + a(s − E[s|c]) + noise: s explains this share of Var f at each level of c."""
    own = np.random.default_rng(seed)
    c = own.integers(0, 3, n)
    s = own.random(n) < np.array([0.2, 0.5, 0.8])[c]
    within = np.mean([0.16, 0.25, 0.16])  # E Var(s | c)
    rest = 2 / 3 + 1.0  # Var c and of the noise
    a = np.sqrt(share * rest / (within * (1 - share)))
    f = c + a * (s - np.array([0.2, 0.5, 0.8])[c]) + own.normal(size=n)
    return f, np.where(s, "a", "b"), np.array(["x", "y", "z"])[c]


def test_a_control_leaves_what_it_does_not_explain():
    f, s, c = controlled(0, 0.1, n=40_000)
    made = certify(f, sensitive_features=s, control_features=c, unfairness=0.2)
    assert made.estimate == pytest.approx(0.1, abs=0.01)
    assert "control" in made.functions
    assert certify(f, sensitive_features=s, unfairness=0.9).estimate > 0.2
    # by definition: E(E[f|s,c] − E[f|c])² / Var f, but for chance
    table = pd.DataFrame({"f": f, "s": s, "c": c})
    both, one = (table.groupby(by)["f"].transform("mean") for by in (["s", "c"], ["c"]))
    assert made.estimate == pytest.approx(((both - one) ** 2).mean() / f.var(), abs=3 / len(f))
    for numbers in (s == "a", pd.DataFrame({"s": s, "age": np.arange(40_000.0)})):
        wide = certify(f, sensitive_features=numbers, control_features=c, unfairness=0.3)
        assert wide.estimate == pytest.approx(0.1, abs=0.02)


def certified_rate(attempts):
    passed = 0
    for attempt in attempts:
        try:
            attempt()
            passed += 1
        except NotCertifiedError:
            pass
    return passed / 200


@pytest.mark.slow
@pytest.mark.parametrize("limit", [0.02, 0.1])
def test_too_large_conditional_shares_and_odds_are_seldom_certified(limit):
    """The true value is just above the limit: at most δ of the draws may pass, by three errors."""
    most = 0.1 + 3 * np.sqrt(0.09 / 200)

    def share(seed):
        f, s, c = controlled(seed, 1.02 * limit)
        return lambda: certify(f, sensitive_features=s, control_features=c, unfairness=limit, confidence=0.9)

    def odds(seed):
        d, s, y = decided(seed, gap=limit + 0.002)
        return lambda: certify(d, sensitive_features=s, y_true=y, limit_on="odds", unfairness=limit, confidence=0.9)

    assert certified_rate(map(share, range(200))) <= most
    assert certified_rate(map(odds, range(200))) <= most


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"limit_on": "odds"}, ["y_true"]),
        ({"y_true": np.ones(200)}, ["y_true", "scores"]),
        ({"limit_on": "means", "control_features": np.arange(200.0)}, ["c0", "levels"]),
    ],
)
def test_targets_and_controls_that_do_not_fit_are_refused(options, words):
    d, s, _ = decided(0, n=200)
    with refused(*words):
        certify(d, sensitive_features=s, unfairness=0.3, **options)
