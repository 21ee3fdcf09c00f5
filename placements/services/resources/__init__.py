"""Hub resources and their snapshots."""
