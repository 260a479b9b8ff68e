"""A pay table of any length with a known bias; each row depends only on its number."""

from __future__ import annotations

from functools import partial
from inspect import getdoc
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.special import ndtri
from sklearn.utils import Bunch

from scalefair._typing import Array
from scalefair.data.sources import made_rows
from scalefair.datasets._toys import check_seed
from scalefair.errors import check_count

Codes = NDArray[np.int8]

JOBS = (
    ("cleaner", "shop assistant", "labourer"),
    ("care worker", "clerk", "driver"),
    ("nurse", "accountant", "technician"),
    ("therapist", "manager", "engineer"),
)
"""Rows are grades, columns are fields: pay depends on the grade; sex tells the field."""
AREAS = ("north", "east", "south", "west")
LEVELS = {
    "education": ["basic", "secondary", "vocational", "bachelor", "master"],
    "occupation": [job for grade in JOBS for job in grade],
    "region": [f"{area} {place}" for area in AREAS for place in ("country", "city")],
    "sex": ["female", "male"],
    "ethnicity": ["majority", "minority A", "minority B", "minority C"],
}

SEX_ODDS = np.array([0.48, 0.52])
ETHNICITY_ODDS = np.array([0.64, 0.16, 0.12, 0.08])
EDUCATION_ODDS = np.array([0.12, 0.34, 0.20, 0.22, 0.12])
GRADE_ODDS = np.array(
    [
        [0.60, 0.30, 0.09, 0.01],
        [0.35, 0.42, 0.18, 0.05],
        [0.15, 0.45, 0.32, 0.08],
        [0.05, 0.22, 0.48, 0.25],
        [0.02, 0.08, 0.40, 0.50],
    ]
)
"""One row per education."""
FIELD_ODDS = np.array([[0.60, 0.32, 0.08], [0.08, 0.30, 0.62]])[:, None] * np.array(
    [[0.8, 1.4, 0.8], [2.0, 0.5, 1.0], [0.7, 2.0, 0.7], [1.0, 0.5, 2.0]]
)
"""One matrix per sex, one row per ethnicity, up to a factor."""
AREA_ODDS = np.array(
    [[0.45, 0.25, 0.10, 0.20], [0.05, 0.10, 0.75, 0.10], [0.10, 0.70, 0.10, 0.10], [0.10, 0.10, 0.10, 0.70]]
)
"""One row per ethnicity."""
PART_TIME = np.array([0.45, 0.08])
LEAVING_AGE = np.array([16.0, 18.0, 19.0, 22.0, 24.0])
EDUCATION_PAY = np.array([0.0, 0.04, 0.08, 0.15, 0.20])
GRADE_PAY = np.array([0.0, 0.20, 0.45, 0.80])
SEX_BIAS = np.array([-0.20, 0.0])
ETHNICITY_BIAS = np.array([0.0, -0.15, -0.08, -0.04])
NUMBERS = ["age", "experience", "tenure", "hours", "rating"]
FEATURES = [*NUMBERS, *LEVELS]
SENSITIVE = ["sex", "ethnicity", "age"]
STREAMS = (
    *("age", "sex", "ethnicity", "education", "grade", "field", "city", "area", "part_time"),
    *("hours", "share", "tenure", "rating", "noise"),
)
"""One sequence of random numbers each; the order is part of the table."""


LEAST = 2.0**-54  # Below the least positive number drawn: it keeps 0 from becoming -inf


