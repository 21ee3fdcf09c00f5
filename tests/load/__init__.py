"""Measurements: how long the engine takes on large fleets. pytest does not run them."""
