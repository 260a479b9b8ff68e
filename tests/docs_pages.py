"""The pages of the documentation, and the code, links and anchors that stand in them.

A page may tell the tests, in HTML comments that no reader sees:

- ``<!-- preamble`` … ``-->``: Python that runs before its blocks, such as the data they are about;
- ``<!-- not run: reason -->`` right before a block: it needs what a test has not;
- ``<!-- slow: reason -->``: the page runs with ``pytest -m slow`` only.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
GENERATED = ("_build", "auto_examples", "generated")

_BLOCK = re.compile(
    r"(<!-- not run:(?P<reason>[^>]*)-->\n+)?^```python\n(?P<code>.*?)^```", re.M | re.S
)
_ANY_FENCE = re.compile(r"^(```|~~~).*?^\1\s*$", re.M | re.S)
_PREAMBLE = re.compile(r"<!-- preamble\n(.*?)-->", re.S)
_SLOW = re.compile(r"<!-- slow:.+?-->")
_LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)")
_HEADING = re.compile(r"^#{1,6} (.+)$", re.M)


@dataclass(frozen=True)
class Block:
    """Code of a page, the line it starts at, and why it is not run, if so."""

    code: str
    line: int
    reason: str | None

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
        found.append(Block(match["code"], line, reason.strip() if reason is not None else None))
    return found


def preamble(text: str) -> str:
    return "\n".join(_PREAMBLE.findall(text))


def is_slow(text: str) -> bool:
    return _SLOW.search(text) is not None


def prose(text: str) -> str:
    """The page without its fences and code spans, whose brackets are no links."""
    return re.sub(r"`[^`\n]*`", "", _ANY_FENCE.sub("", text))


def links(text: str) -> list[str]:
    """Links into this repository, those to an anchor of the page itself included."""
    return [
        link for link in _LINK.findall(prose(text)) if "://" not in link and link[:7] != "mailto:"
    ]


def anchors(text: str) -> set[str]:
    """The anchors that GitHub and MyST give to headings."""
    headings = _HEADING.findall(_ANY_FENCE.sub("", text))
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}
