"""What a person should act on, in all hubs that they may see (`spec/live-hub.md` 14).

One query for each kind, however many hubs and rows there are; the roles on each hub are part of it.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any

from django.contrib.auth.models import AnonymousUser, User
from django.db.models import Case, Count, Exists, F, OuterRef, Q, QuerySet, Subquery, Value, When, Window
from django.db.models.functions import Coalesce

from clusters.credentials import NOTICE_DAYS, Credential, expiry_notice
from clusters.hubs.queries import across_hubs, hubs_with_role, not_live, state_of
from clusters.models import ClusterCredential, Hub, HubCredential
from fleetui.hub_scope import LOCAL_HUB, LOCAL_HUB_NAME
from fleetui.permissions import Role
from placements.engine.disruption import EvictionReason, Invalid, NotExecuted
from placements.engine.rollout.actions import RunPhase
from placements.engine.rollout.staged_run import RunStatus
from placements.engine.rollout.state import Phase
from placements.explain.hubs import STATES
from placements.explain.inbox import KINDS, message_of
from placements.explain.staged_updates import eviction_sentence
from placements.models import (
    UNFULFILLED,
    WAITS_FOR_APPROVAL,
    ApprovalRequest,
    Binding,
    Eviction,
    HubDecision,
    Placement,
    Rollout,
    StagedRun,
)
from placements.services.hubs.queries import verdicts
from placements.services.rollout_state import WAITING, orphans_to_decide, prunes_to_decide

MOST = 200
RECENT = timedelta(days=7)
"""So long an eviction that was not executed is listed: a live hub never deletes one."""


class InboxKind(StrEnum):
    """What an item is about, in the order of the page."""

    APPROVAL = "approval"
    DISAGREEMENT = "disagreement"
    UNFULFILLED = "unfulfilled"
    ROLLOUT = "rollout"
    REMOVAL = "removal"
    EVICTION = "eviction"
    DIFFERENCE = "difference"
    HUB = "hub"
    CREDENTIALS = "credentials"


@dataclass(frozen=True, slots=True)
class InboxItem:
    """Something to act on; `hub` is the name of its hub, `name` that of the object that `kind` implies.

    `facts`: `page` is the noun of the object, and what its sentence needs.
    """

    kind: InboxKind
    hub: str
    name: str
    at: datetime | None
    facts: Mapping[str, Any]

    @property
    def level(self) -> str:
        return str(self.facts.get("level") or KINDS[self.kind][0])

    @property
    def message(self) -> str:
        return message_of(self.kind, self.facts)


@dataclass(frozen=True, slots=True)
class InboxGroup:
    """The items of one kind, at most `MOST`, and how many there are."""

    kind: InboxKind
    items: tuple[InboxItem, ...]
    count: int

    @property
    def title(self) -> str:
        return KINDS[self.kind][1]


@dataclass(frozen=True, slots=True)
class Reader:
    """The hubs that a person may see by their keys, those that they administer, and the time."""

    hubs: Mapping[int, Hub]
    administered: frozenset[int]
    now: datetime

    def name_of(self, hub: int) -> str:
        return LOCAL_HUB_NAME if hub == LOCAL_HUB else self.hubs[hub].name


def reader_of(user: User | AnonymousUser, *, now: datetime, hub: str = "") -> Reader:
    """Return what a person may see, of one hub if it is named; two queries."""
    hubs = hubs_with_role(user)
    hubs = hubs.filter(name=hub) if hub else hubs
    administered = hubs_with_role(user, Role.CLUSTER_ADMINISTRATOR).values_list("pk", flat=True)
    return Reader({one.pk: one for one in hubs.order_by("name")}, frozenset(administered), now)


def inbox(reader: Reader, *, kinds: Collection[InboxKind] = tuple(InboxKind)) -> list[InboxGroup]:
    with across_hubs():
        groups = [(kind, *_SOURCES[kind](reader)) for kind in InboxKind if kind in kinds]
    return [InboxGroup(kind, tuple(items[:MOST]), count) for kind, items, count in groups]


def inbox_count(user: User | AnonymousUser, *, now: datetime) -> dict[str, QuerySet[Any]]:
    """Return the rows of what an inbox counts, for one query of the caller; they are not evaluated here.

    Drifted objects and credentials are listed and not counted: counting them reads every binding.
    """
    with across_hubs():
        visible = hubs_with_role(user).values("pk")
        sources = {"approval": approvals(), "disagreement": disputed(), "unfulfilled": unfulfilled()}
        sources |= {"run": staged_runs(), "rollout": troubled_rollouts(), "eviction": evictions(now=now)}
        sources |= {"orphan": orphans_to_decide(), "prune": prunes_to_decide()}
        by_name: dict[str, QuerySet[Any]] = {
            name: rows.filter(hub__in=visible) for name, rows in sources.items()
        }
        by_name["hub"] = Hub.objects.filter(not_live(now=now), pk__in=visible)
    return by_name


# --- what is listed; to be called in across_hubs() ---


def approvals() -> QuerySet[ApprovalRequest]:
    return ApprovalRequest.objects.filter(WAITS_FOR_APPROVAL)


def disputed() -> QuerySet[HubDecision]:
    is_open = Q(confirmed_at__isnull=False) | Q(hub_behind=True)
    return verdicts().filter(is_open)


def unfulfilled() -> QuerySet[Placement]:
    return Placement.objects.filter(UNFULFILLED)


def staged_runs() -> QuerySet[StagedRun]:
    """Return runs that are stuck, stopped or retry clusters, and those that failed until a newer one."""
    newer = StagedRun.objects.filter(placement=OuterRef("placement"), pk__gt=OuterRef("pk"))
    has_failed = Q(~Exists(newer), status=RunStatus.FAILED, placement__isnull=False)
    is_held = Q(ended_at=None, status__in=(RunStatus.STUCK, RunStatus.STOPPED))
    is_retrying = Q(Exists(_failed()), status=RunStatus.PROGRESSING, placement__paused_since=None)
    return StagedRun.objects.filter(has_failed | is_held | is_retrying)


def troubled_rollouts() -> QuerySet[Rollout]:
    """Return the rollouts in progress that are stalled or failed on clusters, apart from paused ones.

    Of completed ones the latest of its placement counts, while a cluster of it fails.
    """
    newer = Rollout.objects.filter(placement=OuterRef("placement"), number__gt=OuterRef("number"))
    is_last = Q(~Exists(newer), state=Rollout.State.FINISHED)
    fails = Q(Exists(_failed()))
    rows = Rollout.objects.filter(placement__isnull=False, placement__paused_since=None)
    return rows.filter(
        Q(state=Rollout.State.RUNNING) & (Q(verdict=RunPhase.HALTED) | fails) | is_last & fails
    )


def _failed() -> QuerySet[Binding]:
    """Return the clusters on which a rollout or run failed and is tried again.

    What waits for the decision of a person is listed as that.
    """
    phases = (Phase.FAILED, Phase.REMOVE_FAILED)
    rows = Binding.objects.filter(placement=OuterRef("placement"), phase__in=phases)
    return rows.exclude(removal_check=WAITING).order_by()


def evictions(*, now: datetime) -> QuerySet[Eviction]:
    """Return the evictions of the last days that were not executed, unless a later one was requested."""
    later = Eviction.objects.filter(
        hub=OuterRef("hub"),
        placement_name=OuterRef("placement_name"),
        cluster_name=OuterRef("cluster_name"),
        pk__gt=OuterRef("pk"),
    )
    failed = (Eviction.Outcome.NOT_EXECUTED, Eviction.Outcome.INVALID)
    rows = Eviction.objects.filter(outcome__in=failed, at__gte=now - RECENT, placement__isnull=False)
    return rows.filter(~Exists(later))


# --- items; called in across_hubs() ---


def _first_rows(reader: Reader, rows: QuerySet[Any], *columns: str, order: str) -> tuple[list[Any], int]:
    """Return the first rows in the hubs of the reader, and how many there are; one query."""
    rows = rows.filter(hub__in=reader.hubs).annotate(in_all=Window(Count("pk")), at_=F(order))
    first = list(rows.order_by("at_", "pk").values("hub_id", "at_", "in_all", *columns)[:MOST])
    return first, first[0]["in_all"] if first else 0


def _item(reader: Reader, kind: InboxKind, row: Mapping[str, Any], name: str, **facts: Any) -> InboxItem:
    return InboxItem(kind, reader.name_of(row["hub_id"]), name, row["at_"], facts)


def _approvals(reader: Reader) -> tuple[list[InboxItem], int]:
    columns = ("stage", "side", "run__full_name", "run__placement_name")
    rows, count = _first_rows(reader, approvals(), *columns, order="requested_at")
    items = []
    for row in rows:
        facts = {"page": "staged-run", "stage": row["stage"], "side": row["side"]}
        facts["placement"] = row["run__placement_name"]
        items.append(_item(reader, InboxKind.APPROVAL, row, row["run__full_name"], **facts))
    return items, count


def _disagreements(reader: Reader) -> tuple[list[InboxItem], int]:
    columns = ("placement_name", "decision__record__decision_id", "differences_count", "hub_behind")
    rows, count = _first_rows(reader, disputed(), *columns, order="seen_at")
    items = []
    for row in rows:
        facts = {"differences": row["differences_count"], "is_behind": row["hub_behind"]}
        facts |= {"page": "placement" if row["hub_behind"] else "decision"}
        facts |= {"decision": row["decision__record__decision_id"] or ""}
        items.append(_item(reader, InboxKind.DISAGREEMENT, row, row["placement_name"], **facts))
    return items, count


def _unfulfilled(reader: Reader) -> tuple[list[InboxItem], int]:
    since = unfulfilled().annotate(since=Coalesce("scheduled_since", "updated_at"))
    columns = ("full_name", "placed_count", "number_of_clusters", "named_count")
    rows, count = _first_rows(reader, since, *columns, order="since")
    items = []
    for row in rows:
        wanted = row["number_of_clusters"] if row["named_count"] is None else row["named_count"]
        facts = {"page": "placement", "placed": row["placed_count"], "wanted": wanted}
        items.append(_item(reader, InboxKind.UNFULFILLED, row, row["full_name"], **facts))
    return items, count


def _rollouts(reader: Reader) -> tuple[list[InboxItem], int]:
    """Return staged update runs and rollouts; two queries."""
    failed = Subquery(_failed().values("placement").values(count=Count("pk")))
    since = staged_runs().annotate(since=Coalesce("started_at", "created_at"), failing=failed)
    staged, staged_count = _first_rows(reader, since, "full_name", "status", "failing", order="since")
    troubled = troubled_rollouts().annotate(failing=failed)
    columns = ("placement_name", "number", "verdict", "state")
    rolling, count = _first_rows(reader, troubled, *columns, "failing", order="started_at")
    items = []
    for row in staged:
        level = "suspended" if row["status"] == RunStatus.STOPPED else "attention"
        level = "failed" if row["status"] == RunStatus.FAILED or row["failing"] else level
        facts = {"page": "staged-run", "status": row["status"], "level": level, "failed": row["failing"]}
        items.append(_item(reader, InboxKind.ROLLOUT, row, row["full_name"], **facts))
    for row in rolling:
        is_complete = row["state"] == Rollout.State.FINISHED
        status = row["state"] if is_complete else row["verdict"]
        facts = {"page": "rollout", "status": status, "failed": row["failing"]}
        facts |= {"level": "failed" if row["failing"] else "attention", "number": row["number"]}
        items.append(_item(reader, InboxKind.ROLLOUT, row, row["placement_name"], **facts))
    return sorted(items, key=lambda one: (one.at or reader.now, one.name)), staged_count + count


def _removals(reader: Reader) -> tuple[list[InboxItem], int]:
    """Return the orphans and the prunes that wait for a person; two queries."""
    columns = ("cluster_name", "placement_name", "reason")
    rows, count = _first_rows(reader, orphans_to_decide(), *columns, order="noted_at")
    behind = prunes_to_decide().annotate(placement_name=F("placement__full_name"), reason=F("message"))
    prunes, prunes_count = _first_rows(reader, behind, *columns, order="phase_changed_at")
    items = []
    for is_orphan, found in ((True, rows), (False, prunes)):
        for row in found:
            facts = {"page": "cluster-removals", "is_orphan": is_orphan}
            facts |= {"placement": row["placement_name"], "reason": row["reason"]}
            items.append(_item(reader, InboxKind.REMOVAL, row, row["cluster_name"], **facts))
    return sorted(items, key=lambda one: (one.at or reader.now, one.name)), count + prunes_count


def _evictions(reader: Reader) -> tuple[list[InboxItem], int]:
    columns = ("name", "placement_name", "cluster_name", "outcome", "why", "hub_conditions")
    rows, count = _first_rows(reader, evictions(now=reader.now), *columns, order="at")
    items = []
    for row in rows:
        words = ""
        if row["why"]:  # a live hub has conditions instead
            invalid = row["outcome"] == Eviction.Outcome.INVALID
            why = EvictionReason(row["why"])
            words = eviction_sentence(Invalid(why) if invalid else NotExecuted(why))
        facts = {"page": "placement", "cluster": row["cluster_name"], "why": words}
        facts["conditions"] = row["hub_conditions"]
        items.append(_item(reader, InboxKind.EVICTION, row, row["placement_name"], **facts))
    return items, count


def _differences(reader: Reader) -> tuple[list[InboxItem], int]:
    """Return how many clusters have drifted or differing objects, by placement."""
    has_drift, has_diff = ~Q(drifted_objects=[]), ~Q(diffed_objects=[])
    rows = Binding.objects.filter(has_drift | has_diff, hub__in=reader.hubs).order_by()
    counted = rows.values("hub_id", "placement__full_name").annotate(
        drifted=Count(Case(When(has_drift, then=Value(1)))),
        diffed=Count(Case(When(has_diff, then=Value(1)))),
        in_all=Window(Count("placement__full_name")),
    )
    groups = list(counted.order_by("placement__full_name", "hub_id")[:MOST])
    items = []
    for row in groups:
        facts = {"page": "placement-drift", "drifted": row["drifted"], "diffed": row["diffed"]}
        hub = reader.name_of(row["hub_id"])
        items.append(InboxItem(InboxKind.DIFFERENCE, hub, row["placement__full_name"], None, facts))
    return items, groups[0]["in_all"] if groups else 0


def _hubs(reader: Reader) -> tuple[list[InboxItem], int]:
    """Return the hubs whose mirror is not live, of those that the reader has; no query."""
    items = []
    for hub in reader.hubs.values():
        state, reason, since = state_of(hub, now=reader.now)
        if hub.pk == LOCAL_HUB or state == "live":
            continue
        level, word = STATES[state]
        facts = {"page": "hub", "word": word, "reason": reason, "level": level}
        items.append(InboxItem(InboxKind.HUB, hub.name, hub.name, since, facts))
    return items, len(items)


def _credentials(reader: Reader) -> tuple[list[InboxItem], int]:
    """Return credentials that expire soon and are not renewed, where the reader may replace them."""
    hubs = [pk for pk in reader.hubs if pk in reader.administered]
    soon = Q(expires_at__lte=reader.now + timedelta(days=max(NOTICE_DAYS)))
    soon &= ~Q(renew_at__isnull=False, renewal_error="")
    of_hubs = HubCredential.objects.filter(soon, hub__in=hubs).defer("ciphertext")
    rows = ClusterCredential.objects.filter(soon, hub__in=hubs).select_related("cluster")
    of_clusters = list(rows.defer("ciphertext", "cluster__document").order_by("expires_at", "pk")[:MOST])
    items = [_credential(reader, one, one.hub_id, "") for one in of_hubs.order_by("expires_at", "pk")[:MOST]]
    items += [_credential(reader, one, one.hub_id, one.cluster.name) for one in of_clusters]
    return items, len(items)


def _credential(reader: Reader, row: Credential, hub: int | None, cluster: str) -> InboxItem:
    page = "cluster-connection" if cluster else "hub"
    facts = {"page": page, "credential": row.kind, "notice": expiry_notice(row, now=reader.now)}
    name = reader.name_of(hub or LOCAL_HUB)
    return InboxItem(InboxKind.CREDENTIALS, name, cluster or name, row.expires_at, facts)


_SOURCES: Mapping[InboxKind, Callable[[Reader], tuple[list[InboxItem], int]]] = {
    InboxKind.APPROVAL: _approvals,
    InboxKind.DISAGREEMENT: _disagreements,
    InboxKind.UNFULFILLED: _unfulfilled,
    InboxKind.ROLLOUT: _rollouts,
    InboxKind.REMOVAL: _removals,
    InboxKind.EVICTION: _evictions,
    InboxKind.DIFFERENCE: _differences,
    InboxKind.HUB: _hubs,
    InboxKind.CREDENTIALS: _credentials,
}
