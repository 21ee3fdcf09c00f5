"""Who may do what, and who did: API tokens, service accounts, grants of teams, and the access log."""
