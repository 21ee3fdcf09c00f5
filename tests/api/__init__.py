"""Tests of the REST API, as a program meets it."""
