"""Words about live hubs."""
