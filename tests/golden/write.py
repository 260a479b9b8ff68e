"""Write the golden files of the current schema: ``python -m tests.golden.write``.

Files of an older schema are never written again: they are what users have.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

import scalefair
from scalefair import _files
from scalefair.encoding import TableEncoder
from tests.models import MODELS, answers, fitted, pay

FOLDER = Path(__file__).parent
KEPT = 4
"""Rows whose answers are kept."""


def written():
    """Yield the name and the object of every golden file but the moments."""
    for name in MODELS:
        yield name, fitted(name)
    yield "path", fitted("nystroem").path(etas=[0.0, 1.0, np.inf])
    yield "encoding", TableEncoder().fit(pay().data)


def first(said):
    """Return the first answers as JSON-able values."""
    return {way: np.asarray(value)[:KEPT].tolist() for way, value in said.items()}


def main() -> None:
    folder = FOLDER / f"schema{_files.SCHEMA}"
    folder.mkdir(exist_ok=True)
    expected = {}
    for name, made in written():
        scalefair.save(made, folder / f"{name}.scalefair")
        if name in MODELS:
            expected[name] = first(answers(name, made))
    fitted("nystroem").moments_.save(folder / "nystroem.moments")
    (folder / "answers.json").write_text(json.dumps(expected, indent=0) + "\n")


if __name__ == "__main__":
    main()
