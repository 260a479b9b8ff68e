"""scalefair paper: the experiments of the paper beside its printed numbers."""

from __future__ import annotations

from pathlib import Path

import click

from scalefair.cli import _options
from scalefair.cli._output import Console, check_folder
from scalefair.paper import EXPERIMENTS


def _seeds(context: click.Context, option: click.Parameter, value: str | None) -> range | None:
    """N: the seeds 0 to N - 1; A:B: those from A to B - 1."""
    if value is None:
        return None
    first, colon, last = value.rpartition(":")
    try:
        found = range(int(first) if colon else 0, int(last))
    except ValueError:
        found = range(0)
    if not found or found.start < 0:
        message = f"{value!r} names no seeds; give a number such as 5, or A:B with A < B"
        raise click.BadParameter(message, context, option)
    return found


@click.command(short_help="Run an experiment of the paper beside its printed numbers.")
@click.argument("experiment", type=click.Choice(EXPERIMENTS), required=False)
@click.option("--quick", is_flag=True, help="Small sizes and few seeds: less than a minute.")
@click.option(
    "--seeds", callback=_seeds, metavar="N or A:B", help="Repetitions, instead of the paper's."
)
@click.option(
    "--out",
    type=click.Path(file_okay=False, path_type=Path),
    default="scalefair-paper",
    show_default=True,
    help="Folder for tables (csv) and figures (svg, png).",
)
@click.option("--fresh", is_flag=True, help="Forget the seeds that are in the folder already.")
@_options.printing
def paper(
    experiment: str | None,
    *,
    quick: bool,
    seeds: range | None,
    out: Path,
    fresh: bool,
    as_json: bool,
    quiet: bool,
) -> None:
    """Run an EXPERIMENT of the paper, and print its numbers beside the printed ones.

    Every seed is kept as soon as it is done, and a run goes on where the last one ended. Without an
    EXPERIMENT they are listed. Nothing is downloaded.

    \b
    scalefair paper toy1 --quick
    scalefair paper toy2 --out results
    scalefair paper crime --seeds 0:3 --json
    """
    console = Console(as_json=as_json, quiet=quiet)
    from scalefair.paper import load
    from scalefair.paper.runs import run

    if experiment is None:
        titles = {name: load(name).title for name in EXPERIMENTS}
        words = "\n".join(f"scalefair paper {name:6}  {title}" for name, title in titles.items())
        console.result(titles, words)
        return
    check_folder(out)
    chosen = load(experiment)
    console(f"{chosen.title}{', quick' if quick else ''}")
    outcome = run(
        chosen, out, quick=quick, seeds=seeds, fresh=fresh,
        tell=lambda done, total: console.update(done, total, "seeds"),
    )  # fmt: skip
    tables = {"table": outcome.table, "claims": outcome.claims}
    record = {name: found.to_dict("records") for name, found in tables.items()}
    parts = [
        found.to_string(index=False, float_format="{:.4g}".format) for found in tables.values()
    ]
    files = [str(path) for path in outcome.files]
    console.result({**record, "files": files}, "\n\n".join([*parts, "\n".join(files)]))
