"""Writes to a live hub: bodies, requests with their records, identity (`rules/live-hub.md#sending`)."""
