"""The command line. It loads the rest of the package only when a command needs it."""

import click

from scalefair import __version__
from scalefair.cli import audit, fit, frontier, moments, predict
from scalefair.cli._console import OneLineErrors

__all__ = ["main"]


@click.group(cls=OneLineErrors, invoke_without_command=True, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, "-V", "--version", prog_name="scalefair")
@click.pass_context
def main(context: click.Context) -> None:
    """Models whose predictions depend on sensitive columns no more than you allow.

    \b
    scalefair frontier                                  the cost of fairness, on built-in data
    scalefair fit pay.csv --target pay --sensitive sex --out pay.scalefair
    scalefair predict pay.scalefair new.csv --out predictions.csv --keep sex
    scalefair audit predictions.csv --sensitive sex
    scalefair explain pay.scalefair pay.csv             which columns contribute to the share
    scalefair certify pay.scalefair new.csv --sensitive sex --unfairness 0.05

    Every command has --help with examples. DATA is a parquet, csv or tsv file, a folder or pattern
    of them, a URL, or - for standard input; it need not fit in memory.
    """
    if context.invoked_subcommand is None:
        click.echo(context.get_help())


main.add_below(
    "Commands", frontier.frontier, fit.fit, predict.predict, audit.audit_command,
    audit.explain_command, audit.certify_command,
)  # fmt: skip
main.add_below("Parts of a table that may not be shared", moments.moments, moments.merge)
