"""
Crime and the racial make-up of a community
===========================================

Sensitive attributes need not be groups. Here they are four *numbers*: the percentages of black,
white, Asian and Hispanic people in 1,994 communities of the USA. Cutting them into bins would
discard most of their information, and let a model differ freely within each bin.

The data are UCI's Communities and Crime, shipped with scalefair. The target is violent crimes per
head, scaled to [0, 1] by the donor. Recorded crime is not actual crime: it depends on policing.
"""

# %%
# A model without a penalty
# -------------------------
# Kernel ridge regression on 70 % of the communities, with its ridge chosen by cross-validation.

import numpy as np

from scalefair import FairKernelRidgeCV
from scalefair.datasets import load_communities_crime

crime = load_communities_crime()
X, y, s = crime.data, crime.target, crime.sensitive_features
order = np.random.default_rng(0).permutation(len(X))
train, test = order[:1395], order[1395:]
X_train, X_test, s_test = X.iloc[train], X.iloc[test], s.iloc[test]

settings = {"n_components": 200, "sensitive_columns": list(s), "random_state": 0}
plain = FairKernelRidgeCV(etas=[0.0], **settings).fit(X_train, y[train])

# %%
# The same with a limit
# ---------------------
# The four attributes together may explain at most 5 % of the variance of the predictions, on
# held-out rows. With 1,395 rows and four continuous attributes the best function of s is easily
# overfitted, hence ``eps=1e-2``.

fair = FairKernelRidgeCV(unfairness=0.05, eps=1e-2, **settings).fit(X_train, y[train])
held_out, error = fair.explained_share_cv_, fair.explained_share_cv_error_
print(f"held-out share in cross-validation: {held_out:.3f} ± {error:.3f}")
_ = fair.path_.plot()

# %%
# New communities
# ---------------

import pandas as pd

from scalefair.measures import explained_share, hsic_test

predictions = {"no penalty": plain.predict(X_test), "limit of 5 %": fair.predict(X_test)}
table = pd.DataFrame(
    {
        name: {
            "explained share": explained_share(f, s_test),
            "p-value of independence": hsic_test(f, s_test).pvalue,
            "RMSE / sd(y)": np.sqrt(np.mean((f - y[test]) ** 2)) / y[test].std(),
        }
        for name, f in predictions.items()
    }
)
print(table.round(3))

# %%
# The cost is high here, because race and recorded crime are closely linked in these data. A low
# p-value with a low share means that the *means* hardly depend on the attributes any more, while
# the *spread* still does.

import matplotlib.pyplot as plt

from scalefair.plots import AFTER, BEFORE

figure, axes = plt.subplots(1, 2, figsize=(9, 4), sharey=True, layout="constrained")
share = s_test["racepctblack"].to_numpy()
edges = np.quantile(share, np.linspace(0, 1, 9))
place = np.clip(np.searchsorted(edges, share, side="right") - 1, 0, 7)
for ax, (name, f), color in zip(axes, predictions.items(), (BEFORE, AFTER), strict=True):
    ax.plot(share, f, ".", color=color, alpha=0.35)
    means = [(share[place == k].mean(), f[place == k].mean()) for k in np.unique(place)]
    ax.plot(*np.transpose(means), "o-", color="black", label="means of eight parts")
    ax.set(title=name, xlabel="racepctblack (scaled)")
axes[0].set_ylabel("predicted violent crimes per head (scaled)")
_ = axes[0].legend(frameon=False)

# sphinx_gallery_thumbnail_number = 2
