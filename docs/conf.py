"""
The documentation's settings. Build it with ``make docs``.

Pages that people write are Markdown, beside this file. The pages in ``reference`` and ``examples`` are made of the
code by the extension ``custody_docs`` and are not in Git: what is wrong there is wrong in a docstring. A page is in a
``toctree`` of another page, or the build fails. A snippet is a ``literalinclude`` between the marks ``[START name]``
and ``[END name]`` of a file that tests run; the role ``source`` links a file of the project, or a test in it.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

DOCS = Path(__file__).resolve().parent
# Some defaults come from Airflow's configuration: not from that of whoever builds this.
os.environ["AIRFLOW_HOME"] = str(DOCS.parent / ".docs" / "airflow")
sys.path[:0] = [str(DOCS.parent), str(DOCS / "_ext")]

from airflow_custody import __version__  # noqa: E402

project = "airflow-provider-custody"
author = copyright = "the authors of airflow-provider-custody"
version = release = __version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx_copybutton", "custody_docs"]
# Files that begin with an underscore are parts of pages.
exclude_patterns = ["_ext", "**/_*.md", "**/_*.rst"]
# Nothing is fetched when this is built, so no inventory of other projects is: their types are shown without a link.
nitpicky = True
rst_prolog = ".. |published| replace:: :ref:`published <provenance>`\n"

# Quotation marks in texts are those of JSON and of shells.
smartquotes = False

autodoc_typehints = "none"
add_module_names = False
toc_object_entries_show_parents = "hide"

myst_enable_extensions = ["colon_fence", "deflist", "substitution"]
myst_substitutions = {"version": __version__}
myst_heading_anchors = 3

# Where the project's files are on the web, such as "https://git.example.com/custody/blob/main"; empty: the site has
# copies of those that it links to.
source_url = ""

# pydata-sphinx-theme: the site has all that it needs, pages and search work from disk, it is dark where the system is,
# a wide table scrolls within itself on a phone, and those who maintain it are those of NumPy, pandas and Jupyter.
html_theme = "pydata_sphinx_theme"
html_title = "Custody for Airflow"
html_static_path = ["_static"]
html_css_files = ["custom.css"]
html_copy_source = False
html_show_sourcelink = False
html_show_copyright = False
html_last_updated_fmt = None
html_domain_indices = False
# Search would fetch each page it finds, which a browser refuses from disk.
html_show_search_summary = False
html_context = {"default_mode": "auto"}
# A page without others below it has nothing to list beside it.
html_sidebars: dict[str, list[str]] = {"glossary": [], "index": []}
html_theme_options = {
    "show_prev_next": False,
    "show_nav_level": 1,
    "navigation_depth": 3,
    "footer_start": [],
    "footer_end": [],
    "secondary_sidebar_items": ["page-toc"],
}
