"""Read docstrings whose formulas are plain text: ``|β|²`` is no substitution, ``coef_`` no link.

Also says which members of a class are scalefair's own: what scikit-learn's base classes bring is
documented there.
"""

import re
from itertools import pairwise

_LITERAL = re.compile(r"(``.+?``|`[^`]+`(?:_|)|:\w+:`[^`]+`)")
_PARAMETER = re.compile(r"^(\s*\*{0,2}\w[\w, *]* : )(.*)")
_ITEM = re.compile(r"^(\s*)(\w)([.)])(?=\s|$)")
_REQUEST = re.compile(r"set_\w+_request|get_metadata_routing")


def _escaped(text):
    text = re.sub(r"(?<!\\)\|", r"\\|", text)
    text = re.sub(r"(?<!\\)\*(?!\*)", r"\\*", text) if text.count("*") % 2 else text
    return re.sub(r"(?<=\w)_+(?![\w*])", lambda match: r"\_" * len(match[0]), text)


def _escape_line(line):
    line = _ITEM.sub(r"\1\2\\\3", line)  # "V." is a symbol, "A. Name" a name: no lists
    parts = _LITERAL.split(line)
    return "".join(part if odd % 2 else _escaped(part) for odd, part in enumerate(parts))


def _verbatim(lines):
    """Say of each line whether it stands in a literal block, a doctest or a section's heading."""
    inside = None
    for line in lines:
        indent = len(line) - len(line.lstrip())
        if inside is not None and line.strip() and indent <= inside:
            inside = None
        yield inside is not None or line.lstrip().startswith((">>>", "..."))
        if inside is None and line.rstrip().endswith("::"):
            inside = indent


def _is_name(line, following):
    """Say whether a line names a parameter and no more: numpydoc escapes names itself."""
    indented = following.startswith(" " * (len(line) - len(line.lstrip()) + 1))
    return bool(re.fullmatch(r"\w+_?(, \w+_?)*", line) and indented)


def _escape_prose(line):
    """Escape a line, or what a parameter is where it says that after the name."""
    named = _PARAMETER.match(line)
    return named[1] + _escape_line(named[2]) if named else _escape_line(line)


def escape(_app, _what, _name, _obj, _options, lines):
    """Escape the docstring in place, before numpydoc reads it."""
    followed = pairwise([*lines, ""])
    lines[:] = [
        line if verbatim or _is_name(line, following) else _escape_prose(line)
        for (line, following), verbatim in zip(followed, list(_verbatim(lines)), strict=True)
    ]


def skip(_app, _what, name, obj, _skip, _options):
    """Leave out members whose home is another package, and fields, which the signature names."""
    function = getattr(obj, "fget", None) or getattr(obj, "__func__", None) or obj
    owner = getattr(function, "__objclass__", None) or function
    home = getattr(owner, "__module__", None) or ""
    if (getattr(obj, "__doc__", None) or "").startswith("Alias for field number"):
        return True
    if _REQUEST.fullmatch(name) or (home and not home.startswith("scalefair")):
        return True
    return None


def setup(app):
    """Join the build; numpydoc listens at 500."""
    app.connect("autodoc-process-docstring", escape, priority=400)
    app.connect("autodoc-skip-member", skip)
    return {"parallel_read_safe": True}
