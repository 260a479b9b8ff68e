"""scalefair moments and merge: statistics of parts that never meet, and the model of all."""

from __future__ import annotations

from functools import reduce
from operator import add
from pathlib import Path
from typing import Any

import click

from scalefair.cli import _options
from scalefair.cli._data import cluster, open_data, retyped
from scalefair.cli._output import Console, check_file, noted
from scalefair.cli.fit import Roles, Settings, describe, find_roles, fit_model, words
from scalefair.cli.predict import text_columns

_FILE = click.Path(path_type=Path)


@click.command(short_help="Sum up DATA, for fits that need none of its rows.")
@_options.data
@click.option("--like", type=_FILE, help="Model whose maps, encodings and column names are used.")
@click.option("--start", type=_FILE, help="Fit maps on DATA, and write that model for the others.")
@_options.target
@_options.sensitive
@_options.modelling
@_options.weight
@_options.drop
@_options.out_file("The moments.", default="part.moments", show_default=True)
@_options.reading
@_options.printing
def moments(data: str | None, *, as_json: bool, quiet: bool, out: Path, **options: Any) -> None:
    """Sum up DATA: the statistics from which every fit follows, without its rows.

    Sites or days that may not share rows share these sums. The first one fixes the maps
    (--start), all others use them (--like); merge adds the parts up, and fit --from-moments solves.

    \b
    scalefair moments a.parquet --target pay --sensitive sex --map fourier \\
        --start pay.scalefair --out a.moments
    scalefair moments b.parquet --like pay.scalefair --out b.moments
    scalefair merge a.moments b.moments --out all.moments
    scalefair fit --from-moments all.moments --like pay.scalefair --out all.scalefair

    The moments are means and covariances. A model with the nystroem map holds some rows of DATA as
    landmarks; with --map fourier or linear it does not.
    """
    console = Console(as_json=as_json, quiet=quiet)
    console("loading")
    check_file(out)
    like, start = options.pop("like"), options.pop("start")
    if (like is None) == (start is None):
        raise ValueError(
            "give --like MODEL to use the maps of a model, or --start MODEL to fit them on DATA "
            "and write them there"
        )
    with cluster(options.pop("scheduler")) as client:
        make = _start if like is None else _collect
        found = make(data, client, console, start or like, **options)
    found.save(out)
    record = {
        "moments": out, "model": start or like, "rows": found.n_rows, "weight": found.weight,
        "blocks": dict(found.blocks), "seconds": console.seconds,
    }  # fmt: skip
    console.result(record, f"{out}: moments of {found.n_rows:,} rows")


def _start(data: str | None, client: Any, console: Console, model: Path, **options: Any) -> Any:
    from scalefair import save

    check_file(model)
    names = {name: options.pop(name) for name in ("target", "sensitive", "drop", "weight")}
    reading = {name: options.pop(name) for name in ("text", "delimiter")}
    settings = Settings(**options)
    settings.limits()
    console(f"reading {data or 'the Adult census data'}")
    table = open_data(data, client=client, **reading)
    roles = find_roles(table, **names, hide=settings.hide_sensitive)
    console("fitting")
    estimator = settings.estimator(roles, classes=False, cross_validated=False)
    fitted, _, _ = fit_model(estimator, table, roles, console)
    save(fitted, model)
    return fitted.moments_


def _collect(data: str | None, client: Any, console: Console, like: Path, **options: Any) -> Any:
    model = _regression(like)
    console(f"reading {data or 'the Adult census data'}")
    reading = {name: options[name] for name in ("text", "delimiter")}
    table = open_data(data, client=client, **reading)
    table = retyped(table, [*text_columns(model), *options["text"]], options["delimiter"])
    roles = _roles_of(model, table, options)
    console("summing")
    columns, own = roles.arguments(table.selection(roles.all))
    with noted(console):
        return model.collect(*columns, **own)


