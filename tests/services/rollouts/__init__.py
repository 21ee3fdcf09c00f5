"""Tests of rollouts on the database: runs, calls to simulated clusters, actions of users."""
