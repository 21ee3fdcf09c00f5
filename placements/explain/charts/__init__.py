"""Charts of decisions and rollouts: functions of the record alone, the only importers of plotly.

Each chart is a sentence, a figure and a table of the same rows (`ui.md` 4.5). Colours are the names of the
stylesheet's tokens (`var(--ok)`); the page's script puts their values in, for light and for dark. Figures are
made of bars, scatters and heatmaps only.
"""
