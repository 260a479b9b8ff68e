"""
Auditing boosted trees, and making them fair
============================================

Suppose you get a model that was trained without sex and race, and are told that it therefore cannot
discriminate. An audit needs only its predictions.
"""

# %%
# The model: boosted trees on the Adult census data
# -------------------------------------------------

import os

from sklearn.ensemble import HistGradientBoostingClassifier

import scalefair
from scalefair.datasets import load_adult

QUICK = os.environ.get("SCALEFAIR_QUICK") == "1"
ROWS = 8_000 if QUICK else 32_561
HIDDEN = ["sex", "race"]

train, test = load_adult(subset="train"), load_adult(subset="test")
X, y = train.data[:ROWS], train.target[:ROWS]
print(f"{ROWS:,} rows to fit, {len(test.data):,} to audit")

trees = HistGradientBoostingClassifier(max_iter=60 if QUICK else 100, random_state=0)
trees.fit(X.drop(columns=HIDDEN), y)
probability = trees.predict_proba(test.data.drop(columns=HIDDEN))[:, 1]

# %%
# The audit
# ---------
# Shares of variance, and gaps between groups with intervals that hold for all pairs at once, in
# plain words.

result = scalefair.audit(
    probability,
    sensitive_features=test.data[["sex"]],
    y_true=test.target,
    threshold=0.5,
    measures=["explained_share"],
)
print(result)

# %%
# Rates of positive decisions, with 95 % intervals. Sex was not an input of the trees, and yet their
# decisions differ between the sexes.

_ = result.plot("selection_rate")

# %%
# Making it fair
# --------------
# The cross-fitted prediction of the trees becomes a feature of a fair classifier. Neither model
# uses sex or race to predict; sex is needed only for the fit.

made = scalefair.make_fair(
    HistGradientBoostingClassifier(max_iter=60 if QUICK else 100, random_state=0),
    X.drop(columns="race"),
    y,
    ["sex"],
    unfairness=0.01,
    hide_sensitive=True,
    n_components=50 if QUICK else 300,
    random_state=0,
)
print(made)

# %%
# Before and after, on the test rows
# ----------------------------------

fair = made.estimator.predict_proba(test.data.drop(columns="race"))[:, 1]
both = scalefair.audit(
    {"trees": probability, "fair": fair},
    sensitive_features=test.data[["sex"]],
    y_true=test.target,
    threshold=0.5,
    measures=["explained_share"],
)
_ = both.plot("selection_rate")
print(both.overall[["model", "accuracy", "selection_rate"]].round(3))

# %%
# The limit is on scores, and decisions follow them only roughly, so look at the rates above, too.
# :doc:`/decisions` explains how to limit the rates of decisions themselves.

# sphinx_gallery_thumbnail_number = 2
