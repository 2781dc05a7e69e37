"""
The documentation's settings. Build it with ``make docs``.

Pages are Markdown that reads well without the site. Those in ``reference`` are made of the code by
``_ext/custody_reference.py`` and are in Git, too.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

DOCS = Path(__file__).resolve().parent
os.environ["AIRFLOW_HOME"] = str(DOCS.parent / ".docs" / "airflow")
sys.path[:0] = [str(DOCS.parent), str(DOCS / "_ext")]

from airflow_custody import __version__  # noqa: E402

project = "airflow-provider-custody"
author = copyright = "the authors of airflow-provider-custody"
version = release = __version__

extensions = ["myst_parser", "sphinx_copybutton", "custody_reference"]
exclude_patterns = ["_ext"]
nitpicky = True
# Quotation marks in texts are those of JSON and of shells.
smartquotes = False
# A link may lead to a heading, as on a Git host.
myst_heading_anchors = 3

# The site has all that this theme needs: pages and search work from disk, and wide tables scroll on a phone.
html_theme = "pydata_sphinx_theme"
html_title = "Custody for Airflow"
html_static_path = ["_static"]
html_css_files = ["custom.css"]
html_copy_source = html_show_sourcelink = html_show_copyright = False
html_domain_indices = False
# Search would fetch each page that it finds, which a browser refuses from disk.
html_show_search_summary = False
html_context = {"default_mode": "auto"}
html_sidebars = {"**": ["globaltoc.html"]}
html_theme_options = {
    "navbar_center": [],
    "show_prev_next": False,
    "footer_start": [],
    "footer_end": [],
    "secondary_sidebar_items": ["page-toc"],
}
