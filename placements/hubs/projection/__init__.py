"""The projection of a live hub: its mirror as rows of the existing tables.

See `rules/live-hub.md#projection`.
"""
