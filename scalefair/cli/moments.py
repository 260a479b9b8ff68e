"""scalefair moments and merge: statistics of parts that never meet, and the model of all."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from scalefair.cli import _options
from scalefair.cli._data import Reading
from scalefair.cli._output import Console, check_file, noting_warnings
from scalefair.cli.fit import ModelOptions, Roles, describe, find_roles, fit_model, pop_names, words
from scalefair.cli.predict import text_columns

_FILE = click.Path(path_type=Path)


@click.command(short_help="Sum up DATA, for fits that need none of its rows.")
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
def moments(*, out: Path, reading: Reading, console: Console, **options: Any) -> None:
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
    check_file(out)
    like, start = options.pop("like"), options.pop("start")
    if (like is None) == (start is None):
        raise ValueError(
            "give --like MODEL to use the maps of a model, or --start MODEL to fit them on DATA "
            "and write them there"
        )
    make = _start if like is None else _collect
    total = make(reading, console, start or like, options)
    _save_moments(total, out, console, {"model": start or like}, "")


def _save_moments(
    total: Any, out: Path, console: Console, about: dict[str, Any], words: str
) -> None:
    total.save(out)
    record = {
        "moments": out, **about, "rows": total.n_rows, "weight": total.weight,
        "blocks": dict(total.blocks), "seconds": console.seconds,
    }  # fmt: skip
    console.result(record, f"{out}: moments of {total.n_rows:,} rows{words}")


def _start(reading: Reading, console: Console, model: Path, options: dict[str, Any]) -> Any:
    from scalefair import save

    check_file(model)
    names = pop_names(options)
    settings = ModelOptions(**options)
    settings.limits()
    with reading.open(console) as table:
        roles = find_roles(table, **names, hide=settings.hide_sensitive)
        console("fitting")
        estimator = settings.estimator(roles, classes=False, cross_validated=False)
        fitted, roles, _ = fit_model(estimator, table, roles, console)
    fitted.columns_ = roles.stored
    save(fitted, model)
    return fitted.moments_


def _collect(reading: Reading, console: Console, like: Path, options: dict[str, Any]) -> Any:
    model = _regression(like)
    with reading.open(console) as given:
        table = reading.retyped(given, text_columns(model))
        roles = _roles_of(model, table, options)
        console("summing")
        columns, own = roles.arguments(table.selection(roles.all))
        with noting_warnings(console):
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
def merge(*, parts: tuple[Path, ...], out: Path, console: Console) -> None:
    """Add up the moments of PARTS, exactly, as if all rows had been one table.

    Parts that were made with different maps or encodings are refused, and it is said what differs.

    \b
    scalefair merge site*.moments --out all.moments
    """
    from scalefair import Moments
    from scalefair.errors import located

    check_file(out)
    twice = [part for part in parts if parts.count(part) > 1]
    if twice:
        raise ValueError(f"{twice[0]}: given twice, so that its rows would count twice")
    console(f"adding {len(parts)} parts")
    total = Moments.load(parts[0])
    for part in parts[1:]:
        more = Moments.load(part)
        with located(f"{part} and {parts[0]}"):
            total = total + more
    _save_moments(total, out, console, {"parts": list(parts)}, f" from {len(parts)} parts")


def solve(path: Path, like: Path, out: Path, console: Console, options: dict[str, Any]) -> None:
    """Write the model of merged moments; what options do not say is as in the model `like`."""
    from scalefair import Moments, save

    model, given = _regression(like), Moments.load(path)
    console(f"solving from {given.n_rows:,} rows")
    with noting_warnings(console) as notes:
        solved = _at_options(model, options).solve_from(given)
    solved.columns_ = getattr(model, "columns_", {})
    save(solved, out)
    record = {
        "model": out, "data": path, "kind": "regression",
        "target": solved.columns_.get("target", "y"),
        "sensitive": solved.columns_.get("sensitive", ["the sensitive columns"]),
        **describe(solved), "notes": notes, "seconds": console.seconds,
    }  # fmt: skip
    console.result(record, words(out, record))


def _at_options(model: Any, options: dict[str, Any]) -> Any:
    """Return the model at the alpha, eta and limit of the options."""
    from scalefair import FairKernelRidgeCV

    limit, eta, alpha = (options[name] for name in ("unfairness", "eta", "alpha"))
    if limit is not None and eta is not None:
        raise ValueError("--unfairness and --eta are both given; give a limit or a weight")
    if limit is None and eta is None:
        limit = model.unfairness
        eta = None if limit is not None else model.eta_
    if isinstance(model, FairKernelRidgeCV):
        model = model.path_.at(alpha=model.alpha_, eta=model.eta_)
    return model.set_params(
        alpha=model.alpha if alpha is None else alpha, unfairness=limit, eta=eta
    )


def _regression(like: Path) -> Any:
    from scalefair import FairKernelRidge, FairKernelRidgeCV, FairRidge, load

    model = load(like)
    if not isinstance(model, FairRidge | FairKernelRidge | FairKernelRidgeCV):
        raise ValueError(
            f"{like}: moments are those of a regression; a classifier is fitted on rows: use a "
            "model of scalefair fit --kind regression"
        )
    return model
