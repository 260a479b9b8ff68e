"""How the pages are built: ``python -m sphinx -W -b html docs docs/_build/html``.

The pages show what their code prints and draws; tests/docs/test_docs_code.py compares, and
``python -m tests.docs.write`` writes it. The build runs the examples, on shorter tables with
``SCALEFAIR_QUICK=1``. Nothing is fetched from the internet.
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
    "numpydoc",
    "myst_parser",
    "sphinx_gallery.gen_gallery",
    "docstrings",
    "results",
    "paper",
    "command_line",
    "mathml",
]
exclude_patterns = ["_build", "examples"]
templates_path = ["_templates"]
nitpicky = True
toc_object_entries_show_parents = "hide"  # the column of contents is narrow

sphinx_gallery_conf = {
    "examples_dirs": "examples",
    "gallery_dirs": "auto_examples",
    "within_subsection_order": "FileNameSortKey",
    "doc_module": ("scalefair",),
    "backreferences_dir": "auto_examples/backreferences",
    "download_all_examples": False,
    "show_signature": False,
    "write_computation_times": False,  # a page that loads scripts from elsewhere
    "abort_on_example_error": True,
    "remove_config_comments": True,
}

myst_enable_extensions = ["dollarmath", "colon_fence"]
myst_heading_anchors = 4

autosummary_generate = True
autodoc_typehints = "none"  # the docstrings say it, in words
numpydoc_show_class_members = False
numpydoc_xref_param_type = False

html_theme = "pydata_sphinx_theme"
html_title = "scalefair"
html_math_renderer = "mathml"
html_copy_source = False
html_static_path = ["_static"]
html_css_files = ["scalefair.css"]
html_sidebars = {"index": [], "faq": [], "glossary": []}
html_theme_options = {
    "show_nav_level": 2,
    "navigation_with_keys": False,
    "show_toc_level": 2,
    "secondary_sidebar_items": ["page-toc"],
    "footer_start": ["copyright"],
    "footer_end": [],
    "show_prev_next": True,
    "use_edit_page_button": False,
}
