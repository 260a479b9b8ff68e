"""Console output: progress and errors on stderr, the result on stdout; types of options."""

from __future__ import annotations

import errno
import json
import os
import re
import shlex
import sys
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import reduce
from itertools import count
from pathlib import Path
from threading import Lock
from typing import Any, ClassVar, NoReturn

import click

from scalefair.errors import (
    CellError,
    CsvOptionError,
    InputError,
    LostWorkersError,
    NotCertifiedError,
    UselessColumnError,
)

INTERRUPTED, BROKEN_PIPE = 130, 141  # exit codes as a shell gives them for the signals
NOT_CERTIFIED = 3  # exit code of a limit that is not certified
BAD_INPUT = (ValueError, OSError, ImportError, MemoryError, LostWorkersError)
REPORT_PACKAGES = ("matplotlib", "jinja2", "markupsafe")
CLEAR = "\r\033[K\033[?25h"  # takes a progress bar away, and gives the cursor back that it hid
_SPACE, _PATH = "make room, or write elsewhere", "check the path"
_PERMISSION = "check its permissions, or give another path"
REMEDIES = {
    errno.ENOSPC: _SPACE, errno.EDQUOT: _SPACE, errno.EFBIG: _SPACE, errno.EROFS: "write elsewhere",
    errno.EACCES: _PERMISSION, errno.EPERM: _PERMISSION, errno.ENOENT: _PATH, errno.ENOTDIR: _PATH,
    errno.EISDIR: "give a file",
}  # fmt: skip
"""What to do about errors of the system."""
OPTIONS = {
    r"missing='(\w+)'": r"--missing \1", "use FairKernelRidge or another regressor": "give --kind regression",
    "classes are for a classifier, such as FairKernelClassifier": "for classes give --kind classification",
    r"PartyMaps\.candidates, which its PartyMaps\.judge": "--candidates, which its moments --cross --judge",
}  # fmt: skip
"""Options that remedies mean by what Python calls them."""


class Console:
    """Steps and seconds on stderr, the result on stdout, or as JSON; `quiet` prints only errors and JSON."""

    def __init__(self, *, as_json: bool = False, quiet: bool = False) -> None:
        self.as_json, self.quiet = as_json, quiet
        self._start = time.perf_counter()
        self._shown = not quiet and sys.stderr.isatty()
        self._step, self._lock = "", Lock()
        self._notes: set[str] = set()
        self._bar: Any = None

    @property
    def seconds(self) -> float:
        """Seconds since the start."""
        return time.perf_counter() - self._start

    def __call__(self, step: str) -> None:
        """Begin a step; off a terminal nothing is shown."""
        self._begin(step, " ...")

    def update(self, done: int, total: int | None, unit: str = "") -> None:
        """Show the progress of the step, from any thread."""
        if not self._shown:
            return
        with self._lock:
            if self._bar is None or done < self._bar.pos:  # a new pass over the rows
                unknown = count() if total is None else None
                label = f"{self._step}, {unit}"
                self._bar = click.progressbar(unknown, total, label, show_pos=True, file=sys.stderr)
            self._bar.update(done - self._bar.pos)

    def finish(self) -> None:
        """Show that all steps are done."""
        self._begin("done")

    def result(self, record: Mapping[str, Any], words: str) -> None:
        """Print the result: the record and its seconds as JSON, or the words."""
        from scalefair._files import plain

        self.finish()
        if self.as_json:
            record = {**record, "seconds": record.get("seconds", self.seconds)}
            click.echo(json.dumps(plain(record), indent=2, ensure_ascii=False, allow_nan=False))
        elif not self.quiet:
            click.echo(words)

    def note(self, message: str) -> None:
        """Print one line that is not an error, once."""
        if not self.quiet and message not in self._notes:
            self._notes.add(message)
            self._clear()
            click.echo(f"scalefair: note: {' '.join(message.split())}", err=True)

    def _begin(self, step: str, end: str = "") -> None:
        self._clear()
        self._step = f"[{self.seconds:5.1f} s] {step}"
        if self._shown:
            click.echo(f"{self._step}{end}", err=True)

    def _clear(self) -> None:
        with self._lock:
            if self._bar is not None:
                click.echo(CLEAR, err=True, nl=False)
            self._bar = None


