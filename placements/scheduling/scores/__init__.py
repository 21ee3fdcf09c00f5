"""Scores: each ranks the clusters that are left by one measure. None knows another."""
