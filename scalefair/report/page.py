"""The page: one self-contained HTML file, offline, and the files beside it."""

from __future__ import annotations

import json
import os
import re
from base64 import b64encode
from collections.abc import Iterator, Mapping, Sequence
from hashlib import sha256
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape
from sklearn.base import clone

from scalefair import __version__
from scalefair._files import plain, write_atomically
from scalefair._typing import DataFrame
from scalefair.auditing import Audit
from scalefair.auditing.result import listed
from scalefair.data import frames
from scalefair.errors import InputError, UnsavableError
from scalefair.persistence import save
from scalefair.report import tables
from scalefair.report.frontier import Frontier, check_fair, fit_frontier, position_table, with_model
from scalefair.report.numbers import as_percent, fixed, number, pvalue, table_percent
from scalefair.report.position import Position, audit_entries
from scalefair.report.problem import from_rows
from scalefair.report.rates import Distribution, calibration_grid
from scalefair.report.words import findings, load_code, position_words, refit_code

if TYPE_CHECKING:
    from matplotlib.figure import Figure

if find_spec("matplotlib") is None:  # checked before the fit; loaded after it, once its memory is free
    raise ModuleNotFoundError("the figures of a report need matplotlib", name="matplotlib")

MODEL = "model.scalefair"
WIDTH = 4.5  # Inches: narrow, so that the text of a figure can still be read on a phone
MAX_INPUTS = 20

_TAG = re.compile(r"<[^>]*>")


def make_report(
    estimator: Any,
    X: Any,
    y: Any,
    *,
    sensitive_features: Any = None,
    out: str | os.PathLike[str] = "scalefair-report",
    target: str = "y",
    source: str = "a table in memory",
    random_state: int = 0,
    others: Mapping[str, Any] | None = None,
    owner: str = "",
    intended_use: str = "",
) -> Frontier:
    """Fit an estimator on four fifths of the rows, judge it on the others, and write the report.

    Parameters
    ----------
    estimator : estimator of scalefair
        Regressor, classifier of two classes or Gaussian process; a copy of it is fitted.
    X : array or frame of shape (n, d)
        Inputs.
    y : array or Series of shape (n,)
        Numbers, booleans, or text of two levels.
    sensitive_features : array, Series or frame of shape (n,) or (n, p)
        Sensitive attributes; not needed where the estimator has `sensitive_columns`.
    out : path, default="scalefair-report"
        Folder for report.html, the same numbers as report.csv and report.json, frontier.csv with
        every fit that was tried, and model.scalefair.
    target, source : str
        Names of the target and of the data, for people.
    random_state : int, default=0
        Decides which rows are held out.
    others : dict of str to array of shape (n,), default=None
        Predictions of other models for all rows, for comparison.
    owner, intended_use : str
        Person or team responsible for the model, and its intended use; for the page.

    Returns
    -------
    Frontier
        Everything that the page says, as numbers.

    Examples
    --------
    >>> import tempfile
    >>> from scalefair import FairRidge
    >>> from scalefair.datasets import make_toy1
    >>> from scalefair.report import make_report
    >>> toy = make_toy1(400, random_state=0)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     result = make_report(
    ...         FairRidge(unfairness=0.05), toy.data, toy.target,
    ...         sensitive_features=toy.sensitive_features, out=folder,
    ...     )
    >>> round(result.estimator.explained_share_, 6) <= 0.05
    True
    """
    check_fair(estimator)
    S = _sensitive(estimator, X, sensitive_features)
    code = "# X, y, S: inputs, target and sensitive attributes"
    problem = from_rows(X, y, S, target=target, source=source, seed=random_state, code=code)
    result = fit_frontier(problem, clone(estimator))
    for name, f in (others or {}).items():
        result = with_model(result, name, np.asarray(f, dtype=np.float64)[problem.tested])
    write_report(result, out, {"Owner": owner, "Intended use": intended_use})
    return result


def _sensitive(estimator: Any, X: Any, given: Any) -> Any:
    """Return the sensitive attributes as a frame; columns without names are s0, s1, ..."""
    columns = estimator.sensitive_columns
    if (given is None) == (columns is None):
        both = "both given" if given is not None else "both missing"
        raise InputError(
            f"sensitive_features and sensitive_columns are {both}",
            "give the attributes here, or the estimator names of columns of X",
            where="sensitive_features",
        )
    table = given if columns is None else frames.take_columns(X, columns)
    if frames.column_names(table) is not None:
        return table
    values = np.asarray(table).reshape(frames.n_rows(table), -1)
    return frames.make_frame({f"s{j}": values[:, j] for j in range(values.shape[1])})


