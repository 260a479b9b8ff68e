"""The tables of New York's Local Law 144, by numbers that were computed by hand."""

import numpy as np
import pandas as pd
import pytest

from scalefair.report import impact_ratios


def test_impact_ratios_of_local_law_144_by_hand():
    """40 applicants: of 20 women 5 are selected, of 20 men 10; 8, 6 and 1 by race.

    Selection rates 0.25 and 0.5, so that women have the ratio 0.5. By race 8/16, 6/16 and 1/8:
    ratios 1, 0.75 and 0.25. Intersections: 2/8, 3/8 and 0/4 of the women, 6/8, 3/8 and 1/4 of the
    men: the highest is 0.75.
    """
    cells = {
        ("f", "a"): (8, 2),
        ("f", "b"): (8, 3),
        ("f", "c"): (4, 0),
        ("m", "a"): (8, 6),
        ("m", "b"): (8, 3),
        ("m", "c"): (4, 1),
    }
    rows = [(*levels, int(i < chosen)) for levels, (n, chosen) in cells.items() for i in range(n)]
    table = pd.DataFrame(rows, columns=["sex", "race", "hired"])
    S = table[["sex", "race"]]
    lines = impact_ratios(table["hired"], sensitive_features=S)
    found = {(x.attribute, x.category): x[2:] for x in lines}
    assert found == {
        ("sex", "f"): (20, 5, 0.25, 0.5),
        ("sex", "m"): (20, 10, 0.5, 1.0),
        ("race", "a"): (16, 8, 0.5, 1.0),
        ("race", "b"): (16, 6, 0.375, 0.75),
        ("race", "c"): (8, 1, 0.125, 0.25),
        ("sex × race", "f, a"): (8, 2, 0.25, pytest.approx(1 / 3)),
        ("sex × race", "f, b"): (8, 3, 0.375, 0.5),
        ("sex × race", "f, c"): (4, 0, 0.0, 0.0),
        ("sex × race", "m, a"): (8, 6, 0.75, 1.0),
        ("sex × race", "m, b"): (8, 3, 0.375, 0.5),
        ("sex × race", "m, c"): (4, 1, 0.25, pytest.approx(1 / 3)),
    }
    # Scores: those above the median of all are counted, and the median itself is not.
    score = np.array([1.0, 2, 3, 4, 5, 6, 7, 8, 9])  # the median is 5
    sex = np.array(list("ffffffmmm"))
    lines = impact_ratios(score, sensitive_features={"sex": sex})
    assert [x[1:4] for x in lines] == [("f", 6, 1), ("m", 3, 3)]
    assert [x.impact_ratio for x in lines] == pytest.approx([1 / 6, 1.0])
    # A row whose category is unknown is not counted.
    unknown = np.where(np.arange(9) == 0, None, sex)
    lines = impact_ratios(score, sensitive_features={"sex": unknown})
    assert sum(x.applicants for x in lines) == 8
