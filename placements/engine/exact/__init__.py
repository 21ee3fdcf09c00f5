"""Exact search beside the greedy scheduler: what is possible, what conflicts, what would help."""
