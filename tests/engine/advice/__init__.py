"""Tests of verified advice."""
