"""Filters: each rules clusters out for one reason. None knows another."""
