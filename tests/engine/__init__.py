"""Tests of the plain cores."""
