"""Closed sets in constraints."""

from collections.abc import Iterable

from django.db.models import Q


def one_of(field: str, values: Iterable[str]) -> Q:
    """Say that a column holds one of these values."""
    return Q(**{f"{field}__in": [str(value) for value in values]})
