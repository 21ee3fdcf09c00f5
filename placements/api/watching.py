"""Watching the list of a noun: `?watchable=true` for a version, `?watch=true` for what changed since."""

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from functools import cache
from typing import Any

from django.db.models import QuerySet
from drf_spectacular.utils import extend_schema_serializer, inline_serializer
from rest_framework import serializers
from rest_framework.exceptions import ValidationError
from rest_framework.response import Response
from rest_framework.serializers import Serializer

from placements.api.filters import Query, choice, query_of
from placements.api.serializers import enum
from placements.models import ChangeType, WatchedKind
from placements.services.watches.journal import RETRY_AFTER, current_sequence, held_changes

LONGEST_HOLD = 30

_WATCH = query_of(
    watchable=choice(
        ["true"], help_text="Add `resourceVersion` to the first page, from which a watch can start."
    ),
    watch=choice(
        ["true"], help_text="Respond with the `events` after `resourceVersion`, once there are some."
    ),
    resourceVersion=serializers.RegexField(
        r"^[0-9]{1,18}\Z",
        required=False,
        help_text="With `watch`: the version of the list or of the last response.",
    ),
    timeoutSeconds=serializers.IntegerField(
        required=False,
        default=20,
        min_value=0,
        max_value=LONGEST_HOLD,
        help_text="With `watch`: how long to wait for a change.",
    ),
)


def watch_query(query: Query) -> Query:
    return query_of(query, _WATCH)


@cache
def watchable_page(row: type[Serializer[Any]]) -> Any:
    """Return the serializer of one page of such rows, or of the events of a watch."""
    name = row.__name__.removesuffix("Serializer").removesuffix("Row")
    event: Any = inline_serializer(
        f"{name}Event",
        {
            "type": enum(ChangeType),
            "name": serializers.CharField(),
            "object": row(allow_null=True, help_text="The object as in the list; null if it is deleted."),
        },
    )
    fields: dict[str, serializers.Field[Any, Any, Any, Any]] = {
        "items": row(many=True),
        "next": serializers.URLField(allow_null=True, help_text="The address of the next page."),
        "resourceVersion": serializers.CharField(
            required=False, help_text="With `watchable` or `watch`: the version after this response."
        ),
        "events": type(event)(many=True, required=False, help_text="With `watch`: the changes."),
    }
    page: Any = inline_serializer(f"{name}Page", fields)
    return extend_schema_serializer(many=False)(page)


def version_before(kind: WatchedKind, params: Mapping[str, Any]) -> dict[str, str]:
    if "watchable" not in params or params.get("after"):
        return {}
    return {"resourceVersion": str(current_sequence(kind, now=datetime.now(UTC)))}


def watch_response(
    kind: WatchedKind,
    params: Mapping[str, Any],
    rows: QuerySet[Any],
    serialize: Callable[[list[Any]], list[Any]],
) -> Response:
    """Respond with the changes of the rows that a list would have: what left it counts as deleted.

    Raise ValidationError, WatchExpiredError.
    """
    if "resourceVersion" not in params:
        message = "is required with watch=true; a list with watchable=true has it"
        raise ValidationError({"resourceVersion": [message]}, code="required")
    journal, was_held = held_changes(kind, int(params["resourceVersion"]), seconds=params["timeoutSeconds"])
    changed = [one.object_id for one in journal.changes if one.type is not ChangeType.DELETED]
    objects = list(rows.filter(pk__in=changed)) if changed else []
    data = dict(zip((one.pk for one in objects), serialize(objects), strict=True))
    events = [
        {
            "type": str(one.type if one.object_id in data else ChangeType.DELETED),
            "name": one.name,
            "object": data.get(one.object_id),
        }
        for one in journal.changes
    ]
    content = {"items": [], "next": None, "resourceVersion": str(journal.sequence), "events": events}
    return Response(content, headers={} if was_held else {"Retry-After": str(RETRY_AFTER)})
