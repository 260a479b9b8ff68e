"""Tables of the page: models side by side, groups, relevance of inputs, provenance, the record."""

from __future__ import annotations

import platform
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

import numpy as np
import sklearn

from scalefair import __version__
from scalefair._files import plain
from scalefair._typing import DataFrame
from scalefair.auditing.result import listed
from scalefair.data import frames
from scalefair.estimators import FairGPClassifier, FairGPRegressor
from scalefair.kernels import Product, Sum
from scalefair.report.frontier import Frontier
from scalefair.report.numbers import fixed, number, pvalue, table_percent
from scalefair.report.position import DEPENDENCE, SHARE, Entry, Position
from scalefair.report.words import headline

FITTED = {
    "alpha_": "alpha",
    "eta_": "eta",
    "noise_": "noise",
    "amplitude_": "amplitude",
    "log_marginal_likelihood_value_": "log evidence",
}
"""What estimators find, and what the page calls it."""

_PERCENT = re.compile(r"(rate|accuracy|share|rising|falling|contribution)(_difference)?$")


def write_number(measure: str, x: float) -> str:
    """Write a number of some measure."""
    if measure.endswith("pvalue"):
        return number(x) if np.isnan(x) else pvalue(x, "")
    if measure.endswith("_ratio"):
        return fixed(x, 2)
    if measure in ("r2", "auc", *DEPENDENCE):
        return fixed(x, 3)
    if measure in ("changed_decisions", "count"):
        return fixed(x, 0)
    if measure.endswith("rate_difference"):
        return fixed(100 * x, 1) if np.isnan(x) else f"{fixed(100 * x, 1)} points"
    return table_percent(x) if _PERCENT.search(measure) else number(x)


def write_interval(entry: Entry) -> str:
    """Write the ends of the interval of a number, as 1–2 or, where one is negative, −1 to 2."""
    low, high = (write_number(entry.measure, x) for x in (entry.low, entry.high))
    low = low.removesuffix(" %").removesuffix(" points")
    return f"{low}{' to ' if '−' in low + high else '–'}{high}"


def comparison(
    models: Sequence[Position], titles: Mapping[str, str], *, brief: bool = False
) -> list[tuple[str, str, list[Entry]]]:
    """Return title, attribute and numbers of all models; if `brief`, gaps of all attributes together only."""
    attributes = next((one.attributes[::-1] for one in models if one.attributes), [])
    rows = []
    for measure, title in titles.items():
        few = brief and not measure.endswith(SHARE)
        for attribute in ("", *(attributes[:1] if few else attributes)):
            entries = [one.get(measure, attribute) for one in models]
            if not all(np.isnan(entry.value) for entry in entries):
                rows.append((title, attribute, entries))
    return rows


def compare_relevance(baseline: Any, estimator: Any) -> DataFrame | None:
    """Return length scales and relevance (sd/θ)² by input, the largest first; None if not all inputs have one."""
    if not all(_has_scales_of_inputs(model) for model in (estimator, baseline)):
        return None
    fair, plain_one = estimator.relevance(), baseline.relevance()
    if len(fair) > 1 and fair["length_scale"].nunique() == 1:
        return None
    fair, plain_one = fair.set_index("input"), plain_one.set_index("input")
    order = fair["relevance"].sort_values(ascending=False, kind="stable").index
    columns: dict[str, Any] = {"input": [str(name) for name in order]}
    for name, table in (("before", plain_one), ("after", fair)):
        columns[name] = table.loc[order, "length_scale"].to_numpy()
        columns[f"{name}_relevance"] = table.loc[order, "relevance"].to_numpy()
    return frames.make_frame(columns)


def _has_scales_of_inputs(model: Any) -> bool:
    """Return True if a model is a Gaussian process whose length scales belong to its inputs."""
    if not isinstance(model, FairGPRegressor | FairGPClassifier) or model.kernel_ is None:
        return False
    kernel = model.kernel_.kernel
    return kernel.theta.size > 0 and not isinstance(kernel, Sum | Product)


def software() -> dict[str, str]:
    """Return when, and with what, a page is made."""
    versions = f"scikit-learn {sklearn.__version__}, numpy {np.__version__}"
    return {
        "Date": datetime.now(UTC).isoformat(timespec="seconds"),
        "Software": f"scalefair {__version__}, {versions}, Python {platform.python_version()}",
    }


