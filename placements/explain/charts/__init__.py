"""Charts of decisions and rollouts; only these modules import plotly.

Each chart is a sentence, a figure and a table of the same rows. Colours are names of the
stylesheet's tokens, which the script of the page replaces for light and for dark.
"""
