"""Check constraints that limit a column to the values of an enumeration."""

from collections.abc import Iterable

from django.db.models import CheckConstraint, Model, Q


def one_of(field: str, values: Iterable[str]) -> Q:
    return Q(**{f"{field}__in": [str(value) for value in values]})


def known(field: str, values: Iterable[str], name: str) -> CheckConstraint:
    return CheckConstraint(condition=one_of(field, values), name=name)


def values_of(model: type[Model], field: str) -> list[str]:
    """Return the values that a column of a model is limited to; none if it is not limited."""
    for constraint in model._meta.constraints:
        if isinstance(constraint, CheckConstraint) and isinstance(
            constraint.condition, Q
        ):
            match constraint.condition.children:
                case [(key, [*values])] if key == f"{field}__in":
                    return [str(value) for value in values]
    return []
