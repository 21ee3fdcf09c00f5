"""Commands that run the whole."""
