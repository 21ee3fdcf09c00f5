"""What the frame of each page shows: rollouts in progress and kinds of clusters of this hub, the inbox."""

from dataclasses import dataclass
from datetime import UTC, datetime

from django.contrib.auth.models import AnonymousUser, User

from fleetui.bulk import number_of
from fleetui.hub_scope import current_hub_id
from placements.models import ProblemBook
from placements.services.filters import count_in_all
from placements.services.problems.book import compare, is_outdated
from placements.services.problems.inbox import counted_for


@dataclass(frozen=True, slots=True)
class NavigationCounts:
    """What the navigation counts, and whether there are demo data, simulated clusters and others."""

    rollouts: int
    inbox: int
    has_demo: bool = False
    has_simulated: bool = False
    has_others: bool = False


def navigation_counts(user: User | AnonymousUser) -> NavigationCounts:
    """Return them for a person as the last comparison stored them, by one query: every page has it."""
    if not isinstance(user, User) or not user.is_active:
        return NavigationCounts(0, 0)
    now = datetime.now(UTC)
    rows = ProblemBook.objects.filter(hub=current_hub_id()).annotate(inbox=number_of(counted_for(user)))
    book = rows.first()
    if book is None or not book.totals or is_outdated(book, now=now):
        compare(now=now)
        book = rows.first()
    totals = book.totals if book else count_in_all()  # no row: the database takes no writes now
    return NavigationCounts(
        totals["runs_under_way"],
        book.inbox if book else 0,
        has_demo=bool(totals["demo_placements"] or totals["demo_clusters"]),
        has_simulated=bool(totals["simulated"]),
        has_others=totals["clusters"] > totals["simulated"],
    )
