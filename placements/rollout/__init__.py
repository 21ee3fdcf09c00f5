"""What may happen next to carry a placement's changes to its clusters: facts in, one answer out."""
