"""
A fair Gaussian process, and how sure it is
===========================================

A Gaussian process says how sure it is of every prediction. The fair one keeps that: it is an
ordinary process under the prior that functions which depend on the sensitive attribute are
unlikely. Here the attribute is *age*, a number.
"""

# %%
# Pay with a known bias
# ---------------------
# Pay in this made-up table falls by 1 % for each year of age beyond 45, for no good reason.
# Experience and tenure are inputs, so that age can be guessed from them.

import os

import numpy as np

from scalefair import FairGPRegressor
from scalefair.datasets import make_biased_income

QUICK = os.environ.get("SCALEFAIR_QUICK") == "1"
N_TRAIN, N_FEATURES = (1_000, 60) if QUICK else (5_000, 200)
COLUMNS = ["age", "experience", "tenure", "hours", "rating"]

train = make_biased_income(N_TRAIN, random_state=0)
test = make_biased_income(4_000, random_state=1)
X, X_test, age = train.data[COLUMNS], test.data[COLUMNS], test.data["age"].to_numpy()
print(f"{N_TRAIN:,} rows to fit, {N_FEATURES} features")

# %%
# Noise, amplitude and one length scale per input are learnt by the evidence, in both processes.

settings = {
    "n_components": N_FEATURES,
    "length_scale": "standardized",
    "max_iter": 15 if QUICK else 50,
    "tol": 1e-3,
    "random_state": 0,
}
plain = FairGPRegressor(eta=0, **settings).fit(X, train.target)
fair = FairGPRegressor(unfairness=0.01, **settings)
fair.fit(X, train.target, sensitive_features=train.data["age"])

# %%
# Mean and deviation by age
# -------------------------
# The bands are one deviation of f, the mean over people of that age. The fair mean is nearly flat,
# and the band is still there.

import matplotlib.pyplot as plt

from scalefair.plots import AFTER, BEFORE

figure, ax = plt.subplots(figsize=(7, 4), layout="constrained")
ages = np.unique(age)
for model, color, name in ((plain, BEFORE, "no penalty"), (fair, AFTER, "fair")):
    f, std = model.predict(X_test, return_std=True)
    mean, band = (np.array([part[age == a].mean() for a in ages]) for part in (f, std))
    ax.plot(ages, mean, color=color, label=name)
    ax.fill_between(ages, mean - band, mean + band, color=color, alpha=0.2, linewidth=0)
ax.set(xlabel="age", ylabel="predicted log pay, mean by age")
_ = ax.legend(frameon=False)

# %%
# Is the deviation honest?
# ------------------------
# Of 90 % intervals for new observations nine in ten should hold what they are about. The fair
# process is about what pay would be if it did not depend on age, so its intervals need not cover
# biased pay as well at every age.

from scalefair.measures import explained_share

for model, name in ((plain, "no penalty"), (fair, "fair")):
    f, std = model.predict(X_test, return_std=True, include_noise=True)
    inside = np.abs(test.target - f) <= 1.645 * std
    print(
        f"{name:>10}: {inside.mean():.1%} of 90 % intervals hold their pay, age explains "
        f"{explained_share(f, age):.3f} of the variance of the mean"
    )

# %%
# What each input is worth
# ------------------------
# A long length scale means that an input hardly matters.

from scalefair.plots import RelevanceDisplay

_ = RelevanceDisplay.from_estimators(fair=fair, unfair=plain)
