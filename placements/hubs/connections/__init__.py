"""Connections of live hubs."""
