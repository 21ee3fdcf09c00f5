"""The problems that a live hub itself has: its state, its credential, and decisions that differ."""

from collections.abc import Iterator
from datetime import datetime

from django.db.models import Q, QuerySet

from clusters.credentials import expiry_notice
from clusters.models import Hub, HubCredential
from fleetui.apimachinery.words import counted
from fleetui.hub_scope import current_hub_id
from placements.engine.problems import Noun, ProblemFacts, ProblemLevel
from placements.hubs.explain.connections import STATES
from placements.hubs.queries import HEALTHY_STATES, state_of
from placements.hubs.replay.queries import verdicts
from placements.models import HubDecision, ProblemKind
from placements.services.problems.parts import MOST, page
from placements.services.problems.sources import of_credential


def problems_of_hub(now: datetime) -> Iterator[ProblemFacts]:
    """Yield the problems of the live hub in scope."""
    hub = Hub.objects.get(pk=current_hub_id())
    yield from of_state(hub, now)
    yield from of_verdicts(
        verdicts().filter(Q(confirmed_at__isnull=False) | Q(hub_behind=True))
    )
    for credential in HubCredential.objects.filter(
        expires_at__isnull=False, hub=hub
    ).defer("ciphertext"):
        if notice := expiry_notice(credential, now=now):
            yield of_credential(
                Noun.HUB, hub.name, credential, notice, page("hub-about", hub.name), {}
            )


def of_state(hub: Hub, now: datetime) -> Iterator[ProblemFacts]:
    """Yield the live hub if its mirror cannot be relied on."""
    state, reason, since = state_of(hub, now=now)
    if state not in HEALTHY_STATES and not hub.is_paused:
        level, word = STATES[state]
        yield ProblemFacts(
            ProblemKind.HUB_NOT_LIVE,
            f"{ProblemKind.HUB_NOT_LIVE}/{hub.name}",
            Noun.HUB,
            hub.name,
            ProblemLevel(level),
            f"{word}: {reason}." if reason else f"{word}.",
            page("hub-about", hub.name),
            since,
            state,
        )


def of_verdicts(rows: QuerySet[HubDecision]) -> Iterator[ProblemFacts]:
    """Yield the decisions that differ from those of a live hub."""
    rows = rows.select_related("decision__record").defer(
        "content", "differences", "decision__record__content"
    )
    for row in rows.order_by("placement_name")[:MOST]:
        noun, path = Noun.PLACEMENT, page("placement", row.placement_name)
        message = "The hub has not decided for more than 5m."
        if not row.hub_behind:
            places = counted(row.differences_count, "place")
            message = (
                f"Disagreement: the replay of what the hub decided differs in {places}."
            )
            if row.decision:
                path = page("decision", row.decision.record.decision_id) + "#hub"
        yield ProblemFacts(
            ProblemKind.DECISION_NOT_REPRODUCIBLE,
            f"{ProblemKind.DECISION_NOT_REPRODUCIBLE}/{row.placement_name}",
            noun,
            row.placement_name,
            ProblemLevel.ATTENTION,
            message,
            path,
            row.confirmed_at or row.seen_at,
        )
