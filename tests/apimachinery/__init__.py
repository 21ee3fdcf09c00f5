"""Tests of text, fields and parsing."""
