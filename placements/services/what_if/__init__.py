"""Saved scenarios: a changed fleet and the decisions that would follow."""
