"""REST of live hubs."""