def _roles_of(model: Any, table: Any, options: dict[str, Any]) -> Roles:
    """Columns as in the fit of the model, unless options name others."""
    stored = getattr(model, "columns_", {})
    target = options["target"] or stored.get("target")
    sensitive = options["sensitive"] or stored.get("sensitive") or ()
    inputs = [str(name) for name in model.feature_names_in_]
    if target is None or not sensitive:
        raise ValueError("the model does not name its columns: add --target and --sensitive")
    weight = options["weight"] or stored.get("weight")
    (target,) = table.find("--target", [target])
    (weight,) = [None] if weight is None else table.find("--weight", [weight])
    table.find("inputs of the model", inputs)
    return Roles(target, table.find("--sensitive", sensitive), inputs, weight)


@click.command(short_help="Add up moments, as if all rows had been one table.")
@click.argument("parts", nargs=-1, required=True, type=_FILE)
@_options.out_file("The sum.", default="all.moments", show_default=True)
@_options.printing
def merge(parts: tuple[Path, ...], *, out: Path, as_json: bool, quiet: bool) -> None:
    """Add up the moments of PARTS, exactly, as if all rows had been one table.

    Parts that were made with different maps or encodings are refused, and it is said what differs.

    \b
    scalefair merge site*.moments --out all.moments
    """
    console = Console(as_json=as_json, quiet=quiet)
    console("loading")
    from scalefair import Moments

    check_file(out)
    twice = [part for part in parts if parts.count(part) > 1]
    if twice:
        raise ValueError(f"{twice[0]}: given twice, so that its rows would count twice")
    console(f"adding {len(parts)} parts")
    total = Moments.load(parts[0])
    for part in parts[1:]:
        try:
            total = reduce(add, [total, Moments.load(part)])
        except ValueError as error:
            raise ValueError(f"{part} and {parts[0]}: {error}") from error
    total.save(out)
    record = {
        "moments": out, "parts": list(parts), "rows": total.n_rows, "weight": total.weight,
        "blocks": dict(total.blocks), "seconds": console.seconds,
    }  # fmt: skip
    console.result(record, f"{out}: moments of {total.n_rows:,} rows from {len(parts)} parts")


def solve(path: Path, like: Path, out: Path, console: Console, options: dict[str, Any]) -> None:
    """Write the model of merged moments; what options do not say is as in the model `like`."""
    from scalefair import Moments, save

    model, given = _regression(like), Moments.load(path)
    console(f"solving from {given.n_rows:,} rows")
    with noted(console) as notes:
        solved = _at(model, options).solve_from(given)
    solved.columns_ = getattr(model, "columns_", {})
    save(solved, out)
    record = {
        "model": out, "data": path, "kind": "regression",
        "target": solved.columns_.get("target", "y"),
        "sensitive": solved.columns_.get("sensitive", ["the sensitive columns"]),
        **describe(solved), "notes": notes, "seconds": console.seconds,
    }  # fmt: skip
    console.result(record, words(out, record))


def _at(model: Any, options: dict[str, Any]) -> Any:
    """Return the model at the alpha, eta and limit of the options."""
    limit, eta, alpha = (options[name] for name in ("unfairness", "eta", "alpha"))
    if limit is not None and eta is not None:
        raise ValueError("--unfairness and --eta are both given; give a limit or a weight")
    if limit is None and eta is None:
        limit = model.unfairness
        eta = None if limit is not None else model.eta_
    if hasattr(model, "path_"):
        model = model.path_.at(alpha=model.alpha_, eta=model.eta_)
    return model.set_params(
        alpha=model.alpha if alpha is None else alpha, unfairness=limit, eta=eta
    )


def _regression(like: Path) -> Any:
    from scalefair import load

    model = load(like)
    if not hasattr(model, "solve_from") or hasattr(model, "classes_"):
        raise ValueError(
            f"{like}: moments are those of a regression; a classifier is fitted on rows: use a "
            "model of scalefair fit --kind regression"
        )
    return model
