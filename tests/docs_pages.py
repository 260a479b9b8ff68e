"""The pages of the documentation, and the code, links and anchors that stand in them.

Below a block of Python stand what it prints, as a fence of ``text``, and the figures that it draws,
as images; ``python -m tests.docs.write`` puts both there, and the tests compare.

A page may tell the tests, in HTML comments that no reader sees:

- ``<!-- preamble`` … ``-->``: Python that runs before its blocks, such as the data they are about;
- ``<!-- not run: reason -->`` right before a block: it needs what a test has not;
- ``<!-- needs: package -->``: the page runs where that package is installed;
- ``<!-- slow: reason -->``, ``<!-- processes: reason -->``: the page runs with ``pytest -m slow``
  or ``-m processes`` only.
"""

from __future__ import annotations

import contextlib
import io
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
GENERATED = ("_build", "auto_examples", "generated")

_BLOCK = re.compile(
    r"(<!-- not run:(?P<reason>[^>]*)-->\n+)?^```python\n(?P<code>.*?)^```\n"
    r"(\n```text\n(?P<printed>.*?)^```\n)?(?P<figures>(\n!\[[^\]]*\]\([^)]+\)\n)*)",
    re.M | re.S,
)
_NUMBER = re.compile(r"(?<![\w.])[-−]?\d[\d,]*\.?\d*(?:e[-+]?\d+)?|\b[-−]?(?:inf|nan)\b")
_ANY_FENCE = re.compile(r"^(```|~~~).*?^\1\s*$", re.M | re.S)
_PREAMBLE = re.compile(r"<!-- preamble\n(.*?)-->", re.S)
_LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)")
_HEADING = re.compile(r"^#{1,6} (.+)$", re.M)


@dataclass(frozen=True)
class Block:
    """Code of a page, the line it starts at, why it is not run, if so, and what it shows."""

    code: str
    line: int
    reason: str | None
    printed: str = ""
    figures: tuple[tuple[str, str], ...] = ()
    end: int = 0
    after: int = 0

    def compiled(self, path):
        return compile("\n" * (self.line - 1) + self.code, str(path), "exec")


def pages() -> list[Path]:
    found = [path for path in (ROOT / "docs").rglob("*.md") if not set(GENERATED) & set(path.parts)]
    return [ROOT / "README.md", *sorted(found)]


def name(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def blocks(text: str) -> list[Block]:
    found = []
    for match in _BLOCK.finditer(text):
        reason = match["reason"]
        line = text.count("\n", 0, match.start("code")) + 1
        reason = reason.strip() if reason is not None else None
        figures = tuple(re.findall(r"!\[([^\]]*)\]\(([^)]+)\)", match["figures"]))
        printed, end = match["printed"] or "", match.end("code") + len("```\n")
        found.append(Block(match["code"], line, reason, printed, figures, end, match.end()))
    return found


def run(text: str, name: str) -> Iterator[tuple[Block, str, list[Any]]]:
    """Run a page, and yield each block with what it printed and the figures it drew."""
    import pandas as pd
    from matplotlib import pyplot as plt

    names: dict[str, object] = {"__name__": "page"}
    exec(compile(preamble(text), f"{name}, preamble", "exec"), names)
    with pd.option_context("display.width", 100, "display.max_columns", 20):
        for block in blocks(text):
            if block.reason is not None:
                continue
            with contextlib.redirect_stdout(io.StringIO()) as out:
                exec(block.compiled(name), names)
            lines = [line.rstrip() + "\n" for line in out.getvalue().splitlines()]
            yield block, "".join(lines), [plt.figure(n) for n in plt.get_fignums()]
            plt.close("all")


def data_of(figure: Any) -> str:
    """The labels and lines of a figure as text, which tells whether a picture is of this code."""
    told = []
    for ax in figure.axes:
        told += [ax.get_xlabel(), ax.get_ylabel()]
        for line in ax.get_lines():
            x, y = (list(map(float, values)) for values in (line.get_xdata(), line.get_ydata()))
            told += [f"{a:.3g} {b:.3g}" for a, b in zip(x, y, strict=True)][:40]
    return "; ".join(" ".join(told).split("\n"))


def differences(shown: str, found: str, tolerance: float = 0.05) -> list[str]:
    """What two outputs differ in: words, or numbers by more than a last digit and 5 %."""
    if _words(shown) != _words(found):
        return [found]
    pairs = zip(_NUMBER.findall(shown), _NUMBER.findall(found), strict=True)
    return [f"{a} is {b}" for a, b in pairs if not _near(a, b, tolerance)]


def _words(text: str) -> str:
    return " ".join(_NUMBER.sub("#", text).split())


def _near(a: str, b: str, tolerance: float) -> bool:
    if a == b:
        return True
    x, y = (float(number.replace(",", "").replace("−", "-")) for number in (a, b))
    digits = len(a.partition("e")[0].partition(".")[2])
    last = 10.0**-digits * (10.0 ** int(a.partition("e")[2]) if "e" in a else 1.0)
    return abs(x - y) <= 1.01 * last + tolerance * max(abs(x), abs(y))


def preamble(text: str) -> str:
    return "\n".join(_PREAMBLE.findall(text))


def needs(text: str) -> list[str]:
    return re.findall(r"<!-- needs: (\w+) -->", text)


def marks(text: str) -> list[str]:
    return re.findall(r"<!-- (slow|processes):.+?-->", text)


def prose(text: str) -> str:
    """The page without its fences and code spans, whose brackets are no links."""
    return re.sub(r"`[^`\n]*`", "", _ANY_FENCE.sub("", text))


def links(text: str) -> list[str]:
    """Links into this repository, those to an anchor of the page itself included."""
    return [link for link in _LINK.findall(prose(text)) if "://" not in link and link[:7] != "mailto:"]


def anchors(text: str) -> set[str]:
    """The anchors that GitHub and MyST give to headings."""
    headings = _HEADING.findall(_ANY_FENCE.sub("", text))
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}
