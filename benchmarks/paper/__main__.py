"""Run an experiment of the paper beside its printed numbers.

    python -m benchmarks.paper toy2 [--seeds 0:10]

Tables and figures go to results/paper.
"""

from __future__ import annotations

from pathlib import Path

import click

from benchmarks._measure import RESULTS
from benchmarks.paper import EXPERIMENTS, load
from benchmarks.paper.runs import run
from scalefair.cli._console import Console


def _seeds(context: click.Context, option: click.Parameter, value: str | None) -> range | None:
    """N: the seeds 0 to N - 1; A:B: those from A to B - 1."""
    if value is None:
        return None
    first, colon, last = value.rpartition(":")
    try:
        seeds = range(int(first) if colon else 0, int(last))
    except ValueError:
        seeds = range(0)
    if not seeds or seeds.start < 0:
        message = f"{value!r} names no seeds; give a number such as 5, or A:B with A < B"
        raise click.BadParameter(message, context, option)
    return seeds


@click.command()
@click.argument("experiment", type=click.Choice(EXPERIMENTS), required=False)
@click.option("--quick", is_flag=True, help="Small sizes and few seeds: less than a minute.")
@click.option("--seeds", callback=_seeds, metavar="N or A:B", help="Repetitions, instead of the paper's.")
@click.option(
    "--out",
    type=click.Path(file_okay=False, writable=True, path_type=Path),
    default=RESULTS / "paper",
    show_default="benchmarks/results/paper",
    help="Folder for tables (csv) and figures (svg, png).",
)
@click.option("--fresh", is_flag=True, help="Forget the seeds that are in the folder already.")
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
@click.option("--quiet", is_flag=True, help="Print nothing but errors and the JSON.")
def main(
    experiment: str | None, *, quick: bool, seeds: range | None, out: Path, fresh: bool, as_json: bool, quiet: bool
) -> None:
    """Run an EXPERIMENT of the paper, and print its numbers beside the printed ones.

    Every seed is written as soon as it is done, and a run goes on where the last one ended. Without
    an EXPERIMENT they are listed. Nothing is downloaded.

    \b
    python -m benchmarks.paper toy1 --quick
    python -m benchmarks.paper toy2 --out results
    python -m benchmarks.paper crime --seeds 0:3 --json
    """
    console = Console(as_json=as_json, quiet=quiet)
    if experiment is None:
        titles = {name: load(name).title for name in EXPERIMENTS}
        console.result(titles, "\n".join(f"{name:6}  {title}" for name, title in titles.items()))
        return
    chosen = load(experiment)
    console(f"{chosen.title}{', quick' if quick else ''}")
    outcome = run(
        chosen,
        out,
        quick=quick,
        seeds=seeds,
        fresh=fresh,
        tell=lambda done, total: console.update(done, total, "seeds"),
    )
    tables = {"table": outcome.table, "claims": outcome.claims}
    record = {name: table.to_dict("records") for name, table in tables.items()}
    parts = [table.to_string(index=False, float_format="{:.4g}".format) for table in tables.values()]
    files = [str(path) for path in outcome.files]
    console.result({**record, "files": files}, "\n\n".join([*parts, "\n".join(files)]))


if __name__ == "__main__":
    main(prog_name="python -m benchmarks.paper")
