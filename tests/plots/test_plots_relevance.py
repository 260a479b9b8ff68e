"""The display of length scales draws those of the two models, input by input."""

from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from scalefair import FairGPRegressor, explain_share, proxies
from scalefair.datasets import make_toy1
from scalefair.plots import AFTER, BEFORE, ContributionDisplay, ProxyDisplay, RelevanceDisplay, make_figure, to_svg
from tests import models
from tests.errors import refused

UNFAIR = {"race": 1.8, "income": 12.6, "age": 5.0, "rent": 40.0}
FAIR = {"race": 2.9, "income": 411.3, "age": 4.0, "rent": 41.0}


def drawn(display):
    """Length scales without and with the penalty by name, read off the axes."""
    names = [label.get_text() for label in display.ax_.get_yticklabels()]
    place = dict(zip(display.ax_.get_yticks(), names, strict=True))
    found = []
    for text in ("without", "with the penalty"):
        (line,) = (line for line in display.ax_.get_lines() if line.get_label() == text)
        found.append({place[y]: x for x, y in line.get_xydata()})
    return found


def model(scales, names=None):
    kernel = SimpleNamespace(length_scale=tuple(scales.values()))
    return SimpleNamespace(kernel_=kernel, feature_names_in_=np.array(names or list(scales)))


def test_both_length_scales_of_every_input_are_drawn():
    _, ax = make_figure(4, 3)
    display = RelevanceDisplay(UNFAIR, FAIR).plot(ax)
    assert display.ax_ is ax
    assert drawn(display) == [UNFAIR, FAIR]
    assert display.inputs_ == ["race", "age", "income", "rent"]
    assert ax.get_yticks()[0] == max(ax.get_yticks())  # the most relevant on top
    assert ax.get_xscale() == "log"
    strokes = sorted(tuple(line.get_xdata()) for line in ax.get_lines() if len(line.get_xdata()) == 2)
    assert strokes == sorted((UNFAIR[name], FAIR[name]) for name in UNFAIR)


def test_the_models_differ_in_shape_and_in_colour():
    _, ax = make_figure(4, 3)
    RelevanceDisplay(UNFAIR, FAIR).plot(ax)
    marks = {line.get_label(): line for line in ax.get_lines()}
    before, after = marks["without"], marks["with the penalty"]
    assert (before.get_color(), after.get_color()) == (BEFORE, AFTER)
    assert before.get_marker() != after.get_marker()


def test_the_most_relevant_in_either_model_come_first():
    _, ax = make_figure(4, 3)
    display = RelevanceDisplay(UNFAIR, FAIR, max_inputs=2).plot(ax)
    assert display.inputs_ == ["race", "age"]


def test_inputs_are_drawn_in_the_order_asked_for():
    _, ax = make_figure(4, 3)
    display = RelevanceDisplay(UNFAIR, FAIR, inputs=["rent", "race"]).plot(ax)
    assert display.inputs_ == ["rent", "race"]
    with refused("inputs", ["sex"], "race, income", error=ValueError):
        RelevanceDisplay(UNFAIR, FAIR, inputs=["sex"]).plot(ax)


def test_from_estimators_reads_kernel_and_names():
    _, ax = make_figure(4, 3)
    display = RelevanceDisplay.from_estimators(fair=model(FAIR), unfair=model(UNFAIR), ax=ax)
    assert drawn(display) == [UNFAIR, FAIR]


def test_from_estimators_prefers_the_table_of_the_model():
    def with_table(scales):
        table = pd.DataFrame({"input": list(scales), "length_scale": list(scales.values())})
        return SimpleNamespace(relevance=lambda: table)

    _, ax = make_figure(4, 3)
    display = RelevanceDisplay.from_estimators(
        fair=with_table(FAIR), unfair=with_table(UNFAIR), inputs=["income"], ax=ax
    )
    assert drawn(display) == [{"income": 12.6}, {"income": 411.3}]


