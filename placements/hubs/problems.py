"""The problems that a live hub itself has: its state and its credential."""

from collections.abc import Iterator
from datetime import datetime

from clusters.credentials import expiry_notice
from clusters.models import Hub, HubCredential
from fleetui.hub_scope import current_hub_id
from placements.engine.problems import Noun, ProblemFacts, ProblemLevel
from placements.hubs.explain.connections import STATES
from placements.hubs.queries import HEALTHY_STATES, state_of
from placements.models import ProblemKind
from placements.services.problems.parts import page
from placements.services.problems.sources import of_credential


def problems_of_hub(now: datetime) -> Iterator[ProblemFacts]:
    hub = Hub.objects.get(pk=current_hub_id())
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
    for credential in HubCredential.objects.filter(
        expires_at__isnull=False, hub=hub
    ).defer("ciphertext"):
        if notice := expiry_notice(credential, now=now):
            yield of_credential(
                Noun.HUB, hub.name, credential, notice, page("hub-about", hub.name), {}
            )
