"""Run pages and write what they print and draw below their blocks of code.

python -m tests.docs.write docs/guide/start.md ...  (without names: every page)
"""

from __future__ import annotations

import contextlib
import os
import re
import sys
import tempfile
import textwrap
import warnings
from pathlib import Path

import matplotlib as mpl

from tests import docs_pages

IMAGES = docs_pages.ROOT / "docs" / "images" / "pages"


def tenths(attribute):
    """Coordinates to a tenth of a point, which halves the file."""
    return re.sub(r"\d+\.\d{2,}", lambda number: f"{float(number[0]):.1f}", attribute[0])


def save(figure, path):
    """Write a figure as SVG, the same text for the same figure, with its data as description."""
    path.parent.mkdir(exist_ok=True)
    settings = {"svg.fonttype": "none", "svg.hashsalt": "scalefair"}
    with mpl.rc_context(settings), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing from")
        about = {"Date": None, "Creator": None, "Description": docs_pages.data_of(figure)}
        figure.savefig(path, metadata=about)
    text, _, rest = path.read_text("utf-8").partition("</metadata>")
    short = re.sub(r'="[^"]*"', tenths, rest)
    path.write_text(f"{text}</metadata>{short}", "utf-8")


def described(figure):
    """What a figure shows, from its labels."""
    ax = figure.axes[0]
    return " against ".join(filter(None, (ax.get_ylabel(), ax.get_xlabel()))).replace("\n", " ")


def wrapped(printed):
    """Sentences within a hundred columns; tables as they are."""
    lines = [
        textwrap.fill(line, 100, subsequent_indent="  " * line.startswith("- "))
        if len(line) > 100 and "  " not in line.strip()
        else line
        for line in printed.splitlines()
    ]
    return "\n".join([*lines, ""])


def below(block, printed, figures, page, numbers):
    """The fence and the images that belong below a block."""
    text = f"\n```text\n{wrapped(printed)}```\n" if printed else ""
    for place, figure in enumerate(figures):
        number = next(numbers)
        path = IMAGES / f"{page.stem}-{number}.svg"
        save(figure, path)
        link = Path(os.path.relpath(path, page.parent)).as_posix()
        known = block.figures[place : place + 1]
        alt = (known and known[0][0]) or described(figure)
        text += f"\n![{alt}]({link})\n"
    return text


def write(page):
    """Run a page and rewrite it."""
    text = page.read_text("utf-8")
    numbers, pieces, start = iter(range(1, 99)), [], 0
    for block, printed, figures in runs(text, docs_pages.name(page)):
        pieces += [text[start : block.end], below(block, printed, figures, page, numbers)]
        start = block.after
    page.write_text("".join([*pieces, text[start:]]), "utf-8")


def runs(text, name):
    """Run a page in an empty folder, block by block."""
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        yield from docs_pages.run(text, name)


if __name__ == "__main__":
    mpl.use("agg")
    named = [Path(name).resolve() for name in sys.argv[1:]]
    for page in named or docs_pages.pages():
        if docs_pages.blocks(page.read_text("utf-8")):
            print(docs_pages.name(page), flush=True)
            write(page)
