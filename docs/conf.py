"""Sphinx settings; ``make docs`` builds the pages, and every warning is an error."""

import os
import sys
from pathlib import Path

from torch_gckm import __version__

sys.path.insert(0, str(Path(__file__).parent / "extensions"))
# Notebooks call ``gckm`` as a reader would, with one thread per process and without widgets.
os.environ["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
os.environ |= {"OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore:IProgress not found"}

project = "torch_gckm"
author = "the torch_gckm authors"
release = version = __version__

extensions = [
    "myst_nb",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx.ext.viewcode",
    "sphinx_copybutton",
    "sphinx_design",
    # Of this project: formulas, names of attributes, pages that are made, and a look at all pages in the end.
    "mathml",
    "underscores",
    "gallery",
    "command_line",
    "offline",
]
exclude_patterns = ["_build", "extensions"]
html_show_copyright = False
html_theme = "furo"
html_title = f"torch_gckm {release}"
html_static_path = ["static"]
html_css_files = ["pages.css"]
html_math_renderer = "mathml"

myst_enable_extensions = ["dollarmath", "amsmath", "colon_fence"]
myst_heading_anchors = 3
nb_execution_mode = "force"
nb_execution_timeout = 120
nb_execution_raise_on_error = True
copybutton_exclude = ".linenos, .gp, .go"

autodoc_member_order = "bysource"
autodoc_typehints = "description"
autodoc_typehints_description_target = "documented"
autodoc_preserve_defaults = True
napoleon_google_docstring = True
napoleon_numpy_docstring = False
napoleon_use_ivar = True
napoleon_custom_sections = [("Shapes", "notes_style")]
