"""Prepared fleets and placements that can be loaded and removed."""
