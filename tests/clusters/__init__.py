"""Tests of the member clusters: rows, operations, observation."""
