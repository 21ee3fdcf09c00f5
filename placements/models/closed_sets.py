"""Check constraints that limit a column to the values of an enumeration."""

from collections.abc import Iterable

from django.db.models import CheckConstraint, Q


def one_of(field: str, values: Iterable[str]) -> Q:
    """Return a check that a column holds one of these values."""
    return Q(**{f"{field}__in": [str(value) for value in values]})


def known(field: str, values: Iterable[str], name: str) -> CheckConstraint:
    return CheckConstraint(condition=one_of(field, values), name=name)
