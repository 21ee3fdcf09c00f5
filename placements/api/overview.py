"""The overview, the inbox of all hubs, and the search, in REST."""

from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

from django.contrib.auth.models import User
from rest_framework import serializers
from rest_framework.permissions import BasePermission
from rest_framework.request import Request
from rest_framework.response import Response

from clusters.drivers.base import ObjectRef
from clusters.hub_queries import hubs_with_role
from fleetui.hub_scope import LOCAL_HUB, current_hub_id
from fleetui.task_queue import WorkerState, worker_state
from placements.api.base import BaseViewSet, MayRead, query_params
from placements.api.filters import InboxQuery, NoQuery, SearchQuery
from placements.api.schema import documented
from placements.api.serializers import (
    CamelCaseSerializer,
    fields_of,
    names,
    text,
)
from placements.engine.problems import Cause, ProblemFacts
from placements.models import ProblemKind
from placements.services.dashboard import queries
from placements.services.dashboard.causes import attention
from placements.services.dashboard.queries import Counts
from placements.services.problems.inbox import inbox
from placements.services.rollouts.queries import running_count
from placements.services.searching import HubResult, SearchResult, find, find_on_hubs
from placements.services.workqueue import waiting_since

MOST_CAUSES = 10


@fields_of(
    Cause,
    "key",
    "level",
    "name",
    "message",
    "since",
    "summary",
    "effects",
    key="Kind and name: `cluster/NAME`, `placement/NAME`, or a group.",
    level="`failed`, `attention`, `unknown`, `progress`, `outdated` or `suspended`.",
    summary="Counts of rollouts and placements; empty without any.",
)
class AttentionSerializer(CamelCaseSerializer):
    """An object that needs attention, with what follows from it."""

    effects = serializers.ListField(child=serializers.CharField())


class WorkerStateSerializer(CamelCaseSerializer):
    """Whether workers and beat keep up. Ages are in seconds; null: never, or nothing is known."""

    state = serializers.ChoiceField(
        ["running", "busy", "missing", "paused"],
        help_text="`missing`: no worker responds; `paused`: no sweep or no observation of clusters ends.",
    )
    missing_seconds = serializers.IntegerField(
        allow_null=True, help_text="Since a worker has responded."
    )
    waiting = serializers.IntegerField(help_text="Updates that wait for a busy worker.")
    sweep_age_seconds = serializers.IntegerField(
        allow_null=True, help_text="Since the last sweep ended."
    )
    observation_age_seconds = serializers.IntegerField(
        allow_null=True,
        help_text="Since the last round of observation of clusters ended.",
    )


@fields_of(
    Counts,
    "clusters",
    "placements",
    "not_fulfilled",
    "selectors_at_fault",
    "being_decided",
    "not_eligible",
    "not_observed",
    "unhealthy",
    "workloads_failing",
    "leaving",
    "joining",
    "heartbeat_late",
    "cordoned",
    "not_monitored",
    "ready",
    "runs_running",
    "runs_waiting",
    "attention",
    "worker",
    sources={
        "not_fulfilled": "unfulfilled",
        "selectors_at_fault": "invalid",
        "being_decided": "pending",
        "heartbeat_late": "late",
    },
    not_observed="Clusters whose last observation is too old.",
    unhealthy="Clusters that report themselves unhealthy and can still be selected.",
    workloads_failing="Clusters that are the only ones on which several placements fail.",
    ready="The states of clusters do not overlap: their numbers sum to `clusters`.",
)
class OverviewSerializer(CamelCaseSerializer):
    """The numbers of the overview."""

    runs_running = serializers.IntegerField()
    runs_waiting = serializers.IntegerField(
        help_text="Rollouts that need a decision of a user."
    )
    attention = AttentionSerializer(
        many=True, help_text="Root causes, the worst first, at most ten."
    )
    worker = WorkerStateSerializer()


class SearchRolloutSerializer(CamelCaseSerializer):
    """A rollout in a search result."""

    placement = text("placement_name")
    number = serializers.IntegerField()


@fields_of(ObjectRef)
class SearchResourceSerializer(CamelCaseSerializer):
    """A resource in a search result."""


@fields_of(HubResult, number="Of a rollout.")
class HubResultSerializer(CamelCaseSerializer):
    """A result on another hub."""

    noun = serializers.ChoiceField(["cluster", "placement", "decision", "rollout"])


@fields_of(
    SearchResult,
    "clusters",
    "placements",
    "decisions",
    "runs",
    "resources",
    "other_hubs",
)
class SearchResultSerializer(CamelCaseSerializer):
    """A search result, at most 20 of each kind."""

    decisions = names()
    runs = SearchRolloutSerializer(many=True)
    resources = SearchResourceSerializer(many=True)
    other_hubs = HubResultSerializer(
        many=True, help_text="Of the live hubs; empty below `/hubs/NAME`."
    )


