"""The overview, the search, the history of a placement, and comparisons of two of its revisions."""

from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

from django.contrib.auth.models import User
from django.http import Http404
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from clusters.hub_queries import hubs_with_role
from fleetui.apimachinery.errors import InvalidManifest
from fleetui.hub_scope import LOCAL_HUB, current_hub_id
from fleetui.task_queue import WorkerState, worker_state
from placements.api.base import BaseViewSet, FullNameViewSet, page_response, query_params
from placements.api.filters import HistoryQuery, SearchQuery
from placements.api.schema import documented, operation, page_serializer
from placements.api.serializers import AnyObject, CamelCaseSerializer, names, number, text
from placements.models import Decision
from placements.services.dashboard import queries
from placements.services.dashboard.causes import attention
from placements.services.history.compare import IncomparableRevisionsError, UnknownRevisionError, compare
from placements.services.history.queries import EntryKind, history_of
from placements.services.results import get_placement
from placements.services.rollouts.queries import running_count
from placements.services.searching import find, find_on_hubs
from placements.services.workqueue import waiting_since


class AttentionSerializer(CamelCaseSerializer):
    """An object that needs attention, with what follows from it."""

    key = serializers.CharField(help_text="Kind and name: `cluster/NAME`, `placement/NAME`, or a group.")
    level = serializers.CharField(
        help_text="`failed`, `attention`, `unknown`, `progress`, `outdated` or `suspended`."
    )
    name = serializers.CharField()
    message = serializers.CharField()
    since = serializers.DateTimeField(allow_null=True)
    summary = serializers.CharField(help_text="Counts of rollouts and placements; empty without any.")
    effects = serializers.ListField(child=serializers.CharField())


class WorkerStateSerializer(CamelCaseSerializer):
    """Whether workers and beat keep up. Ages are in seconds; null: never, or nothing is known."""

    state = serializers.ChoiceField(
        ["running", "busy", "missing", "paused"],
        help_text="`missing`: no worker responds; `paused`: no sweep or no observation of clusters ends.",
    )
    missing_seconds = serializers.IntegerField(allow_null=True, help_text="Since a worker has responded.")
    waiting = serializers.IntegerField(help_text="Updates that wait for a busy worker.")
    sweep_age_seconds = serializers.IntegerField(allow_null=True, help_text="Since the last sweep ended.")
    observation_age_seconds = serializers.IntegerField(
        allow_null=True, help_text="Since the last round of observation of clusters ended."
    )


class OverviewSerializer(CamelCaseSerializer):
    """The numbers of the overview."""

    clusters = serializers.IntegerField()
    placements = serializers.IntegerField()
    not_fulfilled = number("unfulfilled")
    selectors_at_fault = number("invalid")
    being_decided = number("pending")
    not_eligible = serializers.IntegerField()
    not_observed = serializers.IntegerField(help_text="Clusters whose last observation is too old.")
    unhealthy = serializers.IntegerField(
        help_text="Clusters that report themselves unhealthy and can still be selected."
    )
    workloads_failing = serializers.IntegerField(
        help_text="Clusters that are the only ones on which several placements fail."
    )
    leaving = serializers.IntegerField()
    runs_running = serializers.IntegerField()
    runs_waiting = serializers.IntegerField(help_text="Rollouts that need a decision of a user.")
    attention = AttentionSerializer(many=True, help_text="Root causes, the worst first, at most ten.")
    worker = WorkerStateSerializer()


class SearchRolloutSerializer(CamelCaseSerializer):
    """A rollout in a search result."""

    placement = text("placement_name")
    number = serializers.IntegerField()


class SearchResourceSerializer(CamelCaseSerializer):
    """A resource in a search result."""

    group = serializers.CharField()
    kind = serializers.CharField()
    namespace = serializers.CharField()
    name = serializers.CharField()


class HubResultSerializer(CamelCaseSerializer):
    """A result on another hub."""

    hub = serializers.CharField()
    noun = serializers.ChoiceField(["cluster", "placement", "decision", "rollout"])
    name = serializers.CharField()
    number = serializers.IntegerField(allow_null=True, help_text="Of a rollout.")


class SearchResultSerializer(CamelCaseSerializer):
    """A search result, at most 20 of each kind."""

    clusters = names()
    placements = names()
    decisions = names()
    runs = SearchRolloutSerializer(many=True)
    resources = SearchResourceSerializer(many=True)
    other_hubs = HubResultSerializer(many=True, help_text="Of the live hubs; empty below `/hubs/NAME`.")


class HistoryEntrySerializer(CamelCaseSerializer):
    """One entry of a history."""

    key = serializers.CharField(help_text="Its name in a comparison: `p3`, `s3`, or the id of a decision.")
    kind = serializers.ChoiceField([str(one) for one in EntryKind])
    number = serializers.IntegerField()
    at = serializers.DateTimeField()
    by = serializers.CharField()
    because = serializers.CharField(help_text="The trigger of a decision; otherwise empty.")


class RevisionSideSerializer(CamelCaseSerializer):
    """One side of a comparison."""

    key = serializers.CharField()
    title = serializers.CharField()
    at = serializers.DateTimeField()
    by = serializers.CharField()
    sentence = serializers.CharField(help_text="The policy as a sentence; empty for resources.")
    decision = serializers.CharField(help_text="The decision of the side; empty without one.")


class ReasonChangeSerializer(CamelCaseSerializer):
    """A cluster that stays for another reason."""

    cluster = serializers.CharField()
    before = serializers.CharField()
    after = serializers.CharField()


