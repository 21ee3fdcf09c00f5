"""Rollouts: which updates may start now on the clusters of a placement, rolling or staged."""
