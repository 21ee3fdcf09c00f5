"""Tests of the admin, as a browser gets it."""
