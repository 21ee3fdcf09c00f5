"""The project: settings, addresses and servers. Wiring only, nothing about fleets."""
