"""What the command line offers about member clusters."""
