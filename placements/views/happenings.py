"""Events as lines of a list: who did what to which object, and what changed."""

from collections.abc import Iterable
from dataclasses import dataclass

from django.urls import reverse

from fleetui.models import Event
from placements.explain.diffs import Difference, differences

_CHANGES_SHOWN = 6
_OBJECTS = {
    "cluster": "pages:cluster",
    "placement": "pages:placement",
    "staged-run": "pages:staged-run",
    "staged-strategy": "pages:staged-strategy",
}
_TOLD = ("reason", "because", "cluster", "to", "request", "stage")
"""What an event has to say beside its verb, the first that it has."""


@dataclass(frozen=True, slots=True)
class HappeningRow:
    """One line; `changes` are the first few of what differs between before and after."""

    event: Event
    url: str
    subject: str
    changes: list[Difference]
    more_changes: int
    decision: str
    facts: str


def happening_rows(events: Iterable[Event]) -> list[HappeningRow]:
    """Give the lines of these events."""
    return list(map(_row, events))


def _row(event: Event) -> HappeningRow:
    changes = differences(event.before, event.after) if event.before and event.after else []
    facts = event.after or {}
    is_decision = "decision" in facts
    return HappeningRow(
        event,
        url_of(event.kind, event.name),
        subject_of(event.kind, event.name),
        changes[:_CHANGES_SHOWN],
        max(0, len(changes) - _CHANGES_SHOWN),
        str(facts["decision"]) if is_decision else "",
        _decided(facts) if is_decision else _told(event, facts),
    )


def _told(event: Event, facts: dict[str, object]) -> str:
    if event.kind not in ("rollout", "placement", "staged-run") and "verdict" not in facts:
        return ""
    found = next((facts[key] for key in _TOLD if key in facts), "")
    return f"r{found}" if event.verb == "rolled back" else str(found)


def _decided(facts: dict[str, object]) -> str:
    counts = {
        "picked": facts.get("picked"),
        "kept": facts.get("kept"),
        "unscheduled": facts.get("unscheduled"),
    }
    told = [f"{count:,} {word}" for word, count in counts.items() if count]
    verdict = "fulfilled" if facts.get("fulfilled") else "not fulfilled"
    return ", ".join([*told, verdict])


def url_of(kind: str, name: str) -> str:
    """Give the address of an object, which may be gone by now."""
    if kind == "resource":
        group, sort, namespace, own = name.split("/", 3)
        return reverse("pages:resource", args=[group or "_", sort, namespace or "_", own])
    if kind == "rollout":
        placement, _, number = name.rpartition("/")
        return reverse("pages:rollout", args=[placement, number])
    return reverse(_OBJECTS[kind], args=[name]) if kind in _OBJECTS else ""


def subject_of(kind: str, name: str) -> str:
    """Name an object as people do."""
    if kind != "resource":
        return name
    _, sort, namespace, own = name.split("/", 3)
    return f"{sort} {namespace}/{own}" if namespace else f"{sort} {own}"
