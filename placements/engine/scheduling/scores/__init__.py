"""Scores: one module each; each ranks clusters by one measure."""
