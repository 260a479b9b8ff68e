"""Two parties on the command line: one holds x and y, the other x and s of the same rows."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from scalefair.cli._console import Console, noting_warnings
from scalefair.cli._data import Reading
from scalefair.cli._model import ModelOptions
from scalefair.cli.fit import find_roles, without_useless, words, write_model
from scalefair.cli.moments import collect


def begin(  # noqa: PLR0917
    reading: Reading, console: Console, start: Path, out: Path, settings: ModelOptions, options: dict[str, Any]
) -> None:
    """Write maps for the other party, and the moments of the inputs and the target of DATA."""
    from scalefair import PartyMaps, save

    if options["sensitive"]:
        raise click.UsageError("--sensitive: with --cross --start the other party has these columns")
    settings = replace(settings, model="kernel") if settings.model == "auto" else settings
    settings.plain(None)  # an error of models without moments
    (model,) = settings.candidates(None, classes=False).values()
    with reading.open(console) as table:
        roles = find_roles(table, options, hide=False, alone=True)
        console("summing")

        def fit(dropped: list[str]) -> Any:
            columns, own = (rest := roles.without(dropped)).arguments(table.selection(rest.all))
            with noting_warnings(console):
                return PartyMaps.fit(model, *columns, **own)

        (maps, ours), _ = without_useless(table, roles.inputs, fit, console)
    maps.model.columns_ = {"weight": roles.weight}  # the name of the target is not for the other party
    save(maps, start)
    _save_parts(ours, out, console, {"maps": start})


def answer(  # noqa: PLR0917
    reading: Reading, console: Console, like: Path, judge: Path | None, out: Path, options: dict[str, Any]
) -> None:
    """Write the moments of the inputs and the sensitive columns of DATA, or shares of candidates."""
    from scalefair import PartyMaps, save
    from scalefair.auditing.candidates import Candidates

    maps = _loaded(like, PartyMaps, "--cross")
    own = options | {"target": maps.model.feature_names_in_[0]}  # any column
    if judge is None:
        _save_parts(
            collect(reading, console, maps.model, own, lambda x, _, **s: maps.moments(x, **s)), out, console, {}
        )
        return
    asked = _loaded(judge, Candidates, "--judge")
    shares = collect(reading, console, maps.model, own, lambda x, _, **s: maps.judge(asked, x, **s))
    save(shares, out)
    rows = shares.n_rows
    console.result({"shares": out, "rows": rows}, f"{out}: shares of the candidates on {rows:,} rows")


def solve_parties(files: dict[str, Path | None], like: Path, out: Path, console: Console, target: str | None) -> None:
    """Write the model of both moments; candidates instead, where the other party has not judged them."""
    from scalefair import PartyMaps, save
    from scalefair.auditing.candidates import Judgement
    from scalefair.errors import located
    from scalefair.parties import PartyMoments

    maps = _loaded(like, PartyMaps, "--like")
    ours, theirs = (_loaded(files[name], PartyMoments, f"--{name}") for name in ("from-moments", "cross"))
    asked, shares = files["candidates"], files["shares"]
    if vars(maps.model).get("confidence") is not None and asked is None and shares is None:
        raise click.UsageError("a certificate needs --candidates FILE, for the other party, and then its --shares FILE")
    with located(f"{files['from-moments']} and {files['cross']}"), noting_warnings(console) as notes:
        if asked is not None:
            save(maps.candidates(ours, theirs), asked)
            console.result({"candidates": asked}, f"{asked}: candidates, for the other party to judge")
            return
        judgement = None if shares is None else _loaded(shares, Judgement, "--shares")
        solved = maps.solve(ours, theirs, judgement)
    solved.columns_ = vars(maps.model).get("columns_", {}) | {"target": target or "y"}
    record = write_model(solved, out, files["from-moments"], notes)
    console.result(record, words(out, record))


def _loaded(path: Any, kind: type, option: str) -> Any:
    from scalefair import load

    if not isinstance(thing := load(path), kind):
        raise ValueError(f"{path} holds a {type(thing).__name__}, {option} needs {kind.__name__}")
    return thing


def _save_parts(parts: Any, out: Path, console: Console, about: dict[str, Any]) -> None:
    from scalefair import save

    save(parts, out)
    rows = sum(fold.n_rows for fold in parts.folds)
    console.result({"moments": out, **about, "rows": rows}, f"{out}: moments of {rows:,} rows")
