"""Notifications of problems: the problems, the rules and channels, and the sending."""
