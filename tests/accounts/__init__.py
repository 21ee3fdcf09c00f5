"""Tests of logging in."""
