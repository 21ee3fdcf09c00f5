"""Watching a collection: what changed in it since a version, by long polling."""
