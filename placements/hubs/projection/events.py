"""Events about what changed on a live hub: manifests with before and after, conditions (10.1)."""

from collections.abc import Iterable, Mapping
from typing import Any

from fleetui.audit import AuditEvent, record_of_others
from placements.hubs.projection.documents import HubDocument, HubMoment

CHANGED = "changed on the hub"
REPORTED = "reported"
APPROVED = "approved"
HUB = "hub"
"""Who changed something on a hub whose managed fields do not have it."""
_LONGEST_MESSAGE = 4096
Conditions = Iterable[Mapping[str, Any]]


class HubEvents:
    """The events of one batch, each by the manager that wrote the part; all are recorded at once."""

    def __init__(self, moment: HubMoment) -> None:
        self._moment = moment
        self._events: list[tuple[AuditEvent, str]] = []

    def changed(
        self,
        kind: str,
        document: HubDocument,
        before: Mapping[str, Any],
        after: Mapping[str, Any],
    ) -> None:
        if before == after:
            return
        part = "spec" if before.get("spec") != after.get("spec") else "metadata"
        event = AuditEvent(
            CHANGED,
            kind,
            document.full_name,
            document.revision,
            before=before,
            after=after,
        )
        self._events.append((event, document.manager(part)))

    def reported(
        self,
        kind: str,
        document: HubDocument,
        before: Conditions,
        after: Conditions,
    ) -> None:
        """Add an event with the conditions whose status, reason or message differ."""
        old = _by_type(before, kind=document.row.kind)
        new = _by_type(after, kind=document.row.kind)
        names = [one for one in {**old, **new} if old.get(one) != new.get(one)]
        if names:
            values = [
                {one: facts.get(one, {}) for one in names} for facts in (old, new)
            ]
            event = AuditEvent(
                REPORTED, kind, document.full_name, before=values[0], after=values[1]
            )
            self._events.append((event, document.manager("status")))

    def add(self, event: AuditEvent, *, by: str) -> None:
        self._events.append((event, by))

    def record(self) -> None:
        """Write the events, unless rows are only made again."""
        if self._moment.has_events:
            named = [(event, manager or HUB) for event, manager in self._events]
            record_of_others(named, now=self._moment.now)


def _by_type(conditions: Conditions, *, kind: str) -> dict[str, dict[str, str]]:
    """Return the conditions for an event by type without the kind of the object."""
    keys = ("status", "reason", "message")
    return {
        str(one.get("type")).removeprefix(kind): {
            key: str(one.get(key) or "")[:_LONGEST_MESSAGE] for key in keys
        }
        for one in conditions
    }
