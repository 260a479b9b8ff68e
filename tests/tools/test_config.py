"""Settings of the engine: checked when they are set, and gone when the block ends."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from scalefair import FairKernelRidge, config_context, get_config, set_config
from tests.models import fit_within

DEFAULTS = {"dtype": "float64", "chunk_rows": None, "solver": "auto", "checkpoint": None}


@pytest.mark.parametrize(
    ("settings", "error"),
    [
        ({"dtype": "float16"}, ValueError),
        ({"chunk_rows": 0}, ValueError),
        ({"chunk_rows": 2.5}, TypeError),
        ({"solver": "magic"}, ValueError),
        ({"checkpoint": 3}, TypeError),
        ({"chunks": 3}, TypeError),
    ],
)
def test_bad_settings_are_named_and_change_nothing(settings, error):
    (name,) = settings
    with pytest.raises(error, match=name), config_context(**settings):
        pass
    with pytest.raises(error, match=name):
        set_config(**settings)
    assert get_config() == DEFAULTS


def test_blocks_nest_and_end_in_any_way():
    with config_context(chunk_rows=7):
        with pytest.raises(ZeroDivisionError) as ended, config_context(dtype="float32"):
            raise ZeroDivisionError(get_config())
        assert ended.value.args == (DEFAULTS | {"chunk_rows": 7, "dtype": "float32"},)
        assert get_config() == DEFAULTS | {"chunk_rows": 7}
    assert get_config() == DEFAULTS


def test_a_block_is_of_its_thread_and_set_config_of_all():
    with ThreadPoolExecutor(1) as pool:
        with config_context(chunk_rows=7):
            assert pool.submit(get_config).result() == DEFAULTS
        set_config(chunk_rows=9)
        try:
            assert pool.submit(get_config).result() == DEFAULTS | {"chunk_rows": 9}
        finally:
            set_config(chunk_rows=None)


def test_predictions_are_as_the_model_was_fitted():
    x = np.random.default_rng(0).normal(size=(60, 2))
    model = FairKernelRidge(n_components=10, eta=1.0, random_state=0)
    fit_within({"dtype": "float32"}, model, x, x[:, 0], sensitive_features=x[:, 1])
    expected = model.predict(x)
    with config_context(dtype="float64", chunk_rows=7, solver="iterative"):
        np.testing.assert_array_equal(model.predict(x), expected)
