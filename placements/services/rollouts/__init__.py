"""Rollouts, rolling and staged: controllers, cluster calls, actions of users, reads."""
