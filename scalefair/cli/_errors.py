"""Errors as one line that ends with what to do."""

from __future__ import annotations

import errno
import re
import sys
from typing import NoReturn

import click

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

_OPTIONS = [
    (r"name the type as column_types=\{(.*): 'string'\}", r"read it as text with --text \1"),
    (r": drop it\b", ": leave it out with --drop"),
    (r"give delimiter='\\t'", r"give --delimiter $'\\t'"),
    (r"give delimiter=", "give --delimiter "),
    (r"(no scalefair file): its header has .*", r"\1; give one that scalefair wrote"),
]
"""What a remedy in Python is called here."""


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
    message = str(error) or type(error).__name__
    for python, option in _OPTIONS:
        message = re.sub(python, option, message)
    return message


def _system_message(error: OSError) -> str:
    where = f"{error.filename}: " if error.filename else ""
    remedy = _REMEDIES.get(error.errno or 0)
    return f"{where}{error.strerror}{'; ' + remedy if remedy else ''}"


def usage_message(error: click.ClickException) -> str:
    """Return the message of a mistake in the command itself."""
    message = error.format_message().rstrip(".")
    context = getattr(error, "ctx", None)
    return f"{message}; see {context.command_path} --help" if context else message
