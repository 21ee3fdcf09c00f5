"""Verified changes of a policy or cluster that would alter an outcome."""
