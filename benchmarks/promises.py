"""Does the limit hold on new rows: repeated draws, every kind of estimator, four limits.

    python -m benchmarks.promises [--data income adult acs crime] [--rows 500 2000 10000]
                                  [--draws 100] [--minutes 60] [--methods "s apart" ...]

Every draw is fitted, and judged on rows that no fit has seen, by a measure that is written here.
Draws that are in results/promises_draws.csv are not made again, so that a run goes on where the
last one stopped; results/promises.csv sums them up. `acs` and `crime` need SCALEFAIR_DATA.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from time import monotonic
from typing import Any

import numpy as np
import pandas as pd
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.preprocessing import StandardScaler

from benchmarks._frontier_data import load
from benchmarks._measure import RESULTS, add_lines, save_table, stamps
from scalefair import FairKernelClassifier, FairKernelClassifierCV, FairKernelRidge
from scalefair import FairKernelRidgeCV as RidgeCV
from scalefair.datasets import make_biased_income
from scalefair.maps import Nystroem

HERE = Path(__file__).parent
DRAWS, SUMMARY = "promises_draws.csv", "promises.csv"
LIMITS = (0.0, 0.01, 0.02, 0.05, 0.1)
NEW_ROWS = 40_000
ETAS = np.concatenate([[0.0], np.geomspace(1e-3, 1e5, 120), [np.inf]])
"""So many that one path serves all limits."""

SMALL = {"n_components": 100, "n_sensitive_components": 50}


@dataclass(frozen=True)
class Draw:
    """Rows to fit and new rows; `s` names the columns of X that are sensitive."""

    X: pd.DataFrame
    y: Any
    new: pd.DataFrame
    y_new: Any
    s: list[str]

    def apart(self) -> tuple[Any, dict[str, Any], Any]:
        """Return inputs without s, s, and new inputs without s."""
        return (self.X.drop(columns=self.s), {"sensitive_features": self.X[self.s]}, self.new.drop(columns=self.s))


@cache
def population(name: str) -> tuple[pd.DataFrame, Any, list[str]]:
    """Return all rows, the target in units of its deviation, and the sensitive columns."""
    split = load({"adult": "E", "acs": "I", "crime": "B"}[name])
    X = pd.concat([split.X, split.X_test], ignore_index=True)
    y = np.concatenate([split.y, split.y_test]).astype(float)
    if name == "acs":
        X["RAC1P"] = X["RAC1P"].astype(str).where(lambda race: race.isin(["1", "2", "6"]), "other")
    if name == "adult":
        X["race"] = X["race"].astype(str).where(lambda race: race.isin(["White", "Black"]), "other")
    for column in X.select_dtypes(exclude="number"):
        X[column] = X[column].astype(str).astype("category")
    return X, (y - y.mean()) / y.std(), split.sensitive


def draw(name: str, rows: int, seed: int) -> Draw:
    """Return rows that the seed chooses, and new ones of the same population."""
    if name == "income":
        made = [make_biased_income(n, random_state=seed + at) for n, at in ((rows, 0), (NEW_ROWS, 10**6))]
        frames = [part.data.join(part.sensitive_features[["sex", "ethnicity"]], rsuffix="_s") for part in made]
        s = ["sex", "ethnicity"]
        frames = [frame.loc[:, ~frame.columns.str.endswith("_s")] for frame in frames]
        for frame in frames:
            for column in frame.select_dtypes(exclude="number"):
                frame[column] = frame[column].astype("category")
        return Draw(frames[0], made[0].target, frames[1], made[1].target, s)
    X, y, s = population(name)
    order = np.random.default_rng(seed).permutation(len(X))
    fit, new = order[:rows], order[rows : rows + NEW_ROWS]
    for column in X[s].select_dtypes(exclude="number"):  # a level that no row to fit has cannot be asked about
        new = new[X[column].iloc[new].isin(X[column].iloc[fit].unique())]
    take = [X.iloc[at].reset_index(drop=True) for at in (fit, new)]
    return Draw(take[0], y[fit], take[1], y[new], s)


def features_of(s: pd.DataFrame) -> tuple[Any, tuple[float, ...]]:
    """Return centred features of s, and the ridges of functions of them."""
    if s.dtypes.map(lambda kind: kind.kind == "f").all():
        z = StandardScaler().fit_transform(s)
        Psi, ridges = Nystroem(n_components=50, random_state=0).fit_transform(z), (1e-4, 1e-2)
    else:
        Psi = pd.get_dummies(s.astype(str).agg("|".join, axis=1)).to_numpy(float)
        ridges = (1e-12,)
    return Psi - Psi.mean(axis=0), ridges


def share_of(f: Any, Psi: Any, ridges: tuple[float, ...]) -> tuple[float, float]:
    """Return the share of new rows, corrected for chance, and its standard error.

    θ = Cov(f, g)/Var f; row i moves it by (2gf − g² − θf²)/(n Var f). For numbers the largest over
    the ridges of g.
    """
    f, n = (f - f.mean()) / f.std(), len(f)
    found = []
    for ridge in ridges:
        A = Psi.T @ Psi / n + ridge * np.eye(Psi.shape[1])
        g = Psi @ np.linalg.solve(A, Psi.T @ f / n)
        degrees = np.linalg.solve(A, Psi.T @ Psi / n)
        raw, chance = np.mean(f * g), np.trace(degrees) / (n - 1)
        influence = 2 * g * f - g**2 - raw * f**2
        error = np.sqrt(influence.var() / n + 2 * np.trace(degrees @ degrees) / n**2)
        found.append(((raw - chance) / (1 - chance), error))
    return max(found)


def limits_of_path(path: Any) -> Iterator[tuple[float, Any]]:
    for limit in LIMITS:
        yield limit, path.at(unfairness=limit)


def ridge(sample: Draw, seed: int, *, visible: bool = False, trees: bool = False) -> Any:
    """One cross-validated fit; all limits from its path."""
    base = HistGradientBoostingRegressor(categorical_features="from_dtype", random_state=0)
    options = {"etas": ETAS, "base_estimator": base if trees else None, "random_state": seed}
    X, given, new = sample.apart()
    if visible:
        X, given, new = sample.X, {}, sample.new
        options["sensitive_columns"] = sample.s
    model = RidgeCV(**options, **SMALL).fit(X, sample.y, **given)
    plain = model.path_.at(alpha=model.alpha_, eta=0.0)
    return new, plain, limits_of_path(model.path_)


def ridge_in_sample(sample: Draw, seed: int) -> Any:
    X, given, new = sample.apart()
    model = FairKernelRidge(eta=0.0, random_state=seed, **SMALL).fit(X, sample.y, **given)
    return new, model, limits_of_path(model.path())


def classes(sample: Draw, seed: int, kind: Any = FairKernelClassifierCV) -> Any:
    """One fit for each limit."""
    X, given, new = sample.apart()
    options = {"random_state": seed, **SMALL}
    ordinary = {"eta": 0.0} if kind is FairKernelClassifier else {"etas": [0.0]}
    high = sample.y > np.median(sample.y)
    plain = kind(**ordinary, **options).fit(X, high, **given)
    fits = ((u, kind(unfairness=u, **options).fit(X, high, **given)) for u in LIMITS)
    return new, plain, fits


METHODS: dict[str, Callable[..., Any]] = {
    "s apart": ridge,
    "s visible": lambda *given: ridge(*given, visible=True),
    "trees inside": lambda *given: ridge(*given, trees=True),
    "trees inside, s visible": lambda *given: ridge(*given, visible=True, trees=True),
    "classes": classes,
    "in sample": ridge_in_sample,
    "classes, in sample": lambda *given: classes(*given, FairKernelClassifier),
}


def scored(model: Any, new: Any, sample: Draw) -> tuple[Any, float]:
    """Return f on the new rows, and its mean squared error, or that of the logistic loss."""
    if not hasattr(model, "decision_function"):
        f = model.predict(new)
        return f, float(np.mean((f - sample.y_new) ** 2))
    f = model.decision_function(new)
    y = sample.y_new > np.median(sample.y)
    return f, float(np.mean(np.logaddexp(0, f) - y * f))


def judged(name: str, rows: int, seed: int, method: str) -> Iterator[dict[str, Any]]:
    """Fit one draw, and judge it at every limit."""
    sample = draw(name, rows, seed)
    new, plain, fits = METHODS[method](sample, seed)
    f, free = scored(plain, new, sample)
    features = features_of(sample.new[sample.s])
    before, _ = share_of(f, *features)
    for limit, model in fits:
        f, error = scored(model, new, sample)
        constant = np.ptp(f) == 0
        share, deviation = (np.nan, np.nan) if constant else share_of(f, *features)
        yield {
            "data": name,
            "rows": rows,
            "method": method,
            "limit": limit,
            "seed": seed,
            "binds": int(before > limit),
            "constant": int(constant),
            "share": share,
            "share_error": deviation,
            "reported": getattr(model, "explained_share_cv_", np.nan),
            "reported_error": getattr(model, "explained_share_cv_error_", np.nan),
            "price": error / free - 1,
        }


def summed(draws: pd.DataFrame) -> pd.DataFrame:
    """Return one line for each population, size, method and limit; of limits that bind."""
    lines = []
    for key, part in draws[draws["binds"] == 1].groupby(["data", "rows", "method", "limit"]):
        fits = part[part["constant"] == 0]
        excess, z = fits["share"] - key[3], (fits["share"] - fits["reported"])
        z = z / np.hypot(fits["reported_error"], fits["share_error"])
        lines.append(
            dict(zip(("data", "rows", "method", "limit"), key, strict=True))
            | {
                "draws": len(part),
                "constants": int(part["constant"].sum()),
                "over": (excess > fits["share_error"]).mean(),
                "mean_excess": excess.mean(),
                "share_95": fits["share"].quantile(0.95),
                "mean_z": z.mean(),
                "sd_z": z.std(),
                "price": part["price"].mean(),
                "first_seed": part["seed"].min(),
            }
        )
    return pd.DataFrame(lines)


def write_summary() -> pd.DataFrame:
    """Sum up all draws so far; the stamps are those of their runs."""
    table = summed(pd.read_csv(RESULTS / DRAWS, comment="#")).round(5)
    lines = [list(table), *table.to_numpy().tolist()]
    save_table(RESULTS / SUMMARY, lines, *stamps(RESULTS / DRAWS))
    return table


def keep(lines: list[dict[str, Any]]) -> None:
    rounded = [
        {key: f"{value:.6g}" if isinstance(value, float) else value for key, value in line.items()} for line in lines
    ]
    add_lines(RESULTS / DRAWS, rounded, list(lines[0]), "as in the column")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--data", nargs="*", default=["income", "adult", "acs", "crime"])
    parser.add_argument("--rows", nargs="*", type=int, default=[500, 2000, 10_000])
    parser.add_argument("--methods", nargs="*", default=[*METHODS])
    parser.add_argument("--draws", type=int, default=100)
    parser.add_argument("--minutes", type=float, default=60.0)
    asked = parser.parse_args()
    end = monotonic() + 60 * asked.minutes
    keys = ["data", "rows", "method", "seed"]
    known = set()
    if (RESULTS / DRAWS).exists():
        known = set(pd.read_csv(RESULTS / DRAWS, comment="#")[keys].itertuples(index=False, name=None))
    warnings.simplefilter("ignore")
    for seed in range(asked.draws):
        for data, rows, method in ((d, n, m) for d in asked.data for n in asked.rows for m in asked.methods):
            # Crime has 1,994 rows, most of which must stay new.
            if (data == "crime" and rows > 500) or (data, rows, method, seed) in known:
                continue
            if monotonic() > end:
                break
            keep([*judged(data, rows, seed, method)])
    print(write_summary().to_string())


if __name__ == "__main__":
    main()
