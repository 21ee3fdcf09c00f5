"""Resilience reports: the loss of every cluster and every domain, for all placements."""
