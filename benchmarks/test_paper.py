"""A smoke run of what tests/ does not run of the paper's experiments."""

from __future__ import annotations

import pandas as pd

from benchmarks.paper import sizes


def test_toy1_at_another_size() -> None:
    found = sizes.table(pd.DataFrame(sizes.trial(0, 60, 0.5, 0.3)))
    assert list(found["rows"]) == ["60", "printed"] * 2
    assert found[["obs", "true", "corr"]].notna().all(axis=None)
