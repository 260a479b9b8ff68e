"""Parts collected apart, saved, merged and solved equal one pass over all rows."""

from __future__ import annotations

import numpy as np
import pytest

from scalefair import FairKernelRidge, FairKernelRidgeCV, FairRidge, Moments
from scalefair.datasets import make_biased_income
from tests.errors import refused


def part(pay, rows):
    own = {"sensitive_features": pay.sensitive_features.iloc[rows]}
    return (pay.data.iloc[rows], np.asarray(pay.target)[rows]), own


@pytest.fixture(scope="module")
def pay():
    return make_biased_income(900, random_state=0)


def model(**parameters):
    return FairKernelRidge(n_components=40, unfairness=0.1, random_state=0, **parameters)


def test_parts_equal_one_pass(pay, tmp_path):
    data, own = part(pay, slice(None))
    whole = model().fit(*data, **own)
    for i, rows in enumerate([slice(0, 100), slice(100, 101), slice(101, 900)]):
        data_part, own_part = part(pay, rows)
        whole.collect(*data_part, **own_part).save(tmp_path / f"{i}.moments")
    parts = [Moments.load(tmp_path / f"{i}.moments") for i in (2, 0, 1)]
    before = whole.predict(pay.data)
    merged = whole.solve_from(sum(parts[1:], parts[0]))
    assert merged.n_samples_seen_ == 900
    np.testing.assert_allclose(merged.predict(pay.data), before, rtol=1e-10)


def test_collecting_leaves_the_model_alone(pay):
    data, own = part(pay, slice(0, 500))
    fitted = model().fit(*data, **own)
    before = fitted.coef_.copy()
    rest, own_rest = part(pay, slice(500, 900))
    fitted.collect(*rest, **own_rest)
    np.testing.assert_array_equal(fitted.coef_, before)
    assert fitted.n_samples_seen_ == 500


@pytest.mark.parametrize(
    ("other", "name"),
    [({"length_scale": 3.0}, "phi"), ({"sensitive_length_scale": 0.3}, "psi"), ({"feature_map": "fourier"}, "phi")],
)
def test_other_settings_refuse_to_merge_and_are_named(pay, other, name):
    data, own = part(pay, slice(None))
    one = model().fit(*data, **own)
    two = model(**other).fit(*data, **own)
    if one.moments_.blocks == two.moments_.blocks:
        with refused(name):
            one.moments_ + two.moments_
    with refused():
        one.solve_from(two.moments_)
    assert one.moments_.n_rows == 900


def test_another_encoding_refuses_to_merge(pay):
    data, own = part(pay, slice(None))
    one = FairRidge(eta=1.0, random_state=0).fit(*data, **own)
    scaled = data[0].assign(age=2.0 * data[0]["age"])
    two = FairRidge(eta=1.0, random_state=0).fit(scaled, data[1], **own)
    with refused("encoding"):
        one.moments_ + two.moments_


def test_equal_fits_have_equal_keys(pay):
    data, own = part(pay, slice(None))
    keys = {model().fit(*data, **own).moments_.key for _ in range(2)}
    assert len(keys) == 1
    assert FairKernelRidgeCV(n_components=40, random_state=0).fit(*data, **own).moments_.key in keys


def test_the_exact_mode_has_no_moments(pay):
    data, own = part(pay, slice(0, 60))
    exact = FairKernelRidge(feature_map="exact", eta=1.0).fit(*data, **own)
    with refused("collect"):
        exact.collect(*data, **own)


CHOSEN = ("alpha_", "eta_", "eps_", "ridge_ratio_")


@pytest.mark.parametrize("options", [{"unfairness": 0.1}, {}, {"etas": [0.0]}])
def test_after_cross_validation_moments_are_solved_at_what_was_chosen(pay, options):
    columns = ["sex", "ethnicity"]
    (X, y), s = part(pay, slice(0, 600))[0], pay.sensitive_features[columns]
    fitted = FairKernelRidgeCV(n_components=40, random_state=0, **options)
    fitted.fit(X, y, sensitive_features=s[:600])
    before = fitted.predict(pay.data), {name: getattr(fitted, name) for name in CHOSEN}
    fitted.solve_from(fitted.moments_)  # the same rows: the same model
    np.testing.assert_array_equal(fitted.predict(pay.data), before[0])

    rest, _ = part(pay, slice(600, 900))
    fitted.solve_from(fitted.moments_ + fitted.collect(*rest, sensitive_features=s[600:]))
    assert {name: getattr(fitted, name) for name in CHOSEN} == before[1]
    assert fitted.n_samples_seen_ == 900
    f, groups = fitted.predict(pay.data), s.apply(tuple, axis=1)
    between = np.var([f[groups == group].mean() for group in groups])
    assert fitted.explained_share_ == pytest.approx(between / f.var(), abs=1e-4)


def test_held_out_scores_do_not_outlive_their_rows(pay):
    data, own = part(pay, slice(None))
    fitted = FairKernelRidgeCV(n_components=40, random_state=0).fit(*data, **own)
    half = fitted.collect(*(values[:450] for values in data), **part(pay, slice(0, 450))[1])
    assert "mse_cv" in fitted.path_.table
    fitted.solve_from(half)
    assert not {"explained_share_cv_", "explained_share_cv_error_", "cv_results_"} & {*vars(fitted)}
    assert not [name for name in fitted.path_.table if "_cv" in name]
    at = fitted.path_.at(alpha=fitted.alpha_, eta=fitted.eta_)
    np.testing.assert_allclose(at.predict(pay.data), fitted.predict(pay.data), rtol=1e-7)
