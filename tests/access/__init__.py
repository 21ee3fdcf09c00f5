"""Tests of sentences and charts."""
