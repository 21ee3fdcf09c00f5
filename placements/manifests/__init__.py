"""The API types of placements: frozen values parsed from manifests. No Django."""
