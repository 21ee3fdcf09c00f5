"""What the command line offers about live hubs."""
