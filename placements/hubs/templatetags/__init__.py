"""Template tags and filters of live hubs."""
