"""What people and machines see: progress on stderr, the result on stdout, files all or nothing."""

from __future__ import annotations

import json
import os
import sys
import time
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from threading import Lock
from typing import Any

import click

_PASSES = ("chunks", "tasks")
_SECONDS_BETWEEN = 0.1
BAR = 20
"""Characters of a progress bar."""


class Console:
    """Steps on stderr, each with the seconds since the start; the result on stdout.

    Parameters
    ----------
    as_json : bool
        Whether the result is printed for machines.
    quiet : bool
        Whether nothing but errors and JSON is printed.
    """

    def __init__(self, *, as_json: bool = False, quiet: bool = False) -> None:
        self.as_json, self.quiet = as_json, quiet
        self._start = time.perf_counter()
        self._shown = not quiet and sys.stderr.isatty()
        self._open, self._updated = False, 0.0
        self._lock = Lock()
        self._step = ""

    @property
    def seconds(self) -> float:
        """Seconds since the start."""
        return time.perf_counter() - self._start

    def __call__(self, step: str) -> None:
        """Begin a step; off a terminal nothing is shown."""
        with self._lock:
            self._end_line()
            self._step = step
            self._write(f"{step} ...\n")

    def update(self, done: int, total: int | None, unit: str = "") -> None:
        """Show how far the step is, from any thread, at most ten times a second."""
        now = time.perf_counter()
        with self._lock:
            if not self._shown or now - self._updated < _SECONDS_BETWEEN:
                return
            self._updated = now
            share = f"{_bar(done / total)} of {total:,}" if total else f"{done:,}"
            self._write(f"\r\033[K{self._stamp()} {self._step}: {share} {unit}".rstrip(), False)
            self._open = True

    def finish(self) -> None:
        """Show that all steps are done."""
        self.clear()
        self._write("done\n")

    def clear(self) -> None:
        """Take away an unfinished line, for instance before an error."""
        with self._lock:
            self._end_line()

    def result(self, record: Mapping[str, Any], words: str) -> None:
        """Print the result: the record as JSON, or the words."""
        from scalefair._files import plain

        self.finish()
        if self.as_json:
            click.echo(json.dumps(plain(record), indent=2, ensure_ascii=False, allow_nan=False))
        elif not self.quiet:
            click.echo(words)

    def note(self, message: str) -> None:
        """Print one line that is no error."""
        if not self.quiet:
            self.clear()
            click.echo(f"scalefair: note: {' '.join(message.split())}", err=True)

    def _stamp(self) -> str:
        return f"[{self.seconds:5.1f} s]"

    def _write(self, text: str, stamped: bool = True) -> None:
        if self._shown:
            click.echo(f"{self._stamp()} {text}" if stamped else text, err=True, nl=False)

    def _end_line(self) -> None:
        if self._open:
            self._write("\r\033[K", False)
            self._open = False


def _bar(share: float) -> str:
    """0.5 as a bar and a percentage."""
    share = min(share, 1.0)
    return f"[{'#' * int(BAR * share):.<{BAR}}] {share:4.0%}"


class FitProgress:
    """scikit-learn's callback that tells a console of the chunks of a pass, or tasks of dask."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._done = 0

    def setup(self, estimator: Any, context: Any) -> None:
        """Nothing to prepare."""

    def teardown(self, estimator: Any, context: Any) -> None:
        """Nothing to clear away."""

    def on_fit_task_begin(self, estimator: Any, context: Any) -> None:  # noqa: ARG002
        """Begin to count, at a new pass."""
        if context.task_name in _PASSES and not self._is_part(context):
            self._done = 0

    def on_fit_task_end(self, estimator: Any, context: Any) -> None:  # noqa: ARG002
        """Count one more chunk."""
        if context.task_name in _PASSES and self._is_part(context):
            self._done += 1
            self._console.update(self._done, context.parent.max_subtasks, context.task_name)

    def _is_part(self, context: Any) -> bool:
        return context.parent is not None and context.parent.task_name in _PASSES


@contextmanager
def noting_warnings(console: Console) -> Iterator[list[str]]:
    """Collect warnings meant for users, and print each as one line once the work is done."""
    notes: list[str] = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("default", UserWarning)
        yield notes
    for warning in caught:
        if issubclass(warning.category, UserWarning):
            notes.append(" ".join(str(warning.message).split()))
        else:
            warnings.warn_explicit(
                warning.message, warning.category, warning.filename, warning.lineno
            )
    notes[:] = dict.fromkeys(notes)
    for note in notes:
        console.note(note)


def check_file(out: Path) -> None:
    """Raise OSError or ValueError if a file cannot be written: before the work, not after."""
    if out.is_dir():
        raise IsADirectoryError(f"--out {out}: is a folder; give the name of a file")
    if out.exists() and not out.is_file():
        raise ValueError(f"--out {out}: is no regular file, and will not be replaced; give another")
    folder = out.absolute().parent
    if not folder.is_dir():
        raise FileNotFoundError(f"--out {out}: there is no folder {folder}; make it first")
    if not os.access(folder, os.W_OK):
        raise PermissionError(f"--out {out}: may not write into {folder}; give another folder")


def check_folder(out: Path) -> None:
    """Raise OSError if a folder cannot be written: before the work, not after."""
    nearest = next(path for path in (out, *out.absolute().parents) if path.exists())
    if not nearest.is_dir():
        raise NotADirectoryError(f"--out {out}: {nearest} is not a folder; give another one")
    if not os.access(nearest, os.W_OK):
        raise PermissionError(f"--out {out}: may not write into {nearest}; give another folder")
