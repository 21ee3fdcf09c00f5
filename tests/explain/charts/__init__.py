"""Charts: each figure valid by Plotly's own rules, and true to the rows of its table."""
