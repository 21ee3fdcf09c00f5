"""Notifications of problems: which there are, who is to know, and sending it."""