def _uniform(key: int, start: int, stop: int, stream: str) -> Array:
    """Return the uniform numbers of the rows start to stop: Philox can start at any block of four."""
    philox = np.random.Philox(np.random.SeedSequence(key, spawn_key=(STREAMS.index(stream),)))
    philox.advance(start // 4)
    skip = start % 4
    return np.random.Generator(philox).random(stop - start + skip)[skip:]


def _pick(uniform: Array, odds: Array, group: Codes | None = None) -> Codes:
    """Return the level that each uniform number picks; odds has one row per group."""
    edges = np.cumsum(odds, axis=-1) / odds.sum(axis=-1, keepdims=True)
    code = np.zeros(len(uniform), dtype=np.int8)
    for edge in np.moveaxis(edges, -1, 0)[:-1]:
        code += uniform >= (edge if group is None else edge[group])
    return code


def _drawn_columns(start: int, stop: int, key: int) -> dict[str, Any]:
    """Return the drawn columns, categories as codes."""
    draw = partial(_uniform, key, start, stop)
    sex, ethnicity = _pick(draw("sex"), SEX_ODDS), _pick(draw("ethnicity"), ETHNICITY_ODDS)
    education = _pick(draw("education"), EDUCATION_ODDS)
    field = _pick(draw("field"), FIELD_ODDS.reshape(-1, 3), 4 * sex + ethnicity)
    age = 25 + np.floor(41 * draw("age"))
    years = age - LEAVING_AGE[education]
    part_time, hours = draw("part_time") < PART_TIME[sex], draw("hours")
    return {
        "age": age,
        "experience": years * (1 - 0.6 * draw("share") ** 2),
        # At most 0.4 years, so never above experience; free of share, so it tells age, not merit.
        "tenure": years * (0.4 - 0.3 * draw("tenure") ** 2),
        "hours": np.floor(np.where(part_time, 12 + 20 * hours, 35 + 13 * hours)),
        "rating": ndtri(np.maximum(draw("rating"), LEAST)),
        "education": education,
        "occupation": 3 * _pick(draw("grade"), GRADE_ODDS, education) + field,
        "region": 2 * _pick(draw("area"), AREA_ODDS, ethnicity) + (draw("city") < 0.6),
        "sex": sex,
        "ethnicity": ethnicity,
        "noise": 0.2 * ndtri(np.maximum(draw("noise"), LEAST)),
    }


def _rows(start: int, stop: int, key: int) -> pd.DataFrame:
    """Return the rows start to stop of the table that belongs to `key`."""
    columns = _drawn_columns(start, stop, key)
    grade, city = columns["occupation"] // 3, columns["region"] % 2
    share = columns["experience"] / (columns["age"] - LEAVING_AGE[columns["education"]])
    fair = 2.3 + EDUCATION_PAY[columns["education"]] + GRADE_PAY[grade] + 0.12 * city
    fair = fair + (0.06 + 0.04 * grade) * columns["rating"] + 0.5 * share**2
    noise = columns.pop("noise")
    bias = SEX_BIAS[columns["sex"]] + ETHNICITY_BIAS[columns["ethnicity"]]
    bias -= 0.01 * np.maximum(columns["age"] - 45, 0)
    columns |= {"log_pay": fair + bias + noise, "fair_log_pay": fair}
    for name, levels in LEVELS.items():
        columns[name] = pd.Categorical.from_codes(columns[name], dtype=pd.CategoricalDtype(levels))
    columns["age"] = columns["age"].astype(np.int64)
    return pd.DataFrame(columns, index=pd.RangeIndex(start, stop), copy=False)


def make_biased_income(n_rows: int, *, chunks: int | None = None, random_state: Any = None) -> Bunch:
    """Make a pay table of any length whose bias and whose fair target are known.

    The fair logarithm of hourly pay depends on columns, or parts of columns, that are independent
    of sex, ethnicity and age, so it is independent of them too:

        fair = 2.3 + education + grade + 0.12 city + (0.06 + 0.04 g) rating + 0.5 share²

    with education 0, .04, .08, .15, .20; the grade g = 0..3 of the occupation, worth 0, .20, .45,
    .80; share = experience / (age - leaving age), leaving age 16, 18, 19, 22, 24 by education. The
    target adds N(0, 0.2²) and the bias

        -0.20 for women, -0.15, -0.08, -0.04 for minorities A, B, C, -0.01 a year of age above 45.

    Leaving the sensitive columns out does not remove it: within a grade, occupation reveals sex and ethnicity; region
    reveals ethnicity, part-time hours reveal sex, tenure reveals age. A linear regression without them keeps 40 % of
    the gap of women and of minority A, 20 % of the gap of those above 55.

    Parameters
    ----------
    n_rows : int
        Number of rows.
    chunks : int or None, default=None
        None: pandas, in memory. A number: dask collections with partitions of that many rows,
        generated when computed. Row i is the same whatever the chunks.
    random_state : int, RandomState or None, default=None
        Seed.

    Returns
    -------
    Bunch
        ``data``, a frame (n, 10) of the numbers age, experience, tenure, hours, rating and the
        categories education, occupation (12 levels), region (8), sex, ethnicity (4); ``target``,
        a series, log_pay; ``sensitive_features``, a frame (n, 3), sex, ethnicity, age, which are
        also in ``data``; ``fair_target``, a series; ``feature_names``, ``target_names``, ``DESCR``.

    References
    ----------
    J. Salmon, M. Moraes, R. Dror and D. Shaw (2011). Parallel random numbers: as easy as 1, 2, 3.
    SC'11. (Philox, the generator whose i-th number needs no other.)

    Examples
    --------
    >>> from scalefair.datasets import make_biased_income
    >>> pay = make_biased_income(1000, random_state=0)
    >>> pay.data.shape, list(pay.sensitive_features)
    ((1000, 10), ['sex', 'ethnicity', 'age'])
    >>> lazy = make_biased_income(1000, chunks=300, random_state=0)
    >>> lazy.data.npartitions
    4
    >>> bool((lazy.target.compute() == pay.target).all())
    True
    """
    n_rows = check_count("n_rows", n_rows)
    key = int(check_seed(random_state).randint(2**31, dtype=np.int64))
    if chunks is None:
        table = _rows(0, n_rows, key)
    else:
        table = made_rows(partial(_rows, key=key), n_rows, check_count("chunks", chunks))
    return Bunch(
        data=table[FEATURES],
        target=table["log_pay"],
        sensitive_features=table[SENSITIVE],
        fair_target=table["fair_log_pay"],
        feature_names=list(FEATURES),
        target_names=["log_pay"],
        DESCR=getdoc(make_biased_income),
    )
