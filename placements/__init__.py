"""Placing resources on member clusters, and rolling them out."""