def settings(frontier: Frontier, given: dict[str, str]) -> dict[str, str]:
    """Return where the page comes from: what was given, read, left out, fitted, and with what."""
    problem, estimator = frontier.problem, frontier.estimator
    sees = "may use them as inputs" if problem.sees_sensitive else "does not see them"
    inputs, levels = problem.inputs, ""
    if problem.levels is not None:
        levels = f": “{problem.levels[0]}” read as 0, “{problem.levels[1]}” as 1"
    values = [(label, vars(estimator).get(name)) for name, label in FITTED.items()]
    fitted = ", ".join(f"{label} {number(float(x))}" for label, x in values if x is not None)
    n, m, judged = problem.train.n_rows, problem.test.n_rows, len(frontier.judge.y)
    made = {
        **given,
        **software(),
        "Data": problem.source,
        "Hash of the data": problem.fingerprint,
        "Rows": f"{n + m:,} read, {n:,} to fit, {m:,} held out: {problem.held_out}; {m - judged:,} of these left out",
        "Target": problem.target + levels,
        "Sensitive": f"{listed(problem.sensitive)}; the model {sees} when it predicts",
        "Inputs": f"{len(inputs)}: {', '.join(inputs)}" if inputs else "",
        "Seed": number(estimator.random_state) if isinstance(estimator.random_state, int) else "",
        "Chosen": fitted,
        "Time": f"{number(frontier.seconds)} s to fit",
        "Notes": "; ".join(frontier.notes),
    }
    return {name: text for name, text in made.items() if text}


def as_record(frontier: Frontier) -> dict[str, Any]:
    """Return the result as plain numbers, lists and text, ready for JSON; NaN becomes None."""
    problem, estimator, choice = frontier.problem, frontier.estimator, frontier.choice
    certificate, after = vars(estimator).get("certificate_"), frontier.after
    record = {
        "finding": headline(frontier),
        "data": problem.source,
        "target": problem.target,
        "target_levels": problem.levels,
        "sensitive": list(problem.sensitive),
        "rows": {"train": problem.train.n_rows, "test": problem.test.n_rows},
        "limit": frontier.limit,
        "estimator": type(estimator).__name__,
        "chosen": None if choice is None else choice.name,
        "errors": None if choice is None else choice.errors,
        "alpha": after.alpha,
        "eta": after.eta,
        "cost": _ends(after.get("cost_of_r2")),
        "before": _score_record(frontier.before, frontier.limited),
        "after": _score_record(after, frontier.limited),
        "certificate": None if certificate is None else asdict(certificate),
        "notes": list(frontier.notes),
        "seconds": frontier.seconds,
    }
    return dict(plain(record))


def _score_record(position: Position, limited: str) -> dict[str, Any]:
    names = ("r2", "root_mean_squared_error", "accuracy", "auc")
    share = _ends(position.get(limited, position.together))
    return {name: position.get(name).value for name in names} | {"share": share}


def _ends(entry: Entry) -> dict[str, float]:
    return {"value": entry.value, "low": entry.low, "high": entry.high}


def twin(frontier: Frontier, provenance: dict[str, str]) -> dict[str, Any]:
    """Return every number of the page, ready for JSON."""
    models = (*frontier.positions, *frontier.others)
    proxies = [] if frontier.proxies is None else frontier.proxies.to_dict("records")
    record = as_record(frontier) | {"provenance": provenance, "proxies": proxies}
    return dict(plain(record | model_lists(models)))


def model_lists(models: Sequence[Position]) -> dict[str, Any]:
    """Return the numbers of models as lists of records."""

    def records(lines_of: Callable[[Position], Iterable[tuple[dict[str, str], Any]]]) -> list[Any]:
        return [{"model": p.name, **own, **x._asdict()} for p in models for own, x in lines_of(p)]

    return {
        "positions": [record for p in models for record in p.records()],
        "calibration": records(lambda p: (({}, x) for x in p.calibration)),
        "distributions": records(lambda p: (({}, x) for x in p.distributions)),
        "impact_ratios": records(lambda p: (({"of": of}, x) for of, lines in p.impacts.items() for x in lines)),
    }
