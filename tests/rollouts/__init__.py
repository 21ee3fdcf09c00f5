"""Tests of rollouts on the database: runs, calls to simulated clusters, people's hands."""
