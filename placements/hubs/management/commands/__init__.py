"""Commands about live hubs."""
