"""What answers for live hubs at the port of the console."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

from django.urls import URLPattern, URLResolver

from clusters.credentials import expiry_notice
from clusters.models import Hub, HubCredential
from fleetui.hub_backend import HubBackend
from fleetui.hub_scope import HubDecidesError, current_hub_id
from placements.engine.problems import Noun, ProblemFacts, ProblemLevel
from placements.hubs import abilities, urls
from placements.hubs.actions import OPERATIONS
from placements.hubs.api.objects import handler_of, mirrored_metadata
from placements.hubs.explain.connections import STATES, ShownHub, shown_hub
from placements.hubs.projection.operations import hubs_with_changes
from placements.hubs.queries import HEALTHY_STATES, state_of, summary_of
from placements.hubs.replay.observed_decisions import hubs_to_observe
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


class LiveHubBackend(HubBackend):
    """The live hub in scope: it decides, and its writes are sent to it."""

    def refusal(self, address: str, *, is_form: bool) -> HubDecidesError | None:
        space, _, name = address.rpartition(":")
        if space == "web":
            return abilities.refusal_of_page(name, is_form=is_form)
        # REST asks `handler` once it knows who calls; the admin reads only.
        return (
            abilities.refusal_of_page(name, is_form=True)
            if is_form and space == "admin"
            else None
        )

    def refusal_of_command(self, name: str) -> HubDecidesError | None:
        return abilities.refusal_of_command(name)

    def operation(
        self, kind: str, name: str, _here: Callable[..., Any]
    ) -> Callable[..., Any]:
        try:
            return OPERATIONS[kind, name]
        except KeyError:
            raise abilities.refusal_of_operation(name) from None

    def handler(self, view: Any, method: str) -> Callable[..., Any] | None:
        return handler_of(view, method)

    def shown(self, hub: Hub, *, now: datetime) -> ShownHub:
        return shown_hub(summary_of(hub, now=now), now=now)

    def problems(self, now: datetime) -> Iterator[ProblemFacts]:
        return problems_of_hub(now)

    def due_tasks(self, now: datetime) -> Iterator[tuple[str, dict[str, int]]]:
        """Yield hints for hubs whose objects have changed, and whose decisions are due to be recorded."""
        yield from (
            ("placements.hubs.tasks.project_hub", {"hub": hub})
            for hub in hubs_with_changes()
        )
        yield from (
            ("placements.hubs.tasks.observe_decisions", {"hub": hub})
            for hub in hubs_to_observe(now=now)
        )

    @property
    def pages(self) -> Sequence[URLPattern]:
        return urls.PAGES

    @property
    def operations(self) -> Sequence[URLPattern | URLResolver]:
        return urls.OPERATIONS

    def part(self, name: str) -> str:
        return f"hubs/_{name}.html"

    def metadata(self, manifest: Mapping[str, Any]) -> Mapping[str, Any]:
        metadata = manifest["metadata"]
        own = mirrored_metadata(
            manifest["kind"], metadata.get("namespace") or "", metadata["name"]
        )
        keys = ("uid", "resourceVersion", "generation")
        return (
            {key: own[key] for key in keys if key in own}
            if "resourceVersion" in own
            else {}
        )
