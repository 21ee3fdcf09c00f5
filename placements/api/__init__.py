"""The door for programs: REST under `/api/v1/`, as thin as the pages."""