def write_report(
    frontier: Frontier, folder: str | os.PathLike[str], provenance: Mapping[str, str] | None = None
) -> Path:
    """Write report.html and what it links to into a folder; return the page's path.

    The folder is made if need be. A model that holds something of the user's own cannot be saved,
    and is then left out. `provenance` are names and texts for the page, such as "Owner".
    """
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    model: str | None = MODEL
    try:
        save(frontier.estimator, folder / MODEL)
    except UnsavableError:
        model = None
    origin = tables.settings(frontier, dict(provenance or {}))
    page = render(frontier, model, origin)
    models = (*frontier.positions, *frontier.others)
    _write_twins(folder / "report.html", models, tables.twin(frontier, origin))
    write_atomically(folder / "frontier.csv", frontier.table.to_csv(index=False).encode())
    write_atomically(folder / "report.html", page.encode())
    return folder / "report.html"


def _write_twins(page: Path, models: Sequence[Position], record: dict[str, Any]) -> None:
    """Write the csv and the JSON beside a page."""
    rows = [row for model in models for row in model.records()]
    table = frames.make_frame({name: [row[name] for row in rows] for name in rows[0]})
    write_atomically(page.with_suffix(".csv"), table.to_csv(index=False).encode())
    text = json.dumps(record, ensure_ascii=False, allow_nan=False)
    write_atomically(page.with_suffix(".json"), text.encode())


def render(frontier: Frontier, model: str | None = None, provenance: Mapping[str, str] | None = None) -> str:
    """Return the report as the text of an HTML page; `model` is the file beside it, if any."""
    problem = frontier.problem
    relevance, told = tables.compare_relevance(frontier.baseline, frontier.estimator), frontier.proxies
    told = None if told is None else told.sort_values("nonlinear", ascending=False, kind="stable")
    models = list(dict.fromkeys([frontier.before, frontier.after, *frontier.others]))
    return _page(
        models,
        title=f"How much accuracy does fairness cost for “{problem.target}”?",
        source=problem.source,
        sensitive=problem.sensitive,
        findings=[_unbroken(sentence) for sentence in findings(frontier)],
        frontier=frontier,
        path_plot=path_plot(frontier),
        proxies=[] if told is None else told.head(MAX_INPUTS).to_dict("records"),
        relevance=[] if relevance is None else relevance.head(MAX_INPUTS).to_dict("records"),
        n_inputs=0 if relevance is None else len(relevance),
        relevance_plot="" if relevance is None else relevance_plot(relevance),
        certificate=vars(frontier.estimator).get("certificate_"),
        n_rows=len(frontier.judge.y),
        provenance=tables.settings(frontier, {}) if provenance is None else provenance,
        model_file=model,
        load_code=load_code(frontier, model or MODEL),
        code=refit_code(frontier),
        files={"csv": "report.csv", "json": "report.json"},
    )


def write_audit(
    result: Audit,
    page: str | os.PathLike[str],
    *,
    sensitive: Sequence[str],
    provenance: Mapping[str, str],
    tables_of: Mapping[str, Mapping[str, Any]],
) -> Path:
    """Write the page of an audit, a csv and a JSON file; `tables_of` are tables of :class:`Position`, by model."""
    page = Path(page)
    models = [Position(name, tuple(audit_entries(result, name)), **tables_of.get(name, {})) for name in result.models]
    origin = dict(provenance) | tables.software()
    origin |= {"Rows": f"{result.n_rows:,} judged, {result.n_missing:,} left out"}
    origin |= {"Notes": "; ".join(result.notes)} if result.notes else {}
    text = _page(
        models, title="How far do predictions depend on sensitive attributes?",
        source=origin.get("Data", ""), sensitive=sensitive, frontier=None,
        findings=[*_audit_findings(result)],
        certificate=None, n_rows=result.n_rows, relevance=[], proxies=[], provenance=origin,
        files={"csv": page.with_suffix(".csv").name, "json": page.with_suffix(".json").name},
    )  # fmt: skip
    record = result.to_dict() | {"provenance": origin} | tables.model_lists(models)
    _write_twins(page, models, dict(plain(record)))
    write_atomically(page, text.encode())
    return page


def _audit_findings(result: Audit) -> Iterator[str]:
    """Yield the sentences of an audit, each with the name of its model where there are several."""
    model = ""
    for line in result.summary.splitlines():
        if line.endswith(":"):  # the sentences of one model follow
            model = f"{line} "
        elif not line.startswith("Note: "):
            yield _unbroken(model + line.removeprefix("- "))


