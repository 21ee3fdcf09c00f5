"""Tests of the rules of the checks."""
