"""Carrying decisions out: looking at a run, calling clusters, and people's hands."""