class FitProgress:
    """scikit-learn's callback that reports to a console the chunks of a pass, or tasks of dask."""

    passes = ("chunks", "tasks")

    def __init__(self, console: Console) -> None:
        self._console = console
        self._done = 0

    def setup(self, estimator: Any, context: Any) -> None:
        """Nothing to prepare."""

    def teardown(self, estimator: Any, context: Any) -> None:
        """Nothing to clear away."""

    def on_fit_task_begin(self, estimator: Any, context: Any) -> None:  # noqa: ARG002
        """Begin to count, at a new pass."""
        if context.task_name in self.passes and not self._is_part(context):
            self._done = 0

    def on_fit_task_end(self, estimator: Any, context: Any) -> None:  # noqa: ARG002
        """Count one more chunk."""
        if context.task_name in self.passes and self._is_part(context):
            self._done += 1
            self._console.update(self._done, context.parent.max_subtasks, context.task_name)

    def _is_part(self, context: Any) -> bool:
        return context.parent is not None and context.parent.task_name in self.passes


@contextmanager
def noting_warnings(console: Console) -> Iterator[list[str]]:
    """Collect warnings meant for users, and print each as one line once the work is done."""
    notes: list[str] = []
    with warnings.catch_warnings(record=True, action="default", category=UserWarning) as caught:
        yield notes
    for warning in caught:
        if issubclass(warning.category, UserWarning):
            notes.append(" ".join(str(warning.message).split()))
        else:
            warnings.warn_explicit(warning.message, warning.category, warning.filename, warning.lineno)
    notes[:] = dict.fromkeys(notes)
    for note in notes:
        console.note(note)


class OneLineErrors(click.Group):
    """A group of commands whose errors are one line on stderr; exit code 2 for bad input."""

    headings: ClassVar[dict[str, list[str]]] = {}

    def add_below(self, heading: str, *commands: click.Command) -> None:
        """Add commands, which the help shows below a heading."""
        for command in commands:
            self.add_command(command)
        self.headings[heading] = [str(command.name) for command in commands]

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
            _fail("interrupted", INTERRUPTED)
        except Exception as error:
            if "--debug" in arguments and not isinstance(error, click.ClickException):
                raise
            _fail(*_message_and_code(error))
        sys.exit(code if isinstance(code, int) else 0)

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        """Name the commands in the order of their use, not of the alphabet."""
        return list(self.commands)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        """Write the commands below their headings."""
        for heading, names in self.headings.items():
            with formatter.section(heading):
                formatter.write_dl([(n, self.commands[n].get_short_help_str(70)) for n in names])

    def invoke(self, ctx: click.Context) -> Any:
        """Run a command and flush what it printed, while an error can still be shown."""
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


