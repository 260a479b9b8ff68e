"""Every display can be had from estimators and from predictions, as in scikit-learn."""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure

from scalefair import FairGPRegressor, FairKernelClassifier, FairKernelRidge, FairKernelRidgeCV, audit
from scalefair.measures import explained_share
from scalefair.measures.groups import group_gaps
from scalefair.plots import (
    AuditDisplay,
    ContributionDisplay,
    FairPathDisplay,
    FrontDisplay,
    GroupDistributionDisplay,
    ProxyDisplay,
    RelevanceDisplay,
    make_figure,
    path_points,
    target_variance,
)
from scalefair.plots.figures import COLORS, MARKERS
from tests.errors import refused

SMALL = {"n_components": 15, "random_state": 0}


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)
    n = 200
    s = rng.choice(["a", "b"], n)
    X = pd.DataFrame({"u": rng.normal(size=n), "v": rng.normal(size=n) + (s == "b")})
    y = X["u"] + X["v"] + 0.3 * rng.normal(size=n)
    return X, y.to_numpy(), pd.DataFrame({"s": s})


@pytest.fixture(scope="module")
def models(data):
    X, y, S = data
    found = {
        "cv": FairKernelRidgeCV(unfairness=0.05, **SMALL),
        "ridge": FairKernelRidge(eta=1.0, **SMALL),
        "gp": FairGPRegressor(eta=1.0, length_scale=[1.0, 2.0], optimizer=None, **SMALL),
        "classifier": FairKernelClassifier(eta=1.0, **SMALL),
    }
    for name, model in found.items():
        model.fit(X, y > 0 if name == "classifier" else y, sensitive_features=S)
    return found


def makers(data, models):
    X, y, S = data
    ridge, gp = models["ridge"], models["gp"]
    f = {"ridge": ridge.predict(X), "cv": models["cv"].predict(X)}
    return {
        "path": lambda ax: FairPathDisplay.from_estimator(models["cv"], ax=ax),
        "front": lambda ax: FrontDisplay.from_estimator(models["cv"], ax=ax),
        "fronts": lambda ax: FrontDisplay.from_estimators({"cv": models["cv"], "ridge": ridge.path()}, ax=ax),
        "points": lambda ax: FrontDisplay.from_predictions(y, f, S, ax=ax),
        "groups": lambda ax: GroupDistributionDisplay.from_estimator(
            ridge, X, sensitive_features=S, baseline=models["cv"], ax=ax
        ),
        "group predictions": lambda ax: GroupDistributionDisplay.from_predictions(S, None, f["cv"], ax=ax),
        "relevance": lambda ax: RelevanceDisplay.from_estimator(gp, ax=ax),
        "audit": lambda ax: AuditDisplay.from_estimator(ridge, X, sensitive_features=S, ax=ax),
        "audit predictions": lambda ax: AuditDisplay.from_predictions(f, S, ax=ax),
        "contributions": lambda ax: ContributionDisplay.from_estimator(ridge, X, sensitive_features=S, ax=ax),
        "contributions to predictions": lambda ax: ContributionDisplay.from_predictions(
            f["cv"], X, sensitive_features=S, ax=ax
        ),
        "proxies": lambda ax: ProxyDisplay.from_data(X, sensitive_features=S, ax=ax),
        "losses": lambda ax: models["classifier"].path(X, y > 0, [0.0, 1.0, 10.0], sensitive_features=S).plot(ax),
    }


NAMES = [
    "path",
    "front",
    "fronts",
    "points",
    "groups",
    "group predictions",
    "relevance",
    "audit",
    "audit predictions",
    "losses",
    "contributions",
    "contributions to predictions",
    "proxies",
]


@pytest.mark.parametrize("name", NAMES)
def test_every_display_draws_into_given_axes_or_makes_a_figure(data, models, name):
    make = makers(data, models)[name]
    figure, ax = make_figure(4, 3)
    display = make(ax)
    assert display.ax_ is ax
    assert display.figure_ is figure
    assert display.plot(ax) is display
    display = make(None)
    assert isinstance(display.ax_, Axes)
    assert isinstance(display.figure_, Figure)
    assert plt.get_fignums()
    plt.close("all")
    ax = display.ax_
    assert ax.get_xlabel()
    texts = [text.get_text() for text in ax.get_legend().get_texts()]
    assert texts
    assert all(texts)


def test_the_palette_is_told_apart_without_red_green_or_colour():
    """Simulated colour blindness (Viénot, Brettel and Mollon 1999): colours stay apart."""
    to_lms = np.array([[17.8824, 43.5161, 4.11935], [3.45565, 27.1554, 3.86714], [0.0299566, 0.184309, 1.46709]])
    blind = {
        "protan": [[0, 2.02344, -2.52581], [0, 1, 0], [0, 0, 1]],
        "deutan": [[1, 0, 0], [0.494207, 0, 1.24827], [0, 0, 1]],
    }
    colors = np.array([to_rgb(color) for color in COLORS]) ** 2.2
    for matrix in blind.values():
        seen = np.clip(np.linalg.solve(to_lms, matrix @ to_lms @ colors.T), 0, 1).T ** (1 / 2.2)
        apart = np.linalg.norm(seen[:, None] - seen, axis=2) + 9 * np.eye(len(seen))
        assert apart.min() > 0.12
        assert apart[0, 1] > 0.4  # before and after
    assert len(set(MARKERS)) == len(MARKERS) == len(COLORS)