def worker_facts(state: WorkerState) -> dict[str, Any]:
    ages = (state.silent_for, state.periodic.sweep, state.periodic.observation)
    silent, sweep, observation = (
        None if age is None else int(age.total_seconds()) for age in ages
    )
    words = "busy" if state.waiting else "running"
    if state.periodic.paused_for is not None:
        words = "paused"
    if state.silent_for is not None:
        words = "missing"
    return {
        "state": words,
        "missing_seconds": silent,
        "waiting": state.waiting,
        "sweep_age_seconds": sweep,
        "observation_age_seconds": observation,
    }


class OverviewViewSet(BaseViewSet):
    @documented("get_overview", OverviewSerializer, query=NoQuery)
    def retrieve(self, request: Request) -> Response:
        """Count clusters, placements and rollouts, and those that need attention."""
        counts, user = (
            queries.counts(),
            request.user if isinstance(request.user, User) else None,
        )
        waiting = counts.of_placements.waiting
        runs = {"runs_running": running_count() - waiting, "runs_waiting": waiting}
        now = datetime.now(UTC)
        causes = attention(user, snoozes={}, now=now).items[:MOST_CAUSES]
        items = [
            {**asdict(cause), "effects": [effect.words for effect in cause.effects]}
            for cause in causes
        ]
        worker = worker_facts(worker_state(now=now, due_since=waiting_since))
        return Response(
            OverviewSerializer(
                {**asdict(counts), **runs, "attention": items, "worker": worker}
            ).data
        )

    @documented("search", SearchResultSerializer, query=SearchQuery)
    def search(self, request: Request) -> Response:
        """Search clusters, placements, decisions, rollouts and resources."""
        wanted = query_params(request, SearchQuery)["q"]
        result, hubs = find(wanted), {}
        if wanted and current_hub_id() == LOCAL_HUB:
            hubs = dict(
                hubs_with_role(request.user)
                .exclude(pk=LOCAL_HUB)
                .values_list("pk", "name")
            )
        return Response(
            SearchResultSerializer(
                {
                    "clusters": result.clusters,
                    "placements": result.placements,
                    "decisions": [
                        decision.record.decision_id for decision in result.decisions
                    ],
                    "runs": result.runs,
                    "resources": result.resources,
                    "other_hubs": find_on_hubs(wanted, hubs),
                }
            ).data
        )


@fields_of(
    ProblemFacts,
    "kind",
    "hub",
    "noun",
    "name",
    "level",
    "message",
    "since",
    "path",
    "following",
    kind=f"One of {', '.join(ProblemKind.values)}.",
    noun="What the name is of.",
    name="Of a rollout with its number: `web/3`.",
    path="The address of its page.",
)
class InboxItemSerializer(CamelCaseSerializer):
    """Something that needs attention."""

    hub = serializers.CharField(help_text="Its hub; `local` is the hub of the console.")
    since = serializers.DateTimeField()
    following = serializers.ListField(
        child=serializers.CharField(),
        help_text="The objects whose problems follow from it.",
    )


class InboxCountSerializer(CamelCaseSerializer):
    """How many items of a kind there are."""

    kind = serializers.CharField()
    count = serializers.IntegerField()


class InboxSerializer(CamelCaseSerializer):
    """The items by kind, the oldest first; at most 200 of each kind."""

    items = InboxItemSerializer(many=True)
    counts = InboxCountSerializer(many=True)


class InboxViewSet(BaseViewSet):
    def get_permissions(self) -> list[BasePermission]:
        return [MayRead()]

    @documented("get_inbox", InboxSerializer, query=InboxQuery)
    def retrieve(self, request: Request) -> Response:
        """List the inbox of all hubs that you may see."""
        params = query_params(request, InboxQuery)
        kinds = (
            [ProblemKind(params["kind"])] if params.get("kind") else tuple(ProblemKind)
        )
        groups = inbox(
            request.user, now=datetime.now(UTC), hub=params["hub"], kinds=kinds
        )
        items = [
            {
                "kind": item.problem.kind,
                "hub": item.hub,
                "noun": item.problem.noun,
                "name": item.problem.name,
                "level": item.problem.level,
                "message": item.problem.message,
                "since": item.problem.since,
                "path": item.url,
                "following": item.following,
            }
            for group in groups
            for item in group.items
        ]
        counts = [
            {"kind": group.kind, "count": group.count}
            for group in groups
            if group.kind in kinds
        ]
        return Response(InboxSerializer({"items": items, "counts": counts}).data)
