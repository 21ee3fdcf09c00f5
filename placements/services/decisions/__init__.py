"""Stored decisions: reading, explaining and comparing them."""
