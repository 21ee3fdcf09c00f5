"""Tests of live hubs: the connection, the mirror, and the substitutes of a hub."""
