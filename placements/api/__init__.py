"""The REST API under `/api/v1/`; it calls the same operations and queries as the pages."""
