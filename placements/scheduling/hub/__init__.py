"""Resources on the hub: manifests, what a placement selects of them, its snapshot (lifecycle B.2)."""
