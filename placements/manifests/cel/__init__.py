"""CEL expressions of Open Cluster Management over one cluster."""
