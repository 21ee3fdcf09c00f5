"""Simulated clusters for demos and tests, with fault injection."""
