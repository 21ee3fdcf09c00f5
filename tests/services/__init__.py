"""Tests of what lies around the cores: documents, operations, explanations."""
