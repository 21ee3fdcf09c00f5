"""The overview: counts, attention items, headroom."""
