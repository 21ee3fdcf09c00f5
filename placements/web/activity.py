"""What happened, newest first: events of objects, and the access log."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import groupby

from django.core.exceptions import PermissionDenied
from django.db.models import QuerySet
from django.http import (
    HttpRequest,
    HttpResponse,
    HttpResponseBase,
    StreamingHttpResponse,
)
from django.shortcuts import get_object_or_404
from django.urls import reverse
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe

from fleetui.access.audit import VERBS, detail_words, json_lines, lines_matching
from fleetui.access.models import AccessEvent
from fleetui.apimachinery.yaml import dump_yaml
from fleetui.htmx import render_page
from fleetui.middleware import costly
from fleetui.models import AuditEventType, Event
from fleetui.permissions import for_readers, may_view_access_log
from placements.explain.diff import (
    FieldDifference,
    Piece,
    differences,
    document_diff,
)
from placements.models import Placement, Resource
from placements.services.filters import EVENT_KINDS, LIST_FILTERS, events_matching
from placements.services.history.queries import revisions_of
from placements.templatetags.fleet import plain
from placements.web.filter_bar import Facet, filter_bar, plain_choices, read_filters
from placements.web.request import page_from, pager_of

_EVERY_LINE = 1_000_000
_CHANGES_SHOWN = 6
_OBJECTS = {
    "cluster": "web:cluster",
    "placement": "web:placement",
    "staged-run": "web:staged-run",
    "staged-strategy": "web:staged-strategy",
}
_DETAIL_KEYS = ("reason", "because", "cluster", "to", "request", "stage")
"""Keys of `after` with a detail to show; the first present one counts."""


@dataclass(frozen=True, slots=True)
class EventRow:
    """One line; `changes` are the first few of what differs between before and after."""

    event: Event
    url: str
    subject: str
    changes: list[FieldDifference]
    more_changes: int
    decision: str
    facts: str


def event_rows(events: Iterable[Event]) -> list[EventRow]:
    rows = []
    for event in events:
        changes = (
            differences(event.before, event.after)
            if event.before and event.after
            else []
        )
        facts = event.after or {}
        rows.append(
            EventRow(
                event,
                url_of(event.kind, event.name),
                object_label(event.kind, event.name),
                changes[:_CHANGES_SHOWN],
                max(0, len(changes) - _CHANGES_SHOWN),
                str(facts.get("decision", "")),
                _detail(event, facts),
            )
        )
    return rows


def _detail(event: Event, facts: dict[str, object]) -> str:
    if "decision" in facts:
        counts = {
            "selected": facts.get("picked"),
            "kept": facts.get("kept"),
            "deselected": facts.get("unscheduled"),
            "evicted": facts.get("evicted"),
        }
        parts = [f"{count:,} {word}" for word, count in counts.items() if count]
        return ", ".join(
            [*parts, "fulfilled" if facts.get("fulfilled") else "not fulfilled"]
        )
    if (
        event.kind not in ("rollout", "placement", "staged-run")
        and "verdict" not in facts
    ):
        return ""
    return str(next((facts[key] for key in _DETAIL_KEYS if key in facts), ""))


def url_of(kind: str, name: str) -> str:
    """Return the address of an object; the object may have been deleted."""
    if kind == "resource":
        group, sort, namespace, own = name.split("/", 3)
        return reverse("web:resource", args=[group or "_", sort, namespace or "_", own])
    if kind == "rollout":
        placement, _, number = name.rpartition("/")
        return reverse("web:rollout", args=[placement, number])
    return reverse(_OBJECTS[kind], args=[name]) if kind in _OBJECTS else ""


def resource_url(one: Resource) -> str:
    return url_of("resource", "/".join((one.group, one.kind, one.namespace, one.name)))


def object_label(kind: str, name: str) -> str:
    if kind != "resource":
        return name
    _, sort, namespace, own = name.split("/", 3)
    return f"{sort} {namespace}/{own}" if namespace else f"{sort} {own}"


@dataclass(frozen=True, slots=True)
class ActivityRow:
    """Repeated events as one line: the newest, how many there are, and since when."""

    newest: EventRow
    count: int
    since: datetime

    @property
    def reason(self) -> str:
        """Return the reason as Kubernetes writes it: "PlacementChanged"."""
        event = self.newest.event
        words = f"{event.kind} {event.verb}".replace("-", " ").split()
        return "".join(word[:1].upper() + word[1:] for word in words)


def grouped(rows: Sequence[EventRow]) -> list[ActivityRow]:
    """Group events without changes that follow each other with the same reason, object, user and message."""

    def key(row: EventRow) -> tuple[object, ...]:
        event = row.event
        changed = event.pk if row.changes or row.decision else 0
        return event.kind, event.verb, event.name, event.actor_name, row.facts, changed

    several = (list(group) for _, group in groupby(rows, key=key))
    return [ActivityRow(one[0], len(one), one[-1].event.at) for one in several]


@for_readers
@require_safe
def activity(request: HttpRequest) -> HttpResponse:
    filters = read_filters(
        request, "events", type=list(AuditEventType), kind=EVENT_KINDS
    )
    # Only these filters have an index; with another one the database would read every event to count them.
    is_indexed = not any(
        value for key, value in filters.items() if key not in ("type", "kind")
    )
    rows = events_matching(
        part=filters.pop("q"), event_type=filters.pop("type"), **filters
    )
    page = page_from(request, rows, order="-at", unique="id")
    count = rows.count() if is_indexed else None
    facets = [
        Facet("type", "Type", plain_choices(AuditEventType), is_row=True),
        Facet(
            "kind",
            "Object",
            [(kind, plain(kind).capitalize(), None) for kind in EVENT_KINDS],
        ),
    ]
    return render_page(
        request,
        "activity/list.html",
        {
            "events": grouped(event_rows(page.rows)),
            "pager": pager_of(
                request, len(page.rows), count, before=page.before, after=page.after
            ),
            "bar": filter_bar(
                request,
                LIST_FILTERS["events"],
                facets,
                type=list(AuditEventType),
                kind=EVENT_KINDS,
            ),
        },
        fragment="activity/_list.html",
    )


@for_readers
@require_safe
def event(request: HttpRequest, number: int) -> HttpResponse:
    """Show one event with what was there before and after, in full; what a Secret holds is hidden."""
    event = get_object_or_404(Event, pk=number)
    [row] = event_rows([event])
    sides = {"Before": event.before, "After": event.after}
    texts = {title: dump_yaml(side) for title, side in sides.items() if side}
    lines: list[Piece] | None = []
    if len(texts) == 2:
        lines = document_diff(event.before, event.after, context=_EVERY_LINE)
    revision = event.revision
    if event.kind == "placement":
        # The one that it made or met; None where that is not recorded.
        placement = Placement.objects.filter(full_name=event.name).first()
        revisions = revisions_of(placement) if placement else []
        revision = next((one.number for one in revisions if one.at <= event.at), None)
    return render_page(
        request,
        "activity/event.html",
        {
            "event": event,
            "revision": revision,
            "row": row,
            "lines": lines,
            "texts": [] if lines else list(texts.items()),
        },
        fragment="activity/event.html",
    )


def _matching_lines(request: HttpRequest) -> QuerySet[AccessEvent]:
    """Return the lines that match the filters. Raise PermissionDenied for users who may not read the log."""
    if not may_view_access_log(request.user):
        raise PermissionDenied("You don't have permission to view the access log.")
    filters = read_filters(request, "access-log", verb=VERBS)
    return lines_matching(text=filters.pop("q"), **filters)


@for_readers
@never_cache
@require_safe
def access_log(request: HttpRequest) -> HttpResponse:
    """List the lines that match, newest first, a page at a time."""
    page = page_from(request, _matching_lines(request), order="-at", unique="id")
    return render_page(
        request,
        "access/log.html",
        {
            "lines": [(line, detail_words(line.details)) for line in page.rows],
            "after": page.after,
            "bar": filter_bar(
                request,
                LIST_FILTERS["access-log"],
                [
                    Facet(
                        "verb",
                        "Action",
                        [(verb, verb.capitalize(), None) for verb in VERBS],
                    )
                ],
                verb=VERBS,
            ),
        },
        fragment="access/_log.html",
    )


@for_readers
@costly
@never_cache
@require_safe
def export_access_log(request: HttpRequest) -> HttpResponseBase:
    """Download the lines that match as JSON, one a line, oldest first."""
    return StreamingHttpResponse(
        json_lines(_matching_lines(request)),
        content_type="application/jsonl; charset=utf-8",
        headers={"Content-Disposition": 'attachment; filename="access-log.jsonl"'},
    )