def test_two_fitted_processes_are_drawn():
    toy = make_toy1(80, random_state=0)
    X = pd.DataFrame(toy.data, columns=toy.feature_names)
    start = {"feature_map": "exact", "length_scale": [1.0, 2.0, 3.0], "optimizer": None}
    unfair, fair = (
        FairGPRegressor(eta=eta, **start).fit(X, toy.target, sensitive_features=X[["x3"]]) for eta in (0.0, 1.0)
    )
    _, ax = make_figure(4, 3)
    display = RelevanceDisplay.from_estimators(fair=fair, unfair=unfair, ax=ax)
    for found in drawn(display):
        assert found == pytest.approx({"x1": 1.0, "x2": 2.0, "x3": 3.0})


def test_without_names_inputs_are_numbered():
    one = SimpleNamespace(kernel_=SimpleNamespace(length_scale=(1.0, 2.0)))
    _, ax = make_figure(4, 3)
    display = RelevanceDisplay.from_estimators(fair=one, unfair=one, ax=ax)
    assert display.inputs_ == ["x0", "x1"]


def test_one_length_scale_for_all_is_that_of_each():
    one = SimpleNamespace(kernel_=SimpleNamespace(length_scale=3.0), feature_names_in_=np.array(["a", "b"]))
    _, ax = make_figure(4, 3)
    display = RelevanceDisplay.from_estimators(fair=one, unfair=one, ax=ax)
    assert drawn(display) == [{"a": 3.0, "b": 3.0}] * 2


def test_what_cannot_be_drawn_is_named():
    _, ax = make_figure(4, 3)
    with refused("unfair and fair", error=ValueError):
        RelevanceDisplay({"a": 1.0}, {"b": 1.0}).plot(ax)
    bad = model({"a": 1.0, "b": 2.0}, ["a", "b", "c"])
    with refused("2 length scales", "3 inputs", error=ValueError):
        RelevanceDisplay.from_estimators(fair=bad, unfair=bad, ax=ax)


@pytest.mark.parametrize("name", ["$\\frac{", "<script>alert(1)</script>", "x" * 500])
def test_a_hostile_name_is_drawn_as_it_is(name):
    figure, ax = make_figure(4, 3)
    RelevanceDisplay({name: 1.0}, {name: 2.0}).plot(ax)
    assert "<script" not in to_svg(figure)
    (shown,) = (label.get_text() for label in ax.get_yticklabels())
    assert shown == name or (shown.endswith("…") and len(shown) <= 30)


def bars(ax, number):
    """Ends of the bars of a series, from the top."""
    return [tuple(segment[:, 0]) for segment in ax.containers[number].lines[2][0].get_segments()]


def test_contributions_are_drawn_with_two_standard_errors():
    model, X, s = models.fitted("nystroem"), models.rows("nystroem"), models.groups()
    table = explain_share(model, X, sensitive_features=s)
    _, ax = make_figure(4, 3)
    display = ContributionDisplay(table, "ethnicity", max_columns=3).plot(ax)
    own = table[table["attribute"] == "ethnicity"].set_index("column")
    assert display.columns_ == list(own["before"].abs().nlargest(3).index)
    chosen = own.loc[display.columns_]
    for number, when in enumerate(("before", "after")):
        low, high = (chosen[when] - 2 * chosen[f"{when}_error"], chosen[when] + 2 * chosen[f"{when}_error"])
        np.testing.assert_allclose(bars(ax, number), np.stack([low, high], axis=1))
    assert f"{100 * own['after'].sum():.3g} %" in ax.get_xlabel()
    with refused("attribute", "height", "sex"):
        ContributionDisplay(table, "height").plot()


def test_proxies_are_drawn_with_their_intervals():
    X, s = models.rows("nystroem").drop(columns=["sex", "ethnicity"]), models.groups()
    table = proxies(X, sensitive_features=s)
    _, ax = make_figure(4, 3)
    display = ProxyDisplay.from_data(X, sensitive_features=s, attribute="ethnicity", ax=ax)
    own = table[table["attribute"] == "ethnicity"].set_index("column").loc[display.columns_]
    for number, way in enumerate(("linear", "nonlinear")):
        ends = own[[f"{way}_low", f"{way}_high"]]
        np.testing.assert_allclose(bars(ax, number), ends, atol=1e-12)
