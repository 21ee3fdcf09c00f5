"""What the frame of each page shows: rollouts in progress and kinds of clusters of this hub, the inbox."""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from django.contrib.auth.models import AnonymousUser, User
from django.db.models import F, QuerySet

from fleetui.hub_scope import LOCAL_HUB, UNKNOWN_HUB, current_hub_id
from fleetui.permissions import grants_of, roles_among
from placements.models import ProblemBook
from placements.services.filters import count_in_all
from placements.services.problems.book import OLDEST, compare


@dataclass(frozen=True, slots=True)
class NavigationCounts:
    """What the navigation counts, and whether there are demo data, simulated clusters and others.

    `totals` are those of the hub as of `version`; `is_new`: they were counted for this reader.
    """

    rollouts: int
    inbox: int
    totals: Mapping[str, Any] = field(default_factory=dict)
    version: int | None = None
    is_new: bool = False
    has_demo: bool = False
    has_simulated: bool = False
    has_live_hubs: bool = False
    has_others: bool = False


def navigation_counts(
    user: User | AnonymousUser, *, is_outdated: bool = False
) -> NavigationCounts:
    """Return them for a person as the last comparison stored them, by one query: every page has it.

    Compare first where the caller knows that it is outdated.
    """
    if (
        not isinstance(user, User)
        or not user.is_active
        or current_hub_id() == UNKNOWN_HUB
    ):
        return NavigationCounts(0, 0)
    now = datetime.now(UTC)
    book, inbox, has_live_hubs = _book_and_inbox(user)
    is_outdated = (
        is_outdated
        or book is None
        or not book.totals
        or book.requested_version > book.observed_version
        or book.compared_at < now - OLDEST
    )
    if is_outdated:
        compare(now=now)
        book, inbox, has_live_hubs = _book_and_inbox(user)
    totals = (
        book.totals if book else count_in_all()
    )  # no row: the database takes no writes now
    return NavigationCounts(
        totals["runs_under_way"],
        inbox,
        totals,
        book.version if book else None,
        is_outdated,
        has_demo=bool(totals["demo_placements"] or totals["demo_clusters"]),
        has_simulated=bool(totals["simulated"]),
        has_live_hubs=has_live_hubs,
        has_others=totals["clusters"] > totals["simulated"],
    )


def _book_and_inbox(user: User) -> tuple[ProblemBook | None, int, bool]:
    """Return the book of the hub in scope, and of all hubs on which a user has a role the number of items.

    The third value is whether there is a live hub among these.
    """
    columns = {"group": F("hub__grants__group__name"), "role": F("hub__grants__role")}
    books: dict[int, ProblemBook] = {}
    granted = defaultdict(list)
    rows: QuerySet[Any] = ProblemBook.objects.filter(hub__removed_at=None).annotate(
        **columns
    )
    for row in rows:
        books[row.hub_id] = row
        if row.group:
            granted[row.hub_id].append((row.group, row.role))
    inbox, has_live_hubs = 0, False
    for hub, book in books.items():
        if user.is_superuser or roles_among(grants_of(user).groups, granted[hub]):
            inbox += book.totals.get("inbox", 0)
            has_live_hubs = has_live_hubs or hub != LOCAL_HUB
    return books.get(current_hub_id()), inbox, has_live_hubs
