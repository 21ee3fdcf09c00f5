"""Overrides and their snapshots."""
