"""Tests of the rollout core."""
