"""What cluster pages need to know about placements."""
