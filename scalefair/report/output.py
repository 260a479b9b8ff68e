"""Results on disk: the page and the table of the path, whole or not at all."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from scalefair.report.frontier import Frontier
from scalefair.report.html import render


def write_report(frontier: Frontier, folder: str | os.PathLike[str], version: str) -> Path:
    """Write report.html and frontier.csv into a folder, made if need be; return the page's path."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    page = render(frontier, version)
    write_atomically(folder / "frontier.csv", frontier.table.to_csv(index=False))
    write_atomically(folder / "report.html", page)
    return folder / "report.html"


def write_atomically(path: Path, text: str) -> None:
    """Write a file under another name and rename it: whoever looks finds the old or the new one."""
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".part")
    try:
        with os.fdopen(handle, "w", encoding="utf-8", newline="\n") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        # mkstemp makes a private file; a report is as readable as any file its owner writes.
        mask = os.umask(0)
        os.umask(mask)
        os.chmod(name, 0o666 & ~mask)
        os.replace(name, path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