def _page(models: Sequence[Position], **context: Any) -> str:
    """Return a page about some models side by side."""
    script = files("scalefair.report").joinpath("page.js").read_text(encoding="utf-8")
    positions = context["frontier"].positions if context["frontier"] else ()
    return _environment().get_template("page.html").render(
        models=models, shown=positions or models, comparison=tables.comparison,
        position_words=position_words, calibration_grid=calibration_grid, bars=bars,
        version=__version__,
        script=Markup(script),  # noqa: S704  # nosec B704
        script_hash="sha256-" + b64encode(sha256(script.encode()).digest()).decode(), **context,
    )  # fmt: skip


def bars(distribution: Distribution, top: float) -> str:
    """Return the path of a distribution in a box of 96 × 24, in which a share `top` is highest."""
    # Roots, so that one large share does not hide the others.
    heights = 24 - 23 * np.sqrt(np.array(distribution.shares) / top)
    steps = 96 / len(heights) * np.arange(1, len(heights) + 1)
    path = "".join(f"V{y:.3g}H{x:.3g}" for x, y in zip(steps, heights, strict=True))
    return f"M0 24{path}V24"


def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("scalefair", "report"), autoescape=True, undefined=StrictUndefined,
        trim_blocks=True, lstrip_blocks=True,
    )  # fmt: skip
    environment.filters |= {
        "percent": lambda x: _unbroken(table_percent(x)),
        "fixed": fixed,
        "number": number,
        "pvalue": pvalue,
        "unbroken": _unbroken,
        "written": lambda measure, x: _unbroken(tables.write_number(measure, x)),
        "listed": listed,
        "interval": lambda entry: _unbroken(tables.write_interval(entry)),
    }
    return environment


def _unbroken(text: str) -> str:
    return text.replace(" %", "\u00a0%")


def path_plot(frontier: Frontier) -> Markup:
    """Draw the frontier, with the chosen model, the limit, and a mark for each position."""
    from scalefair import plots

    table = position_table(frontier.positions)
    front = plots.path.unbeaten(table, table["explained_share_test"], table["mse_test"])
    if front.empty:
        return Markup("")
    figure, ax = plots.make_figure(WIDTH, 3.4)
    chosen = plots.row_at(table, np.nan, frontier.after.eta or 0.0)
    plots.FairPathDisplay(table, front, chosen, frontier.limit).plot(ax)
    legend = ax.get_legend()
    if legend is not None:
        legend.get_texts()[0].set_text("every model")
    share, r2 = table["explained_share_test"], table["r2_test"]
    for i, point in enumerate(zip(share, r2, strict=True)):
        look: dict[str, Any] = {"markersize": 15, "markerfacecolor": "none", "markeredgewidth": 2}
        ax.plot(*point, "o", color=plots.INK, gid=f"mark-{i}", **look)
    return inline_svg(
        figure,
        "path",
        f"R squared against the explained share of {len(table)} models: from "
        f"{fixed(r2.iloc[0], 3)} at {as_percent(share.iloc[0])} to {fixed(r2.iloc[-1], 3)} at "
        f"{as_percent(share.iloc[-1])}. The table below has the numbers.",
    )


def relevance_plot(table: DataFrame) -> Markup:
    """Draw the length scales of a Gaussian process, without and with the penalty."""
    from scalefair import plots

    rows = table.head(MAX_INPUTS)
    before, after = (dict(zip(rows["input"], rows[name], strict=True)) for name in ("before", "after"))
    figure, ax = plots.make_figure(WIDTH, 1.2 + 0.27 * len(rows))
    display = plots.RelevanceDisplay(before, after, list(rows["input"])).plot(ax)
    return inline_svg(
        figure,
        "relevance",
        f"Length scales of {listed(display.inputs_)}, without and with the penalty. The table below has the numbers.",
    )


def inline_svg(figure: Figure, name: str, label: str) -> Markup:
    """Return a figure as part of the page; only tags change: its text may be a level of somebody's data."""
    from scalefair import plots

    variables = {plots.INK: "ink", plots.FAINT: "faint", plots.BEFORE: "before", plots.AFTER: "after"}

    def adapt(match: re.Match[str]) -> str:
        tag = match.group()
        for colour, variable in variables.items():
            tag = tag.replace(colour, f"var(--{variable})")
        return re.sub(r'(\bid="|href="#|url\(#)', rf"\g<1>{name}-", tag)

    svg = _TAG.sub(adapt, plots.to_svg(figure))
    head = re.sub(r' (?:width|height)="[^"]*"', "", svg[: svg.index(">")])
    label = f' role="img" aria-label="{escape(label)}"'
    return Markup(head + label + svg[svg.index(">") :])  # noqa: S704  # nosec B704
