"""Tests of the rollout core: no database, no clock."""
