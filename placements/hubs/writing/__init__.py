"""What people may have written to a live hub: catalogue, plans, previews.

See `rules/live-hub.md#actions-on-a-hub`.
"""
