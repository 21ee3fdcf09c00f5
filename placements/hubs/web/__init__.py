"""Pages of live hubs."""
