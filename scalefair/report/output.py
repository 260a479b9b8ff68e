"""Results on disk: the page, the table of the path and the model, each whole or not at all."""

from __future__ import annotations

import os
from pathlib import Path

from scalefair._files import write_atomically
from scalefair.persistence import save
from scalefair.report.frontier import Frontier
from scalefair.report.html import render

MODEL = "model.scalefair"


def write_report(frontier: Frontier, folder: str | os.PathLike[str], version: str) -> Path:
    """Write report.html, frontier.csv and model.scalefair into a folder; return the page's path.

    The folder is made if need be. A model that holds something of the user's own cannot be saved,
    and is then left out.
    """
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    model = _saved(frontier, folder)
    page = render(frontier, version, model)
    write_atomically(folder / "frontier.csv", frontier.table.to_csv(index=False).encode())
    write_atomically(folder / "report.html", page.encode())
    return folder / "report.html"


def _saved(frontier: Frontier, folder: Path) -> str | None:
    try:
        save(frontier.estimator, folder / MODEL)
    except ValueError:
        return None
    return MODEL
