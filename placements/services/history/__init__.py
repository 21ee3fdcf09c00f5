"""The history of a placement: its revisions and decisions, comparing two of them, restoring a policy."""