class DomainChangeSerializer(CamelCaseSerializer):
    """The number of clusters of a domain that have the placement."""

    key = serializers.CharField()
    group = serializers.CharField(allow_null=True, help_text="Null: clusters without the label.")
    before = serializers.IntegerField()
    after = serializers.IntegerField()
    clusters = serializers.IntegerField()


class DecisionDiffSerializer(CamelCaseSerializer):
    """The differences of two decisions."""

    joins = names()
    leaves = names()
    stays = names()
    other_reasons = ReasonChangeSerializer(many=True)
    groups = DomainChangeSerializer(many=True)


class ResourceChangeSerializer(CamelCaseSerializer):
    """A resource that was added, removed or changed."""

    did = serializers.CharField()
    name = serializers.CharField()


class ManifestPairSerializer(CamelCaseSerializer):
    """Both manifests as they were saved."""

    before = AnyObject(allow_null=True)
    after = AnyObject(allow_null=True)


class RevisionComparisonSerializer(CamelCaseSerializer):
    """Two revisions of a placement side by side; null where one has nothing to compare."""

    before = RevisionSideSerializer()
    after = RevisionSideSerializer()
    manifests = ManifestPairSerializer(allow_null=True)
    decision = DecisionDiffSerializer(allow_null=True)
    resources = ResourceChangeSerializer(many=True, allow_null=True)
    same_resources = serializers.IntegerField()


def worker_facts(state: WorkerState) -> dict[str, Any]:
    ages = (state.silent_for, state.periodic.sweep, state.periodic.observation)
    silent, sweep, observation = (None if age is None else int(age.total_seconds()) for age in ages)
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
    """The fleet in numbers."""

    @documented("get_overview", OverviewSerializer)
    def retrieve(self, request: Request) -> Response:
        """Count clusters, placements and rollouts, and those that need attention."""
        query_params(request)
        counts, user = queries.counts(), request.user if isinstance(request.user, User) else None
        waiting = counts.of_placements.waiting
        runs = {"runs_running": running_count() - waiting, "runs_waiting": waiting}
        now = datetime.now(UTC)
        causes = attention(counts, user, snoozes={}, now=now).causes
        items = [{**asdict(one), "effects": [effect.words for effect in one.effects]} for one in causes]
        worker = worker_facts(worker_state(now=now, due_since=waiting_since))
        document = {**asdict(counts), **runs, "attention": items, "worker": worker}
        return Response(OverviewSerializer(document).data)

    @documented("search", SearchResultSerializer, query=SearchQuery)
    def search(self, request: Request) -> Response:
        """Search clusters, placements, decisions, rollouts and resources."""
        wanted = query_params(request, SearchQuery)["q"]
        result, hubs = find(wanted), {}
        if wanted and current_hub_id() == LOCAL_HUB:
            others = hubs_with_role(request.user).exclude(pk=LOCAL_HUB)
            hubs = dict(others.values_list("pk", "name"))
        document = {
            "clusters": result.clusters,
            "placements": result.placements,
            "decisions": [one.record.decision_id for one in result.decisions],
            "runs": result.runs,
            "resources": result.resources,
            "other_hubs": find_on_hubs(wanted, hubs),
        }
        return Response(SearchResultSerializer(document).data)


class HistoryViewSet(FullNameViewSet):
    """The history of a placement."""

    @operation("get_history", page_serializer(HistoryEntrySerializer), query=HistoryQuery)
    def history(self, request: Request, name: str) -> Response:
        """List policies, resources and decisions of a placement, the newest first.

        Decisions that changed no cluster are left out, except the first one.
        """
        params = query_params(request, HistoryQuery)
        page = history_of(
            get_placement(name),
            size=params["limit"],
            after=params.get("after"),
            is_folded=params["unchanged"] != "true",
        )
        items = [
            {
                "key": entry.key,
                "kind": str(entry.kind),
                "number": entry.row.number,
                "at": entry.row.created_at,
                "by": entry.row.triggered_by if isinstance(entry.row, Decision) else entry.row.created_by,
                "because": entry.row.trigger if isinstance(entry.row, Decision) else "",
            }
            for entry in page.entries
        ]
        return page_response(request, items, page.after)

    @operation(
        "compare",
        RevisionComparisonSerializer,
        problems=(422,),
        is_costly=True,
        path="compare/<decision:before>..<decision:after>",
    )
    def compare(self, request: Request, name: str, before: str, after: str) -> Response:
        """Compare two snapshots or decisions: `p0..p1`, `s0..s1`, or ids of decisions."""
        query_params(request)
        try:
            comparison = compare(get_placement(name), before, after)
        except UnknownRevisionError as error:
            raise Http404(str(error)) from error
        except IncomparableRevisionsError as error:
            raise InvalidManifest.of("after", "unlike", str(error), "two of a kind") from error
        manifests = {"before": comparison.before.manifest, "after": comparison.after.manifest}
        diff, decision = comparison.decision, None
        if diff:
            groups = [(one.key, row) for one in diff.groups for row in (*one.groups, one.no_label) if row]
            decision = {
                "joins": diff.joins,
                "leaves": diff.leaves,
                "stays": diff.stays,
                "other_reasons": diff.shifts,
                "groups": [{"key": key, **asdict(row), "group": row.group or None} for key, row in groups],
            }
        old, new = (
            {
                **vars(side),
                "sentence": side.sentence,
                "decision": side.decision.record.decision_id if side.decision else "",
            }
            for side in comparison.sides
        )
        document = {
            **vars(comparison),
            "before": old,
            "after": new,
            "manifests": manifests if comparison.resources is None else None,
            "decision": decision,
        }
        return Response(RevisionComparisonSerializer(document).data)
