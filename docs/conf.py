"""How the pages are built: ``python -m sphinx -W -b html docs docs/_build/html``.

The pages with code are run by tests/test_docs_code.py.
"""

import sys
from pathlib import Path

import matplotlib as mpl

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE / "_ext"), str(HERE.parent)]
mpl.use("agg")

from scalefair import __version__  # noqa: E402

project = "scalefair"
author = "The scalefair developers"
copyright = author  # noqa: A001
version = release = __version__

extensions = [
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.mathjax",
    "numpydoc",
    "myst_parser",
    "docstrings",
    "results",
    "paper",
    "command_line",
]
exclude_patterns = ["_build"]
templates_path = ["_templates"]

myst_enable_extensions = ["dollarmath", "colon_fence"]
myst_heading_anchors = 4

autosummary_generate = True
autodoc_typehints = "none"  # the docstrings say it, in words
numpydoc_show_class_members = False
numpydoc_xref_param_type = False

html_theme = "pydata_sphinx_theme"
html_title = "scalefair"
html_copy_source = False
html_theme_options = {"show_nav_level": 2, "navigation_with_keys": False}
