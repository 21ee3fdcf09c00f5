"""What needs attention on the overview: each root cause once, with what follows from it, the worst first."""

from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from django.contrib.auth.models import User
from django.urls import reverse

from clusters.fleet import EligibilityKind
from fleetui.apimachinery.words import counted
from fleetui.permissions import may_manage_notifications
from placements.engine.problems import Cause, Effect, Noun, ProblemFacts, causes_of
from placements.explain.vocabulary import ELIGIBILITY_WORDS
from placements.models import ProblemKind
from placements.services.dashboard.queries import MANY_CLUSTERS, Counts
from placements.services.filters import PlacementFilterState
from placements.services.problems import sources
from placements.services.problems.book import address, open_problems

MOST_CAUSES = 10
CORDONED = "cordoned"
_GROUPS: Mapping[str, tuple[str, str, str, str]] = {
    sources.LEAVING: ("Leaving", "being removed from the fleet.", "leaving", "Leaving clusters"),
    sources.LATE: (
        "Heartbeat late",
        "not answering; not ready after 5m without a heartbeat.",
        "heartbeat-late",
        "Late clusters",
    ),
    sources.NOT_OBSERVED: (
        "Not observed",
        "not observed: the statuses are those of the last observation.",
        "not-observed",
        "Clusters that are not observed",
    ),
    sources.UNHEALTHY: (
        "Unhealthy",
        "unhealthy by own report; not selected after 5m of it.",
        "unhealthy",
        "Unhealthy clusters",
    ),
}
"""Name, sentence, filter of the list, and link of clusters that are alike, where they are counted."""
_ACTIONS = {Noun.ROLLOUT: "Rollout", Noun.STAGED_RUN: "Run", Noun.CHANNEL: "Notifications"}


@dataclass(frozen=True, slots=True)
class ShownCause(Cause):
    """A cause with the words of the link to its page."""

    action: str = ""


@dataclass(frozen=True, slots=True)
class Attention:
    """Causes to show, lists with more, snoozed ones, how many approvals are pending, if placements failed."""

    causes: list[ShownCause]
    more: list[Effect]
    snoozed: list[ShownCause]
    approvals: int
    has_failed: bool


@dataclass(frozen=True, slots=True)
class Snooze:
    """Until when a cause is hidden, or, without a time, until it changes."""

    until: float | None
    mark: str

    def hides(self, cause: Cause, *, now: datetime) -> bool:
        return cause.mark == self.mark if self.until is None else now.timestamp() < self.until


def attention(
    counts: Counts, user: User | None, *, snoozes: Mapping[str, Snooze], now: datetime
) -> Attention:
    """Return what needs attention, without what this person has snoozed; two queries."""
    problems = open_problems(now=now)
    if user is None or not may_manage_notifications(user):
        problems = [one for one in problems if one.kind != ProblemKind.CHANNEL_SILENT]
    grouped = _by_reason(problems) if counts.clusters > MANY_CLUSTERS else _without_cordoned(problems)
    causes = [_shown(one) for one in causes_of(grouped)]
    hidden = [one for one in causes if (snooze := snoozes.get(one.key)) and snooze.hides(one, now=now)]
    visible = [one for one in causes if one not in hidden]
    lists = [
        ("not ready clusters", counts.not_eligible, "clusters", "?state=not-eligible"),
        ("not observed clusters", counts.not_observed, "clusters", "?state=not-observed"),
        ("unhealthy clusters", counts.unhealthy, "clusters", "?state=unhealthy"),
        ("leaving clusters", counts.leaving, "clusters", "?state=leaving"),
        ("not fulfilled placements", counts.unfulfilled, "placements", "?state=unfulfilled"),
        ("invalid resource selectors", counts.invalid, "placements", "?state=invalid"),
        ("degraded or failed placements", counts.degraded, "placements", "?state=degraded"),
        (
            "outdated placements",
            counts.of_placements.by_state[PlacementFilterState.STALE],
            "placements",
            "?state=stale",
        ),
    ]
    is_cut = len(visible) > MOST_CAUSES
    lists = [one for one in lists if is_cut and one[1] > 1]
    kinds = Counter(one.kind for one in problems)
    levels = {one.level for one in problems if one.placement and one.noun is Noun.PLACEMENT}
    return Attention(
        visible[:MOST_CAUSES],
        [
            Effect(f"{number:,} {words}", reverse(f"web:{page}") + query)
            for words, number, page, query in lists
        ],
        hidden,
        kinds[ProblemKind.APPROVAL_PENDING],
        "failed" in levels,
    )


