"""Displays draw the numbers of their tables, and nothing else."""

import re
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from matplotlib.figure import Figure

from scalefair.plots import (
    FairPathDisplay,
    GroupDistributionDisplay,
    density,
    make_figure,
    path_points,
    row_at,
    target_variance,
    to_svg,
)

VARIANCE = 4.0


@pytest.fixture
def table():
    etas = np.array([0.0, 0.1, 1.0, 10.0, np.inf])
    mse = np.array([1.0, 1.1, 1.4, 2.0, 2.1])
    return pd.DataFrame(
        {
            "alpha": 1e-3,
            "eta": etas,
            "mse": mse,
            "r2": 1 - mse / VARIANCE,
            "explained_share": [0.3, 0.25, 0.1, 0.01, 0.0],
            "hsic": [3.0, 2.0, 1.0, 0.1, 0.0],
            "mse_cv": mse + 0.2,
            "mse_cv_error": 0.05,
            "explained_share_cv": [0.31, 0.26, 0.11, 0.012, 0.001],
            "explained_share_cv_error": 0.02,
        }
    )


@pytest.fixture
def front(table):
    return table.iloc[::-1].reset_index(drop=True)


def lines(ax, label):
    return next(line for line in ax.get_lines() if line.get_label() == label)


def test_points_are_held_out_where_they_can_be(table):
    assert target_variance(table) == pytest.approx(VARIANCE)
    points = path_points(table, VARIANCE)
    np.testing.assert_allclose(points.r2, 1 - table["mse_cv"] / VARIANCE)
    np.testing.assert_allclose(points.r2_error, 0.05 / VARIANCE)
    inside = table.drop(columns=[name for name in table if "_cv" in name])
    points = path_points(inside, VARIANCE)
    np.testing.assert_allclose(points.r2, table["r2"])
    np.testing.assert_allclose(points.share, table["explained_share"])
    assert not points.r2_error.any()


def test_the_variance_survives_a_perfect_fit(table):
    table.loc[0, ["mse", "r2"]] = 0.0, 1.0
    assert target_variance(table) == pytest.approx(VARIANCE)


def test_row_at_finds_every_row_also_at_infinity(table):
    for i, row in table.iterrows():
        pd.testing.assert_frame_equal(row_at(table, row["alpha"], row["eta"]), table.iloc[[i]])
    assert row_at(table, 1e-3, 0.5) is None
    assert row_at(table, 1e-9, 0.0) is None


def test_path_display_draws_table_front_limit_and_choice(table, front):
    figure, ax = make_figure(4, 3)
    display = FairPathDisplay(table, front, row_at(table, 1e-3, 1.0), 0.15).plot(ax)
    assert display.ax_ is ax
    assert display.figure_ is figure
    everything = lines(ax, "every fit tried")
    np.testing.assert_allclose(everything.get_xdata(), table["explained_share_cv"])
    chosen = lines(ax, "chosen model")
    np.testing.assert_allclose(chosen.get_xydata(), [[0.11, 1 - 1.6 / VARIANCE]])
    np.testing.assert_allclose(lines(ax, "limit 15 %").get_xdata(), 0.15)
    (bars,) = ax.containers
    np.testing.assert_allclose(bars.lines[0].get_xdata(), front["explained_share_cv"])


def test_error_bars_are_the_folds_and_never_below_a_share_of_zero(table, front):
    _, ax = make_figure(4, 3)
    FairPathDisplay(table, front).plot(ax)
    across, up = ax.containers[0].lines[2]
    across, up = np.array(across.get_segments()), np.array(up.get_segments())
    share = front["explained_share_cv"].to_numpy()
    np.testing.assert_allclose(across[:, 0, 0], np.maximum(share - 0.02, 0.0), atol=1e-15)
    np.testing.assert_allclose(across[:, 1, 0], share + 0.02)
    np.testing.assert_allclose(np.diff(up[:, :, 1]).ravel(), 2 * 0.05 / VARIANCE)


def test_error_bars_do_not_run_together(table, front):
    _, ax = make_figure(4, 3)
    near = front.assign(explained_share_cv=front["explained_share_cv"] + 1e-3)
    FairPathDisplay(table, pd.concat([front, near])).plot(ax)
    up = ax.containers[0].lines[2][1].get_segments()
    drawn = [ends[0, 0] for ends in up if len(ends) == 2]
    np.testing.assert_allclose(drawn, front["explained_share_cv"])


