"""Tests of live hubs: the connection, the mirror, and what stands in for a hub."""
