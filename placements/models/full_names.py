"""The name of a namespaced object with its namespace, as a column that the database derives."""

from typing import Any

from django.db.models import Case, CharField, F, GeneratedField, Value, When
from django.db.models.functions import Concat

LONGEST_NAMESPACE = 63


def full_name_column(longest_name: int) -> Any:
    """Return a column with `fleetui.apimachinery.metadata.full_name` of the columns namespace and name.

    What refers to an object by name refers to this column, so that `a` and `ns/a` are never mixed up.
    """
    with_namespace = Concat(F("namespace"), Value("/"), F("name"))
    return GeneratedField(
        expression=Case(When(namespace="", then=F("name")), default=with_namespace),
        output_field=CharField(max_length=LONGEST_NAMESPACE + 1 + longest_name),
        db_persist=True,
    )