def _shown(cause: Cause) -> ShownCause:
    action = f"{_ACTIONS.get(Noun(cause.noun), 'Open')} {cause.name}"
    if cause.noun == Noun.CHANNEL:
        action = "Notifications"
    elif "/decisions/" in cause.path:
        action = f"Explain {cause.name}"
    elif "/?state=" in cause.path:
        action = _link_of(cause)
    effects = tuple(replace(one, path=address(one.path)) for one in cause.effects)
    facts = {name: getattr(cause, name) for name in Cause.__slots__}
    return ShownCause(**{**facts, "path": address(cause.path), "effects": effects}, action=action)


def _link_of(cause: Cause) -> str:
    group = cause.key.removeprefix("clusters/")
    if group in _GROUPS:
        return _GROUPS[group][3]
    return (
        "Cordoned clusters" if group == CORDONED else f"Clusters: {ELIGIBILITY_WORDS[EligibilityKind(group)]}"
    )


def _by_reason(problems: Sequence[ProblemFacts]) -> list[ProblemFacts]:
    """Return the problems with one for all clusters of a reason: a large fleet has many of them."""
    groups: dict[str, list[ProblemFacts]] = defaultdict(list)
    for one in problems:
        if one.kind in (ProblemKind.CLUSTER_NOT_READY, ProblemKind.CLUSTER_LEAVING):
            groups[one.reason].append(one)
    groups.pop(sources.NO_RESPONSE, None)
    keys = {one.key: f"clusters/{reason}" for reason, several in groups.items() for one in several}
    found = [_group_of(reason, several) for reason, several in groups.items()]
    for one in _without_cordoned(problems):
        if one.key not in keys:
            causes = tuple(dict.fromkeys(keys.get(key, key) for key in one.causes))
            found.append(replace(one, causes=causes))
    return found


def _group_of(reason: str, problems: Sequence[ProblemFacts]) -> ProblemFacts:
    clusters = counted(len(problems), "cluster")
    since = min((one.since for one in problems if one.since), default=None)
    query = "state=not-eligible&sort=-verdict_since"
    if reason in _GROUPS:
        name, sentence, state, _ = _GROUPS[reason]
        message, query = f"{clusters} {sentence}", f"state={state}"
    else:
        name, message = "Not ready", f"{clusters}: {ELIGIBILITY_WORDS[EligibilityKind(reason)]}."
    first = problems[0]
    path = f"/clusters/?{query}"
    return replace(
        first, key=f"clusters/{reason}", name=name, message=message, path=path, since=since, causes=()
    )


def _without_cordoned(problems: Sequence[ProblemFacts]) -> list[ProblemFacts]:
    """Return the problems with one for all placements that are outdated because clusters are cordoned."""
    outdated = [
        one
        for one in problems
        if one.kind == ProblemKind.PLACEMENT_OUTDATED and one.reason == CORDONED and not one.causes
    ]
    if not outdated:
        return list(problems)
    key, placements = f"clusters/{CORDONED}", counted(len(outdated), "placement")
    cause = replace(
        outdated[0],
        key=key,
        noun=Noun.CLUSTER,
        name="Cordoned",
        message=f"Cordoned clusters would not be selected again by {placements}.",
        path="/clusters/?state=cordoned",
        placement="",
    )
    others = [replace(one, causes=(key,)) if one in outdated else one for one in problems]
    return [cause, *others]


def snoozes_from(stored: Any) -> dict[str, Snooze]:
    """Return the snoozes that a session keeps; what is not one of them is ignored."""
    entries: Collection[tuple[str, Any]] = stored.items() if isinstance(stored, dict) else ()
    return {key: Snooze(*value) for key, value in entries if isinstance(value, list) and len(value) == 2}
