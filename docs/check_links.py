"""Check every link of the built pages that stays within them, anchors included.

python docs/check_links.py docs/_build/html
"""

import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit


class Page(HTMLParser):
    """What a page links to, and the anchors that it has."""

    def __init__(self, text):
        super().__init__()
        self.links, self.anchors = [], {""}
        self.feed(text)

    def handle_starttag(self, _tag, attrs):
        """Keep links and anchors."""
        found = dict(attrs)
        self.anchors |= {found[name] for name in ("id", "name") if found.get(name)}
        for name in ("href", "src"):
            if found.get(name):
                self.links.append(found[name])


def broken(folder):
    """Return "page: link" of all links that lead nowhere."""
    root = Path(folder).resolve()
    found = [path for path in sorted(root.rglob("*.html")) if "_static" not in path.parts]
    pages = {path: Page(path.read_text("utf-8")) for path in found}
    if not pages:
        return [f"{folder}: no page in it"]
    return [
        f"{path.relative_to(root)}: {link}"
        for path, page in pages.items()
        for link in page.links
        if not _leads_somewhere(path, link, pages)
    ]


def _leads_somewhere(path, link, pages):
    parts = urlsplit(link)
    if parts.scheme or parts.netloc:
        return True
    target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
    target = target / "index.html" if target.is_dir() else target
    anchors = pages[target].anchors if target in pages else {unquote(parts.fragment)}
    return target.exists() and unquote(parts.fragment) in anchors


if __name__ == "__main__":
    found = broken(sys.argv[1])
    print("\n".join(found) or "every link within the pages leads somewhere")
    sys.exit(bool(found))
