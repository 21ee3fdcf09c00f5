"""Evictions, drains and disruption budgets."""
