"""What speaks against a cluster, what would have to change, and what no order of picking can reach."""
