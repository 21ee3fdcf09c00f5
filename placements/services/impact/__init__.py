"""What the difference of two revisions of manifests does to a fleet; needs no database."""
