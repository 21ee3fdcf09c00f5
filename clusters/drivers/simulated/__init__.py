"""A cluster that exists only here, for demos, tests and rehearsals; it can be told to fail."""