def test_without_folds_there_are_no_error_bars(table, front):
    drop = [name for name in table if "_cv" in name]
    _, ax = make_figure(4, 3)
    FairPathDisplay(table.drop(columns=drop), front.drop(columns=drop)).plot(ax)
    assert not ax.containers[0].lines[2]
    assert "in the sample" in ax.get_xlabel()


def test_a_front_of_one_point_is_drawn(table):
    _, ax = make_figure(4, 3)
    FairPathDisplay(table, table.iloc[[4]]).plot(ax)
    low, high = ax.get_xlim()
    assert low < 0.001 < high


def test_from_estimator_marks_its_choice_and_limit(table, front):
    path = SimpleNamespace(table=table, front=lambda: front)
    estimator = SimpleNamespace(path_=path, alpha_=1e-3, eta_=10.0, unfairness=0.05)
    _, ax = make_figure(4, 3)
    display = FairPathDisplay.from_estimator(estimator, ax=ax)
    assert display.limit == 0.05
    assert lines(ax, "chosen model").get_xdata() == pytest.approx([0.012])


def test_without_axes_pyplot_gives_a_figure(table, front):
    import matplotlib.pyplot as plt

    display = FairPathDisplay(table, front).plot()
    assert plt.fignum_exists(display.figure_.number)
    plt.close(display.figure_)


def test_the_report_figures_are_unknown_to_pyplot(table, front):
    import matplotlib.pyplot as plt

    before = plt.get_fignums()
    figure, ax = make_figure(4, 3)
    FairPathDisplay(table, front).plot(ax)
    to_svg(figure)
    assert isinstance(figure, Figure)
    assert plt.get_fignums() == before


def test_the_largest_groups_are_drawn_with_their_means():
    rng = np.random.default_rng(0)
    groups = ["small"] * 5 + ["large"] * 50 + ["middle"] * 20
    before, after = rng.normal(size=75), rng.normal(size=75)
    _, ax = make_figure(4, 3)
    display = GroupDistributionDisplay(groups, before, after, max_groups=2).plot(ax)
    assert display.groups_ == ["large", "middle"]
    assert sorted(text.get_text() for text in ax.texts) == ["large", "middle"]
    strokes = [line.get_xdata()[0] for line in ax.get_lines() if line.get_linewidth() == 3]
    parts = np.s_[5:55], np.s_[55:]
    means = [values[part].mean() for values in (before, after) for part in parts]
    assert sorted(strokes) == pytest.approx(sorted(means))


def test_density_is_the_slow_kernel_density():
    values = np.random.default_rng(1).gamma(2.0, size=3000)
    grid = np.linspace(-2, 20, 400)
    spread = min(values.std(), np.subtract(*np.quantile(values, [0.75, 0.25])) / 1.34)
    width = 0.9 * spread * 3000**-0.2
    naive = np.exp(-0.5 * ((grid[:, None] - values) / width) ** 2).mean(axis=1)
    naive /= width * np.sqrt(2 * np.pi)
    np.testing.assert_allclose(density(values, grid), naive, atol=0.01 * naive.max())
    assert density(values, grid).sum() * (grid[1] - grid[0]) == pytest.approx(1.0)


@pytest.mark.parametrize("value", [0.0, -3.0, 1e9])
def test_constant_predictions_have_a_density(value):
    constant = np.full(9, value)
    figure, ax = make_figure(4, 3)
    GroupDistributionDisplay(["a"] * 9, constant, constant).plot(ax)
    assert "nan" not in to_svg(figure).lower()


def test_svg_keeps_text_as_text_and_bytes_for_bytes(table, front):
    def draw():
        figure, ax = make_figure(4, 3)
        FairPathDisplay(table, front).plot(ax)
        return to_svg(figure)

    svg = draw()
    assert svg == draw()
    assert svg.startswith("<svg")
    assert re.search(r"<text[^>]*>R² \(held-out\)</text>", svg)
    assert "<metadata" not in svg


@pytest.mark.parametrize("name", ["$\\frac{", "<script>alert(1)</script>", "名前 😀", "x" * 500])
def test_a_hostile_group_name_is_drawn_as_it_is(name):
    figure, ax = make_figure(4, 3)
    GroupDistributionDisplay([name] * 9, np.arange(9.0), np.arange(9.0)).plot(ax)
    svg = to_svg(figure)
    assert "<script" not in svg
    shown = ax.texts[0].get_text()
    assert shown == name or (shown.endswith("…") and len(shown) <= 60)
