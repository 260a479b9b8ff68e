"""
Pay gap: income in two surveys
==============================

A model of pay learns the gaps in its training data. This page asks three questions. How much of the
variance of its predictions do gender, race and age explain? Does it help to leave these columns
out? How much accuracy does it cost to limit their share?

The table is the American Community Survey of 2018: log income of workers in the USA. It is not
shipped with scalefair: the environment variable ``SCALEFAIR_DATA`` names a folder with
``acs_income_2018_regression/``. Without it, the **Adult** census table is used instead, which is
shipped: income above 50,000 dollars, as 0 or 1. The first line of output names the table.
"""

# %%
# The table
# ---------
# Occupations beyond the forty most frequent are pooled, and so are races below 5 % of the rows.

import os
from pathlib import Path

import numpy as np
import pandas as pd

from scalefair.datasets import load_adult

QUICK = os.environ.get("SCALEFAIR_QUICK") == "1"
ROWS = 6_000 if QUICK else 100_000
FILE = "acs_income_2018_regression/acs-income-2018-holdout.parquet"
PEOPLE = ["Age", "Gender", "Race", "Marital Status", "Education"]
INPUTS = [*PEOPLE, "Workclass", "Occupation", "State"]


def pooled(column, kept):
    return column.astype(str).where(column.isin(kept), "other").astype("category")


def read_acs(path):
    table = pd.read_parquet(path, columns=[*INPUTS, "Income"]).sample(ROWS, random_state=0)
    table = table.reset_index(drop=True)
    shares = table["Race"].value_counts(normalize=True)
    table["Race"] = pooled(table["Race"], shares.index[shares >= 0.05])
    table["Occupation"] = pooled(table["Occupation"], table["Occupation"].value_counts().index[:40])
    return table[INPUTS], np.log(table["Income"]), ["Gender", "Race", "Age"]


def read_table():
    path = Path(os.environ.get("SCALEFAIR_DATA", "no folder")) / FILE
    if path.exists():
        print(f"Real data: {ROWS:,} workers of the American Community Survey 2018")
        return read_acs(path)
    adult = load_adult()
    rows = np.random.default_rng(0).permutation(len(adult.data))[:ROWS]
    print(f"SCALEFAIR_DATA has no {path.name}: {len(rows):,} people of the Adult census table")
    table = adult.data.iloc[rows].reset_index(drop=True)
    table["race"] = pooled(table["race"], ["White", "Black"])
    return table, adult.target[rows], ["sex", "race", "age"]


X, y, sensitive = read_table()
train, test = np.arange(len(X)) % 2 == 0, np.arange(len(X)) % 2 == 1
s_test = X.loc[test, sensitive]

# %%
# Leaving the columns out
# -----------------------
# This is the usual first idea. But the other columns reveal something about gender, race and age,
# and so a part of the gap remains.

from scalefair import FairKernelRidgeCV
from scalefair.measures import explained_share

settings = {"n_components": 100 if QUICK else 500, "random_state": 0}
blind = FairKernelRidgeCV(etas=[0.0], **settings)
blind.fit(X[train].drop(columns=sensitive), y[train])
without = blind.predict(X[test].drop(columns=sensitive))
in_pay = explained_share(y[test], s_test)
print(f"{', '.join(sensitive)} explain {in_pay:.1%} of the variance of pay itself,")
print(f"and {explained_share(without, s_test):.1%} of the predictions of a model without them.")

# %%
# The whole trade-off, from one fit
# ---------------------------------
# Each grey point is a model, evaluated on rows that it was not fitted on. The line joins the models
# for which no other is both more accurate and fairer. The diamond is the best one within the limit.
# Here the limit is a tenth of the share that the columns explain of pay itself.

from scalefair.plots import FairPathDisplay, GroupDistributionDisplay

fair = FairKernelRidgeCV(unfairness=round(in_pay / 10, 3), sensitive_columns=sensitive, **settings)
fair.fit(X[train], y[train])
_ = FairPathDisplay.from_estimator(fair)

# %%
# On the other half of the rows
# -----------------------------
# Share and accuracy of three models on rows that none of them was fitted on. With the columns left
# out the share depends on what the other columns happen to reveal. With a limit it is as requested,
# up to sampling error.

before = fair.path_.at(alpha=fair.alpha_, eta=0.0).predict(X[test])
after = fair.predict(X[test])
models = {
    "all columns, no limit": before,
    "columns left out": without,
    f"limit of {fair.unfairness:.1%}": after,
}
rows = {
    name: {
        "explained share": explained_share(f, s_test),
        "R²": 1 - np.mean((y[test] - f) ** 2) / np.var(y[test]),
    }
    for name, f in models.items()
}
print(pd.DataFrame(rows).T.round(3))

# %%
# Predictions by group, without a limit and with it: the short thick strokes are the means. The
# limit is on the means. The spread may still differ between groups; :doc:`/guide/promises` explains
# what that means for decisions.

_ = GroupDistributionDisplay.from_predictions(s_test[sensitive[0]], before, after)

# sphinx_gallery_thumbnail_number = 2
