"""Tests of exact search."""
