"""What the command line offers about placements."""