def _give_up_stdout() -> None:
    """Keep the interpreter from reporting again what cannot be written."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _fail(message: str, code: int) -> NoReturn:
    if sys.stderr.isatty():
        click.echo(CLEAR, err=True, nl=False)
    click.echo(f"scalefair: error: {' '.join(message.split())}", err=True)
    sys.exit(code)


def _message_and_code(error: Exception) -> tuple[str, int]:
    if isinstance(error, click.ClickException):  # a mistake in the command itself
        message = error.format_message().rstrip(".")
        if isinstance(error, click.UsageError) and error.ctx is not None:
            message += f"; see {error.ctx.command_path} --help"
        return message, 2
    if isinstance(error, BAD_INPUT):
        return remedied(error), NOT_CERTIFIED if isinstance(error, NotCertifiedError) else 2
    return f"{type(error).__name__}: {error} (a bug; --debug shows where)", 1


def remedied(error: BaseException) -> str:
    """Return the message of an error of the data, the files or the cluster."""
    if isinstance(error, ImportError) and error.name in REPORT_PACKAGES:
        return f"the report needs {error.name}: pip install 'scalefair[plots]'"
    if isinstance(error, MemoryError):
        return "not enough memory; use fewer --components, or a machine with more"
    if isinstance(error, OSError) and error.strerror:
        where = f"{error.filename}: " if error.filename else ""
        remedy = REMEDIES.get(error.errno or 0)
        return f"{where}{error.strerror}{'; ' + remedy if remedy else ''}"
    if isinstance(error, InputError):
        remedy = _option_for(error)
        return f"{error.what}; {remedy}" if remedy else error.what
    return str(error) or type(error).__name__


def _option_for(error: InputError) -> str:
    """Return the remedy by an option, where the error names an argument in Python."""
    if isinstance(error, UselessColumnError):
        return "leave it out of --sensitive"
    if isinstance(error, CellError):
        return f"repair the cell, or read it as text with --text {shlex.quote(error.column)}"
    if isinstance(error, CsvOptionError):
        return f"give --{error.option} {'$' if error.value == chr(9) else ''}{error.value!r}{error.otherwise}"
    return reduce(lambda text, pair: re.sub(pair[0], pair[1], text), OPTIONS.items(), error.remedy)


class WrittenFile(click.Path):
    """A file that exists; click treats an unreadable one as missing."""

    def convert(self, value: Any, param: Any, ctx: Any) -> Any:
        """Return the path; an unreadable file fails with the system's reason."""
        try:
            os.stat(value)
        except PermissionError as error:
            self.fail(str(error), param, ctx)
        except OSError:
            pass  # click says what is wrong
        return super().convert(value, param, ctx)


class OutPath(click.Path):
    """A file or folder that can be written; checked before the work, not after."""

    def __init__(self, *, folder: bool = False, beside: tuple[str, ...] = ()) -> None:
        super().__init__(file_okay=not folder, dir_okay=folder, readable=False, allow_dash=not folder, path_type=Path)
        self.name, self.beside = "directory" if folder else "path", beside

    def overwritten(self, out: Path) -> list[Path]:
        """Return the files that exist and would be replaced; `beside` are endings of others with the same name."""
        beside = [out.with_suffix(ending) for ending in self.beside if self.file_okay]
        beside += [out / name for name in self.beside if not self.file_okay]
        return [path for path in (out, *beside) if path.is_file()]

    def convert(self, value: Any, param: Any, ctx: Any) -> Any:
        """Return the path, or fail with the reason."""
        out: Any = super().convert(value, param, ctx)
        if str(out) == "-":
            return out
        if self.file_okay and out.suffix in self.beside:
            self.fail(f"{out} is the name of a file that is written beside it; give one in .html", param, ctx)
        if self.file_okay and out.exists() and not out.is_file():
            self.fail(f"{out} is not a regular file and is not replaced; give another", param, ctx)
        parents = out.absolute().parents
        nearest = next(path for path in (out.absolute(), *parents) if path.is_dir())
        if self.file_okay and nearest != parents[0]:
            self.fail(f"{out}: there is no folder {parents[0]}; make it first", param, ctx)
        if any(path.exists() and not path.is_dir() for path in parents):
            self.fail(f"{out} would be below a file; give another folder", param, ctx)
        if not os.access(nearest, os.W_OK):
            self.fail(f"{out}: no permission to write to {nearest}; give another folder", param, ctx)
        return out


class Share(click.ParamType):  # type: ignore[type-arg]  # no generic before click 8.3
    """A number from 0 to `largest`, or a percentage: 0.05 or 5%."""

    name = "share"

    def __init__(self, largest: float = 1.0) -> None:
        self.largest = largest

    def convert(self, value: Any, param: Any, ctx: Any) -> Any:
        """Return the number."""
        text = str(value)
        number: float = click.FLOAT(text.removesuffix("%"), param, ctx)
        number = number / 100 if text.endswith("%") else number
        if not 0 <= number <= self.largest:
            self.fail(f"{text} is not between 0 and {self.largest:g}; give 0.05 or 5%", param, ctx)
        return number
