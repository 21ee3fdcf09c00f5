"""Sphinx builds the documentation from these settings: `make docs`."""

project = "FleetUI"
extensions = ["myst_parser"]
myst_heading_anchors = 3
exclude_patterns = ["examples"]
nitpicky = True

html_theme = "furo"
html_title = "FleetUI"
html_show_sphinx = False
html_show_copyright = False
html_copy_source = False
html_show_sourcelink = False
