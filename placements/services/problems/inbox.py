"""What a person should act on, in all hubs that they may see: the problems without a cause."""

from collections import defaultdict
from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.contrib.auth.models import AnonymousUser, User
from django.db.models import Count, Q, QuerySet, Window
from django.db.models.functions import RowNumber

from clusters.hub_queries import hubs_with_role
from fleetui.apimachinery.grouping import grouped
from fleetui.permissions import Role, may_manage_notifications
from placements.models import Problem, ProblemKind
from placements.services.problems.book import address, compare_old

MOST = 200
_MOST_FOLLOWING = 5_000


@dataclass(frozen=True, slots=True)
class InboxItem:
    """A root cause with the name of its hub, and the objects that follow from it."""

    problem: Problem
    hub: str
    url: str
    following: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class InboxGroup:
    """The items of one kind, at most `MOST`, and how many there are."""

    kind: ProblemKind
    items: tuple[InboxItem, ...]
    count: int


def problems_for(
    user: User | AnonymousUser, *, now: datetime, hub: str = ""
) -> tuple[dict[int, str], QuerySet[Problem]]:
    """Return the names of the hubs that a person may see, or of one of them, and their open problems.

    A person has only those that concern the role there. Four queries with the second part.
    """
    hubs = hubs_with_role(user)
    hubs = hubs.filter(name=hub) if hub else hubs
    names = dict(hubs.values_list("pk", "name"))
    compare_old(names, now=now)
    of_administrators = Q(kind=ProblemKind.CREDENTIAL_EXPIRES) & ~Q(
        hub__in=hubs_with_role(user, Role.CLUSTER_ADMINISTRATOR).values("pk")
    )
    rows = Problem.objects.filter(ended_at=None, hub__in=list(names))
    rows = rows.exclude(of_administrators)
    if not isinstance(user, User) or not may_manage_notifications(user):
        rows = rows.exclude(kind=ProblemKind.CHANNEL_SILENT)
    return names, rows


def inbox(
    user: User | AnonymousUser,
    *,
    now: datetime,
    hub: str = "",
    kinds: Collection[ProblemKind] = tuple(ProblemKind),
) -> list[InboxGroup]:
    """Return the items of the hubs that a person may see, of one if it is named, by kind; five queries."""
    names, rows = problems_for(user, now=now, hub=hub)
    roots: Any = rows.filter(causes=[], kind__in=kinds).annotate(
        in_all=Window(Count("pk"), partition_by="kind"),
        place=Window(
            RowNumber(), partition_by="kind", order_by=("since", "name", "pk")
        ),
    )
    first = roots.filter(place__lte=MOST).order_by("since", "name", "pk")
    found = grouped((row.kind, row) for row in first)
    following: dict[tuple[int, str], list[str]] = defaultdict(list)
    others = (
        Problem.objects.filter(ended_at=None, hub__in=list(names))
        .exclude(causes=[])
        .order_by("name", "pk")
    )
    for pk, causes, name in others.values_list("hub_id", "causes", "name")[
        :_MOST_FOLLOWING
    ]:
        for cause in causes:
            following[pk, cause].append(name)
    groups = []
    for kind in ProblemKind:
        several = found.get(kind, [])
        items = tuple(
            InboxItem(
                row,
                names[row.hub_id],
                address(row.path, hub=names[row.hub_id]),
                tuple(following[row.hub_id, row.key]),
            )
            for row in several
        )
        groups.append(InboxGroup(kind, items, several[0].in_all if several else 0))
    return groups
