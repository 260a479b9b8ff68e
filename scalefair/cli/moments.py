"""scalefair moments and merge: statistics of parts of a table, and the model of all rows."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from scalefair._typing import WithPath
from scalefair.cli import _data
from scalefair.cli._console import Console, OutPath, noting_warnings
from scalefair.cli._data import Data, Reading
from scalefair.cli._model import MODEL_OPTIONS, ModelOptions, limit_options, shape_options
from scalefair.cli.fit import Roles, find_roles, fit_model, words, write_model
from scalefair.cli.predict import text_columns


@click.command(short_help="Sum up DATA, for fits that need none of its rows.")
@_data.model_file_option("--like", help="Model whose maps, encodings and column names are used.")
@click.option("--start", type=OutPath(), help="Fit maps on DATA, and write that model for the others.")
@click.option("--cross", is_flag=True, help="With another party, of which one has the target and one --sensitive.")
@_data.model_file_option("--judge", help="Candidates of the other party: their shares are written.")
@_data.target_option
@_data.sensitive_option
@limit_options
@shape_options
@_data.weight_option
@_data.drop_option
@_data.out_option(default="part.moments", help="The moments.")
@_data.reading_options
@_data.printing_options
def moments(
    *, like: Path | None, start: Path | None, cross: bool, judge: Path | None, out: Path, reading: Reading,
    console: Console, **options: Any,
) -> None:  # fmt: skip
    """Sum up DATA: the statistics from which every fit follows, without its rows.

    Sites that may not share rows can share these sums. The first site fixes the maps (--start),
    all others use them (--like); merge adds the parts up, and fit --from-moments solves.

    \b
    scalefair moments a.parquet --target pay --sensitive sex --map fourier \\
        --start pay.scalefair --out a.moments
    scalefair moments b.parquet --like pay.scalefair --out b.moments
    scalefair merge a.moments b.moments --out all.moments
    scalefair fit --from-moments all.moments --like pay.scalefair --out all.scalefair

    With --cross two parties hold the same rows, in the same order: one --start its maps and has the
    target, the other has the --sensitive columns and is --like them; fit --cross takes both moments.

    The moments are means and covariances. A model with the nystroem map holds some rows of DATA as
    landmarks; with --map fourier or linear it does not.
    """
    settings = ModelOptions.taken_from(options)
    if judge is not None and not (cross and like is not None):
        raise click.UsageError("--judge goes with --cross and --like")
    if like is not None:
        _data.refuse_given({*MODEL_OPTIONS, "drop", *(["target"] if cross else [])}, "with --like, whose model says it")
    if cross:
        from scalefair.cli import parties

        if like is not None and start is None:
            parties.answer(reading, console, like, judge, out, options)
            return
        if start is not None and like is None:
            parties.begin(reading, console, start, out, settings, options)
            return
    if start is not None and like is None:
        total = _start(reading, console, start, settings, options)
    elif like is not None and start is None:
        model = _regression(like)
        total = collect(reading, console, model, options, model.collect)
    else:
        raise click.UsageError(
            "give --like MODEL to use the maps of a model, or --start MODEL to fit them on DATA and write them there"
        )
    _save_moments(total, out, console, {"model": start or like}, "")


def _save_moments(total: Any, out: Path, console: Console, about: dict[str, Any], words: str) -> None:
    total.save(out)
    record = {"moments": out, **about, "rows": total.n_rows, "weight": total.weight, "blocks": dict(total.blocks)}
    console.result(record, f"{out}: moments of {total.n_rows:,} rows{words}")


def _start(reading: Reading, console: Console, model: Path, settings: ModelOptions, options: dict[str, Any]) -> Any:
    """Fit a model for the others, and return its moments."""
    with reading.open(console) as table:
        roles = find_roles(table, options, settings.hide_sensitive)
        console("fitting")
        plain = settings.plain(roles.sensitive if roles.visible else None)
        choice, roles, _ = fit_model({"kernel": plain}, table, roles, console)
    from scalefair import save

    fitted = choice.model
    fitted.columns_ = roles.stored
    save(fitted, model)
    return fitted.moments_


def collect(reading: Reading, console: Console, model: Any, options: dict[str, Any], summed: Callable[..., Any]) -> Any:
    """Return what is summed of the columns of DATA that a model had."""
    with reading.open(console) as given:
        table = reading.typed(given, text_columns(model))
        roles = _roles_of(model, table, options)
        console("summing")
        columns, own = roles.arguments(table.selection(roles.all))
        with noting_warnings(console):
            return summed(*columns, **own)


def _roles_of(model: Any, table: Data, options: dict[str, Any]) -> Roles:
    """Columns as in the fit of the model, unless options name others."""
    stored = vars(model).get("columns_", {})
    target = options["target"] or stored.get("target")
    sensitive = options["sensitive"] or stored.get("sensitive") or ()
    if target is None or not sensitive:
        raise ValueError("the model does not name its columns: add --target and --sensitive")
    weight = table.find_one("--weight", options["weight"] or stored.get("weight"))
    (target,) = table.find("--target", [target])
    inputs = [str(name) for name in model.feature_names_in_]
    table.find("inputs of the model", inputs)
    return Roles(target, table.find("--sensitive", sensitive), inputs, weight)


@click.command(short_help="Add up moments, as if all rows had been one table.")
@click.argument("parts", nargs=-1, required=True, type=_data.WRITTEN_FILE)
@_data.out_option(default="all.moments", help="The sum.")
@_data.printing_options
def merge(*, parts: tuple[Path, ...], out: Path, console: Console) -> None:
    """Add up the moments of PARTS, exactly, as if all rows had been one table.

    Parts that were made with different maps or encodings are an error that says what differs.

    \b
    scalefair merge site*.moments --out all.moments
    """
    from scalefair import Moments
    from scalefair.errors import located

    twice = [part for part in parts if parts.count(part) > 1]
    if twice:
        raise click.UsageError(f"{twice[0]} is given twice, so its rows would count twice")
    console(f"adding {len(parts)} parts")
    total = Moments.load(parts[0])
    for part in parts[1:]:
        more = Moments.load(part)
        with located(f"{part} and {parts[0]}"):
            total = total + more
    _save_moments(total, out, console, {"parts": list(parts)}, f" from {len(parts)} parts")


def solve(path: Path, like: Path, out: Path, console: Console, settings: ModelOptions) -> None:
    """Write the model of merged moments; what options do not say is as in the model `like`."""
    from scalefair import Moments

    model, given = _regression(like), Moments.load(path)
    columns, limit, eta = vars(model).get("columns_", {}), settings.unfairness, settings.eta
    if limit is None and eta is None:
        limit = model.unfairness
        eta = None if limit is not None else model.eta_
    if isinstance(model, WithPath):
        model = model.path_.at(alpha=model.alpha_, eta=model.eta_)
    alpha = model.alpha if settings.alpha is None else settings.alpha
    console(f"solving from {given.n_rows:,} rows")
    with noting_warnings(console) as notes:
        solved = model.set_params(alpha=alpha, unfairness=limit, eta=eta).solve_from(given)
    solved.columns_ = columns
    record = write_model(solved, out, path, notes)
    console.result(record, words(out, record))


def _regression(like: Path) -> Any:
    from scalefair import load

    model = load(like)
    if not hasattr(model, "collect") or "feature_names_in_" not in vars(model):
        raise ValueError(
            f"{like}: moments are those of a regression; a classifier is fitted on rows: use a "
            "model of scalefair fit --kind regression"
        )
    return model
