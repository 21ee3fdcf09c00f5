"""Writes to a live hub: bodies, one request with its record, answers, identity (`spec/live-hub.md` 13)."""
