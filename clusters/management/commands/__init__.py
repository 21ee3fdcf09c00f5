"""One module for each command; Django finds it by its name."""
