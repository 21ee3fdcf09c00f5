"""Events as rows of a list: actor, action, object and changes."""

from collections.abc import Iterable
from dataclasses import dataclass

from django.urls import reverse

from fleetui.models import Event
from placements.explain.diff import FieldDifference, differences
from placements.models import Resource

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
class HappeningRow:
    """One line; `changes` are the first few of what differs between before and after."""

    event: Event
    url: str
    subject: str
    changes: list[FieldDifference]
    more_changes: int
    decision: str
    facts: str


def event_rows(events: Iterable[Event]) -> list[HappeningRow]:
    rows = []
    for event in events:
        changes = differences(event.before, event.after) if event.before and event.after else []
        facts = event.after or {}
        rows.append(
            HappeningRow(
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
        return ", ".join([*parts, "fulfilled" if facts.get("fulfilled") else "not fulfilled"])
    if event.kind not in ("rollout", "placement", "staged-run") and "verdict" not in facts:
        return ""
    found = next((facts[key] for key in _DETAIL_KEYS if key in facts), "")
    return f"r{found}" if event.verb == "rolled back" else str(found)


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
