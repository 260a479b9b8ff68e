"""People in groups, and slow obvious references for what is judged of them."""

import numpy as np
import pandas as pd


def people(n=600, seed=0):
    """A frame of n rows: sex, race, age, a score, labels, targets and weights."""
    rng = np.random.default_rng(seed)
    sex, race = rng.choice(["f", "m"], n), rng.choice(["a", "b", "c"], n, p=[0.5, 0.3, 0.2])
    score = rng.normal(size=n) + 0.8 * (sex == "m") - 0.5 * (race == "c")
    truth = (score + rng.normal(size=n) > 0.3).astype(int)
    return pd.DataFrame(
        {
            "sex": sex,
            "race": race,
            "age": rng.normal(40, 12, n),
            "score": score,
            "label": (score > 0.3).astype(int),
            "truth": truth,
            "target": score + rng.normal(size=n),
            "weight": rng.integers(0, 4, n),
        }
    )


def repeated(frame):
    """Every row as often as its weight says."""
    return frame.loc[frame.index.repeat(frame["weight"])].reset_index(drop=True)


def reference(rows, prediction, truth, threshold, quantiles):
    """All metrics of one group, by the definitions, without weights."""
    p, y = rows[prediction].to_numpy(float), rows[truth].to_numpy(float)
    d, e = p >= threshold, p - y
    found = {
        "count": len(p),
        "mean_prediction": p.mean(),
        "selection_rate": d.mean(),
        "accuracy": (d == (y == 1)).mean(),
        "true_positive_rate": d[y == 1].mean(),
        "false_positive_rate": d[y == 0].mean(),
        "false_negative_rate": 1 - d[y == 1].mean(),
        "bias": e.mean(),
        "mean_absolute_error": np.abs(e).mean(),
        "root_mean_squared_error": np.sqrt((e**2).mean()),
    }
    ordered = np.sort(p)
    for q in quantiles:
        found[f"quantile_{q:g}"] = ordered[int(np.ceil(round(q * len(p), 9))) - 1]
    return found
