"""scalefair paper: the experiments of the paper beside its printed numbers."""

from __future__ import annotations

import sys
from importlib.util import find_spec
from pathlib import Path

import click

EXPERIMENTS = ("toy1", "toy2", "crime", "adult", "ard")
HOMES = ("scalefair.paper", "benchmarks.paper")
"""Where the experiments are: installed with the package, or in a checkout."""


@click.command(context_settings={"ignore_unknown_options": True})
@click.argument("experiment", type=click.Choice(EXPERIMENTS), required=False)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
@click.option("--debug", is_flag=True, expose_value=False, help="Show tracebacks.")
def paper(experiment: str | None, arguments: tuple[str, ...]) -> None:
    """Run an EXPERIMENT of the paper, and print its numbers beside the printed ones.

    Further ARGUMENTS go to the experiment; after -- also --help does. Without an EXPERIMENT those
    that are there are listed. They are part of a checkout, not of the installed package.

    \b
    scalefair paper toy1 --seeds 20
    scalefair paper ard -- --help
    """
    import runpy

    if experiment is None:
        for name in EXPERIMENTS:
            click.echo(f"{name}: {'scalefair paper ' + name if available(name) else 'not here'}")
        return
    module = find_experiment(experiment)
    before = sys.argv
    sys.argv = [f"scalefair paper {experiment}", *arguments]
    try:
        runpy.run_module(module, run_name="__main__", alter_sys=False)
    finally:
        sys.argv = before


def available(name: str) -> list[str]:
    """Return the modules that are an experiment, the one to run first."""
    checkout = str(Path(__file__).resolve().parents[2])
    if checkout not in sys.path:
        sys.path.append(checkout)
    return [f"{home}.{name}" for home in HOMES if _exists(f"{home}.{name}")]


def find_experiment(name: str) -> str:
    """Return the module of an experiment; a ValueError that says where it would be."""
    found = available(name)
    if not found:
        raise ValueError(
            f"the experiment {name!r} is not installed: run it from a checkout of scalefair that "
            f"has benchmarks/paper/{name}.py"
        )
    return found[0]


def _exists(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:
        return False
