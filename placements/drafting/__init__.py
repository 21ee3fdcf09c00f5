"""Drafts of placements: the form over a manifest's text, what a half-typed one says, recipes, rebasing."""
