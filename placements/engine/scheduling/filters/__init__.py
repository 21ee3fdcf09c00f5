"""Filters: one module each; each excludes clusters for one reason."""
