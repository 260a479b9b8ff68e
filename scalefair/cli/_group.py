"""The group of all commands: what happens when one of them ends, in whatever way."""

from __future__ import annotations

import errno
import os
import shlex
import sys
from collections.abc import Sequence
from typing import Any, NoReturn

import click

from scalefair import __version__
from scalefair.errors import (
    CellError,
    DelimiterError,
    InputError,
    LostWorkersError,
    UselessColumnError,
)

INTERRUPTED, BROKEN_PIPE = 130, 141
"""Exit codes as a shell gives them for the signals."""

_BAD_INPUT = (ValueError, OSError, ImportError, MemoryError, LostWorkersError)


class OneLineErrors(click.Group):
    """A group of commands whose errors are one line on stderr; exit code 2 for bad input."""

    def main(  # type: ignore[override]
        self, args: Sequence[str] | None = None, **options: Any
    ) -> Any:
        """Run a command; `--debug` lets a traceback through."""
        arguments = list(sys.argv[1:] if args is None else args)
        # Also for `python -m scalefair`: the name is part of the completion variable.
        options["prog_name"] = "scalefair"
        if not options.pop("standalone_mode", True):
            return super().main(arguments, standalone_mode=False, **options)
        try:
            code = super().main(arguments, standalone_mode=False, **options)
        except click.Abort:
            # An interrupt inside exec(), as imports use it, would make Python end by the signal and
            # not with our exit code; the next exec() makes it forget.
            exec("")  # noqa: S102  # nosec B102
            fail("interrupted", INTERRUPTED)
        except click.ClickException as error:
            fail(usage_message(error), 2)
        except Exception as error:
            if "--debug" in arguments:
                raise
            _fail_of(error)
        sys.exit(code if isinstance(code, int) else 0)

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        """Name the commands in the order of their use, not of the alphabet."""
        return list(self.commands)

    def invoke(self, ctx: click.Context) -> Any:
        """Run a command and flush what it printed, while an error can still be told."""
        try:
            result = super().invoke(ctx)
            sys.stdout.flush()
        except KeyboardInterrupt:
            raise click.Abort from None  # here, before click prints an empty line
        except BrokenPipeError:
            _give_up_stdout()
            ctx.exit(BROKEN_PIPE)
        except OSError:
            _give_up_stdout()
            raise
        return result


def _fail_of(error: Exception) -> None:
    if isinstance(error, _BAD_INPUT):
        fail(remedied(error), 2)
    fail(f"{type(error).__name__}: {error} (a bug; --debug shows where)", 1)


def _give_up_stdout() -> None:
    """Let the interpreter not complain, once more, of what cannot be written."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


_REPORT_PACKAGES = ("matplotlib", "jinja2", "markupsafe")

_REMEDIES = {
    errno.ENOSPC: "make room, or write elsewhere",
    errno.EDQUOT: "make room, or write elsewhere",
    errno.EFBIG: "make room, or write elsewhere",
    errno.EROFS: "write elsewhere",
    errno.EACCES: "check its permissions, or give another path",
    errno.EPERM: "check its permissions, or give another path",
    errno.ENOENT: "check the path",
    errno.ENOTDIR: "check the path",
    errno.EISDIR: "give a file",
}


def fail(message: str, code: int) -> NoReturn:
    """Print one line on stderr and leave."""
    if sys.stderr.isatty():
        click.echo("\r\033[K", err=True, nl=False)  # an unfinished line of progress
    click.echo(f"scalefair: error: {' '.join(message.split())}", err=True)
    sys.exit(code)


def remedied(error: BaseException) -> str:
    """Return the message of an error of the data, the files or the cluster."""
    if isinstance(error, ImportError) and error.name in _REPORT_PACKAGES:
        return f"the report needs {error.name}: pip install 'scalefair[plots]'"
    if isinstance(error, MemoryError):
        return "not enough memory; use fewer --components, or a machine with more"
    if isinstance(error, OSError) and error.strerror:
        return _system_message(error)
    if isinstance(error, InputError) and (remedy := _option_for(error)):
        return f"{error.what}; {remedy}"
    return str(error) or type(error).__name__


def _option_for(error: InputError) -> str:
    """Return the remedy by an option, where the error speaks of an argument in Python."""
    if isinstance(error, UselessColumnError):
        return "leave it out of --sensitive"
    if isinstance(error, CellError):
        return f"repair the cell, or read it as text with --text {shlex.quote(error.column)}"
    if isinstance(error, DelimiterError):
        return "give --delimiter " + (
            "$'\\t'" if error.delimiter == "\t" else repr(error.delimiter)
        )
    return ""


def _system_message(error: OSError) -> str:
    where = f"{error.filename}: " if error.filename else ""
    remedy = _REMEDIES.get(error.errno or 0)
    return f"{where}{error.strerror}{'; ' + remedy if remedy else ''}"


def usage_message(error: click.ClickException) -> str:
    """Return the message of a mistake in the command itself."""
    message = error.format_message().rstrip(".")
    context = getattr(error, "ctx", None)
    return f"{message}; see {context.command_path} --help" if context else message


@click.group(cls=OneLineErrors, invoke_without_command=True)
@click.version_option(__version__, prog_name="scalefair")
@click.pass_context
def main(context: click.Context) -> None:
    """Predictions that do not depend on sensitive attributes.

    \b
    scalefair frontier                                  what fairness costs, on built-in data
    scalefair fit pay.csv --target pay --sensitive sex --out pay.scalefair
    scalefair predict pay.scalefair new.csv --out predictions.csv --keep sex
    scalefair audit predictions.csv --sensitive sex

    Every command has --help with examples. DATA is a parquet or csv file, a folder or pattern of
    them, or a URL; it need not fit in memory.
    """
    if context.invoked_subcommand is None:
        click.echo(context.get_help())
