"""Results on disk: the page and the table of the path, whole or not at all."""

from __future__ import annotations

import os
from pathlib import Path

from scalefair._files import write_atomically
from scalefair.report.frontier import Frontier
from scalefair.report.html import render


def write_report(frontier: Frontier, folder: str | os.PathLike[str], version: str) -> Path:
    """Write report.html and frontier.csv into a folder, made if need be; return the page's path."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    page = render(frontier, version)
    write_atomically(folder / "frontier.csv", frontier.table.to_csv(index=False).encode())
    write_atomically(folder / "report.html", page.encode())
    return folder / "report.html"
