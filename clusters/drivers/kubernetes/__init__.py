"""Real Kubernetes clusters: plain Python, without Django, YAML or a database."""
