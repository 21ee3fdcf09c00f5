"""Decisions without Django: scheduling, advice, rollouts, selection, overrides, disruption budgets."""
