"""The attention list: root causes with titles and sections, of one hub or of all that a person may see."""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from django.contrib.auth.models import AnonymousUser, User

from fleetui.apimachinery.grouping import grouped
from fleetui.hub_scope import current_hub_id
from fleetui.permissions import may_manage_notifications
from placements.engine.problems import (
    LEVELS,
    Cause,
    Noun,
    ProblemFacts,
    ProblemLevel,
)
from placements.models import ProblemBook, ProblemKind
from placements.services.problems.book import address, open_problems
from placements.services.problems.inbox import problems_for
from placements.services.problems.parts import page
from placements.services.problems.root_causes import (
    AttentionSection,
    root_causes,
    section_of,
    title_of,
)

MOST_PROBLEMS = 5_000
"""So many problems of all hubs are read."""


@dataclass(frozen=True, slots=True)
class AttentionItem(Cause):
    """A cause with its title, the sentences below it, its section, and in a list of several hubs its hub."""

    title: str = ""
    details: str = ""
    section: AttentionSection = AttentionSection.BROKEN
    hub: str = ""

    @property
    def cluster(self) -> str:
        """The cluster that this is about; "" for anything else, and for several clusters."""
        is_one = self.key == f"{ProblemKind.CLUSTER_NOT_READY}/{self.name}"
        return self.name if is_one else ""


@dataclass(frozen=True, slots=True)
class Attention:
    """The items, advice last, and those that a person has snoozed."""

    items: list[AttentionItem]
    snoozed: list[AttentionItem] = field(default_factory=list)

    @property
    def counts(self) -> Counter[AttentionSection]:
        return Counter(item.section for item in self.items)

    def in_section(self, section: AttentionSection | None) -> list[AttentionItem]:
        return [item for item in self.items if section in (None, item.section)]


@dataclass(frozen=True, slots=True)
class Snooze:
    """Until when a cause is hidden, or, without a time, until it changes."""

    until: float | None
    mark: str

    def hides(self, cause: Cause, *, now: datetime) -> bool:
        return (
            cause.mark == self.mark
            if self.until is None
            else now.timestamp() < self.until
        )


def attention(
    user: User | None,
    *,
    snoozes: Mapping[str, Snooze],
    now: datetime,
    key: str = "",
    problems: Sequence[ProblemFacts] | None = None,
    totals: Mapping[str, Any] | None = None,
) -> Attention:
    """Return what needs attention on the hub in scope, without what this person has snoozed; two queries.

    Clusters that have the value of the label `key` in common are named by it. `problems` and `totals` are
    those of the hub, if they are known.
    """
    problems = open_problems(now=now) if problems is None else problems
    if user is None or not may_manage_notifications(user):
        problems = [
            problem
            for problem in problems
            if problem.kind != ProblemKind.CHANNEL_SILENT
        ]
    if totals is None:
        totals = _totals([current_hub_id()]).get(current_hub_id(), {})
    items = [*_items(problems, key=key), *_advice_in(totals)]
    snoozed = [
        item
        for item in items
        if (snooze := snoozes.get(item.key)) and snooze.hides(item, now=now)
    ]
    return Attention(
        _advice_last(item for item in items if item not in snoozed), snoozed
    )


def inbox_items(
    user: User | AnonymousUser, *, now: datetime, hub: str = ""
) -> Attention:
    """Return what needs attention on the hubs that a person may see, or on one of them; five queries."""
    names, rows = problems_for(user, now=now, hub=hub)
    by_hub = grouped(
        (row.hub_id, row.facts) for row in rows.order_by("pk")[:MOST_PROBLEMS]
    )
    items = [
        item
        for pk, problems in by_hub.items()
        for item in _items(problems, hub=names[pk])
    ]
    for pk, totals in _totals(names).items():
        items += _advice_in(totals, hub=names[pk])
    items.sort(key=lambda one: LEVELS.index(ProblemLevel(one.level)))
    return Attention(_advice_last(items))


def _totals(hubs: Collection[int]) -> dict[int, Mapping[str, Any]]:
    rows = ProblemBook.objects.filter(hub__in=list(hubs)).order_by("pk")
    return dict(rows.values_list("hub_id", "totals"))


def _advice_in(totals: Mapping[str, Any], *, hub: str = "") -> list[AttentionItem]:
    """Return the worst loss of the resilience report, as the last comparison stored it."""
    advice = totals.get("resilience")
    if not advice:
        return []
    path = address(page("resilience"), hub=hub)
    facts = ("resilience", ProblemLevel.OUTDATED, "", Noun.CLUSTER, "", advice["title"])
    section = AttentionSection.ADVICE
    return [AttentionItem(*facts, path, **advice, section=section, hub=hub)]


def _items(
    problems: Sequence[ProblemFacts], *, key: str = "", hub: str = ""
) -> list[AttentionItem]:
    items = []
    for cause in root_causes(problems):
        title, details = title_of(cause, key)
        effects = tuple(
            replace(effect, path=address(effect.path, hub=hub))
            for effect in cause.effects
        )
        facts = {
            **{name: getattr(cause, name) for name in Cause.__slots__},
            "path": address(cause.path, hub=hub),
            "effects": effects,
        }
        items.append(
            AttentionItem(
                **facts,
                title=title,
                details=details,
                section=section_of(cause),
                hub=hub,
            )
        )
    return items


def _advice_last(items: Iterable[AttentionItem]) -> list[AttentionItem]:
    return sorted(items, key=lambda one: one.section is AttentionSection.ADVICE)


def snoozes_from(stored: Any) -> dict[str, Snooze]:
    """Return the snoozes that a session keeps; what is not one of them is ignored."""
    entries: Collection[tuple[str, Any]] = (
        stored.items() if isinstance(stored, dict) else ()
    )
    return {
        key: Snooze(*value)
        for key, value in entries
        if isinstance(value, list) and len(value) == 2
    }
