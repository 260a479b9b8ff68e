"""How the pages are built: ``python -m sphinx -W -b html docs docs/_build/html``.

SCALEFAIR_GALLERY=1 also runs the examples; without it they are shown, but not run.
"""

import os
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
    "sphinx_gallery.gen_gallery",
    "docstrings",
    "results",
    "command_line",
]
exclude_patterns = ["_build", "examples", "auto_examples/*.ipynb"]
templates_path = ["_templates"]

myst_enable_extensions = ["dollarmath", "colon_fence"]
myst_heading_anchors = 4

autosummary_generate = True
autodoc_typehints = "none"  # the docstrings say it, in words
numpydoc_show_class_members = False
numpydoc_xref_param_type = False

sphinx_gallery_conf = {
    "examples_dirs": "examples",
    "gallery_dirs": "auto_examples",
    "plot_gallery": os.environ.get("SCALEFAIR_GALLERY", "0") == "1",
    "write_computation_times": False,
    "download_all_examples": False,
    "show_memory": False,
    "min_reported_time": 1,
    "abort_on_example_error": True,
    "remove_config_comments": True,
    "within_subsection_order": "FileNameSortKey",
}

html_theme = "pydata_sphinx_theme"
html_title = "scalefair"
html_copy_source = False
html_theme_options = {"show_nav_level": 2, "navigation_with_keys": False}
