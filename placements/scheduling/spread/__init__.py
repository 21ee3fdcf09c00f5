"""The spread strategies, one module each; none knows another."""
