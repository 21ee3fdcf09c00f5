"""The placement editor: drafts, the form over a manifest's text, previews, merging with what was saved."""
