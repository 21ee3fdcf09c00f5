"""Schedule manifests from files without a database."""
