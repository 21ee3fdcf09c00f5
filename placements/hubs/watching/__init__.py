"""The mirror of a hub: lists and watches its objects."""