def test_the_path_of_a_ridge_is_in_the_sample_and_marks_its_eta(models):
    display = FairPathDisplay.from_estimator(models["ridge"], ax=make_figure(4, 3)[1])
    assert "in the sample" in display.ax_.get_ylabel()
    assert display.chosen["eta"].iloc[0] == 1.0
    with refused("FairGPRegressor", error=TypeError):
        FairPathDisplay.from_estimator(models["gp"])


def test_held_out_rows_count_as_held_out():
    table = pd.DataFrame(
        {
            "eta": [0.0, 1.0],
            "mse_test": [1.0, 2.0],
            "r2_test": [0.75, 0.5],
            "mse_test_error": [0.1, 0.2],
            "explained_share_test": [0.3, 0.1],
            "explained_share_test_error": [0.01, 0.02],
        }
    )
    assert target_variance(table) == pytest.approx(4.0)
    points = path_points(table, 4.0)
    np.testing.assert_allclose(points.r2, table["r2_test"])
    np.testing.assert_allclose(points.r2_error, [0.025, 0.05])
    np.testing.assert_allclose(points.share, [0.3, 0.1])


def test_points_are_the_cross_fitted_share_and_r2(data):
    X, y, S = data
    models = {"good": y + 0.1, "useless": X["u"].to_numpy() * 0.1, "beaten": y * 0.5 + 9}
    display = FrontDisplay.from_predictions(y, models, S, ax=make_figure(4, 3)[1])
    rows = display.points.set_index("model")
    assert rows.loc["good", "r2"] == pytest.approx(1 - 0.01 / y.var())
    assert rows.loc["good", "share"] == pytest.approx(explained_share(y, S, cv=5))
    assert "beaten" not in {*display.front_["model"]}
    assert display.front_["share"].is_monotonic_increasing
    with refused("y_pred", "'short'", "3 rows", "y_true", 200, error=ValueError):
        FrontDisplay.from_predictions(y, {"short": y[:3]}, S)


def test_groups_are_crossed_and_classes_are_probabilities(data, models):
    X, _, S = data
    both = S.assign(t=np.arange(200) % 2)
    ax = make_figure(4, 3)[1]
    model = models["classifier"]
    display = GroupDistributionDisplay.from_estimator(model, X, sensitive_features=both, ax=ax)
    assert sorted(display.groups_) == ["a, t 0", "a, t 1", "b, t 0", "b, t 1"]
    np.testing.assert_allclose(display.after, model.predict_proba(X)[:, 1])
    assert display.before is None


def test_one_model_has_one_mark_an_input(models):
    display = RelevanceDisplay.from_estimator(models["gp"], ax=make_figure(4, 3)[1])
    (line,) = display.ax_.get_lines()
    np.testing.assert_allclose(line.get_xdata(), [1.0, 2.0])
    assert display.inputs_ == ["u", "v"]
    both = RelevanceDisplay.from_estimator(models["gp"], baseline=models["gp"], ax=make_figure(4, 3)[1])
    assert len(both.ax_.get_lines()) == 4


def test_an_audit_of_predictions_has_the_intervals_of_the_groups(data):
    X, y, S = data
    display = AuditDisplay.from_predictions(
        {"y": y, "u": X["u"]}, S, y, metric="mean_absolute_error", ax=make_figure(4, 3)[1]
    )
    table = group_gaps(X["u"], sensitive_features=S, y_true=y).table
    table = table[table["metric"] == "mean_absolute_error"]
    drawn = display.rows[display.rows["model"] == "u"]
    np.testing.assert_allclose(drawn["low"], table["low"])
    assert list(drawn["label"]) == ["s: a", "s: b"]
    with refused("metric='colour'", "mean_prediction", error=ValueError):
        AuditDisplay.from_predictions(y, S, metric="colour")


def test_several_classes_or_targets_are_refused(data):
    X, y, S = data
    three = FairKernelClassifier(eta=1.0, **SMALL)
    three.fit(X, np.digitize(y, [-1, 1]), sensitive_features=S)
    with refused("3 classes", error=ValueError):
        GroupDistributionDisplay.from_estimator(three, X, sensitive_features=S)
    two = FairKernelRidge(eta=1.0, **SMALL).fit(X, np.c_[y, y], sensitive_features=S)
    with refused("2 targets", error=ValueError):
        GroupDistributionDisplay.from_estimator(two, X, sensitive_features=S)


def test_paths_and_audits_show_themselves_in_a_notebook(data, models):
    X, y, S = data
    path = models["cv"].path_
    losses = models["classifier"].path(X, y > 0, [0.0, 1.0], sensitive_features=S)
    for shown in (path, losses):
        page = shown._repr_html_()
        assert 'src="data:image/svg+xml;base64,' in page
        assert 'alt="' in page
        assert "<table" in page
        assert f"{len(shown.table):,} fits, {len(shown.front()):,} on the front" in page
    assert repr(losses) == "<LossPath: 2 etas>"
    assert repr(path).startswith("<FairPath: ")
    assert "<table" in audit(y, sensitive_features=S, measures=["hsic"])._repr_html_()


def test_a_path_shows_its_table_without_matplotlib(models, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "scalefair.plots", None)
    page = models["cv"].path_._repr_html_()
    assert "<table" in page
    assert "<img" not in page


def test_a_path_without_sensitive_attributes_shows_itself(data):
    X, y, _ = data
    path = FairKernelRidge(eta=0, **SMALL).fit(X, y).path()
    assert "<table" in path._repr_html_()
