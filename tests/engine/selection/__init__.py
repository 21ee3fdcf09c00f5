"""The hub's resources: manifests, selection, snapshots."""
