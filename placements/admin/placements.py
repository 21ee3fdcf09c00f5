"""Placements, resources, decisions, disruption and events in the admin: read-only."""

from datetime import UTC, datetime
from typing import Any, ClassVar

from django.contrib import admin
from django.db.models import Q, QuerySet
from django.http import HttpRequest
from django.urls import reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString

from clusters.operations.join import CLUSTER
from fleetui.apimachinery.yaml import dump_yaml
from fleetui.models import Event
from placements.admin.base import NONE, ReadOnlyAdmin, badge, block, column, list_filter, structured
from placements.engine.status import HealthLevel
from placements.models import (
    Binding,
    Decision,
    DisruptionBudget,
    Drain,
    Eviction,
    Placement,
    PolicySnapshot,
    Resource,
    ResourceSnapshot,
)
from placements.services.disruption.budgets import BUDGET
from placements.services.disruption.queries import event_line, step_sentence
from placements.services.filters import (
    PlacementFilter,
    PlacementFilterState,
    decisions_of,
    placements_matching,
)
from placements.services.health import stored_healths
from placements.services.problems.book import bring_up_to_date
from placements.services.resources.operations import RESOURCE
from placements.services.results import PLACEMENT
from placements.templatetags.fleet import state_words


class PartOfPlacementAdmin(ReadOnlyAdmin):
    list_select_related: ClassVar[tuple[str, ...]] = ("placement",)

    placement_name = column(
        "placement", lambda row: str(row.placement.full_name), ordering="placement__full_name"
    )


_SORTS = {
    HealthLevel.HEALTHY: "good",
    HealthLevel.FAILED: "bad",
    HealthLevel.ATTENTION: "bad",
    HealthLevel.UNKNOWN: "bad",
}


def _in_state(rows: QuerySet[Placement], value: str) -> QuerySet[Placement]:
    if value not in set(PlacementFilterState):
        return rows
    matching = placements_matching(PlacementFilter(state=PlacementFilterState(value)))
    return rows.filter(pk__in=matching.values("pk"))


_STATES = [(state.value, state_words(state)) for state in PlacementFilterState]
PlacementStateFilter = list_filter("status", "state", _STATES, _in_state)


@admin.register(Placement)
class PlacementAdmin(ReadOnlyAdmin):
    """Placements; they are edited on their own pages."""

    list_display = (
        *("name", "namespace", "state", "placement_type", "number_of_clusters", "placed_count", "semantics"),
        "updated_at",
    )
    list_filter = (PlacementStateFilter, "placement_type", "semantics", "is_demo")
    search_fields = ("full_name",)
    ordering = ("name", "namespace")
    fields = (
        "page",
        ("name", "namespace"),
        "state",
        ("placement_type", "number_of_clusters", "semantics"),
        ("placed_count", "decisions_made", "reschedules_on_fleet_change"),
        ("trigger", "triggered_by"),
        ("created_at", "updated_at", "deleting_since"),
        "manifest",
    )
    large_columns = ("document", "label_keys_read", "property_names_read")

    @admin.display(description="page")
    def page(self, placement: Placement) -> SafeString:
        url = reverse("web:placement", args=[placement.full_name])
        return format_html('<a href="{}">Open in the console</a>', url)

    def get_changelist_instance(self, request: HttpRequest) -> Any:
        bring_up_to_date(now=datetime.now(UTC))
        return super().get_changelist_instance(request)

    @admin.display(description="status", ordering="is_fulfilled")
    def state(self, placement: Placement) -> SafeString:
        health = stored_healths([placement], now=datetime.now(UTC))[placement.pk]
        return badge(_SORTS.get(health.level, "off"), health.word, health.message)

    manifest = column("manifest", lambda row: block(dump_yaml(row.document)))


@admin.register(Resource)
class ResourceAdmin(ReadOnlyAdmin):
    """Resources on the hub; the values of Secrets are not shown."""

    list_display = ("name", "kind", "namespace", "group", "version", "revision", "updated_at", "is_demo")
    list_filter = ("kind", "is_demo")
    search_fields = ("name", "namespace")
    ordering = ("kind", "namespace", "name")
    fields = (
        ("kind", "name", "namespace"),
        ("group", "version", "revision"),
        ("created_at", "updated_at", "is_demo"),
        "manifest",
    )
    large_columns = ("content", "labels")

    manifest = column("manifest", lambda row: block(dump_yaml(row.content)))


@admin.register(PolicySnapshot)
class PolicySnapshotAdmin(PartOfPlacementAdmin):
    list_display = ("placement_name", "number", "semantics", "is_latest", "created_by", "created_at")
    list_display_links = ("placement_name", "number")
    list_filter = ("is_latest", "semantics")
    search_fields = ("placement__full_name",)
    ordering = ("-pk",)
    fields = (
        ("placement_name", "number", "is_latest"),
        ("created_by", "created_at"),
        "semantics",
        "policy_text",
    )
    large_columns = ("policy", "options", "placement__document")

    policy_text = column(
        "policy", lambda row: block(dump_yaml({"policy": row.policy, "options": row.options}))
    )


@admin.register(ResourceSnapshot)
class ResourceSnapshotAdmin(PartOfPlacementAdmin):
    """Resource snapshots without their content."""

    list_display = ("placement_name", "number", "objects_count", "is_latest", "created_by", "created_at")
    list_display_links = ("placement_name", "number")
    list_filter = ("is_latest",)
    search_fields = ("placement__full_name",)
    ordering = ("-pk",)
    fields = (
        ("placement_name", "number", "is_latest"),
        ("created_by", "created_at"),
        "objects_count",
        "objects",
    )
    large_columns = ("identities", "placement__document")

    objects = column(
        "objects",
        lambda row: block("\n".join(" ".join(filter(None, identity)) for identity in row.identities)),
    )


@admin.register(Binding)
class BindingAdmin(PartOfPlacementAdmin):
    list_display = (
        *("placement_name", "cluster_name", "state", "policy_number", "decision_number"),
        "picked_at",
    )
    list_display_links = ("placement_name", "cluster_name")
    list_filter = ("state",)
    linked_lookups = ("cluster_name",)
    list_select_related = ("placement", "policy_snapshot", "decision")
    search_fields = ("=cluster_name", "placement__full_name")
    ordering = ("placement__full_name", "cluster_name")
    fields = (
        ("placement_name", "cluster_name"),
        ("state", "previous_state"),
        ("policy_number", "decision_number", "picked_at"),
        ("topology_spread_score", "affinity_score"),
    )

    def get_queryset(self, request: HttpRequest) -> QuerySet[Binding]:
        rows: QuerySet[Binding] = super().get_queryset(request)
        return rows.select_related(*self.list_select_related).defer(
            "placement__document", "policy_snapshot__policy", "decision__joins", "decision__leaves"
        )

    policy_number = column("policy", lambda row: row.policy_snapshot and row.policy_snapshot.number)
    decision_number = column("decision", lambda row: row.decision and row.decision.number)


@admin.register(Decision)
class DecisionAdmin(ReadOnlyAdmin):
    """Decisions; their records are shown on the pages of the console."""

    list_display = (
        *("placement_name", "number", "kind", "is_fulfilled", "joined_clusters", "left_clusters"),
        *("trigger", "triggered_by", "created_at"),
    )
    list_display_links = ("placement_name", "number")
    list_filter = ("is_fulfilled",)
    search_fields = ("=placement_name",)
    search_help_text = "The name of a placement."
    ordering = ("-pk",)
    fields = (
        ("placement_name", "number", "kind"),
        ("decision_id", "fleet_digest"),
        ("is_fulfilled", "wanted"),
        ("picked_count", "kept_count", "unscheduled_count"),
        "joined_clusters",
        "left_clusters",
        ("trigger", "triggered_by"),
        ("created_at", "milliseconds"),
    )

    def get_queryset(self, request: HttpRequest) -> QuerySet[Decision]:
        return decisions_of()

    decision_id = column("decision id", lambda row: row.record.decision_id)
    joined_clusters = column("joins", lambda row: _first_names(row.joins, row.picked_count))
    left_clusters = column("leaves", lambda row: _first_names(row.leaves, row.leaves_count))


# Named here: a query for the kinds would read all events.
_KINDS = [(kind, kind) for kind in (CLUSTER, PLACEMENT, RESOURCE, BUDGET)]
KindFilter = list_filter("kind", "kind", _KINDS, lambda rows, value: rows.filter(kind=value))


@admin.register(Event)
class EventAdmin(ReadOnlyAdmin):
    list_display = ("at", "actor_name", "verb", "kind", "name", "revision")
    list_filter = (KindFilter,)
    linked_lookups = ("name",)
    search_fields = ("name", "actor_name")
    search_help_text = "Part of the name of an object or a user."
    ordering = ("-at", "-pk")
    fields = (("at", "actor_name"), ("verb", "kind", "name", "revision"), "before_text", "after_text")
    large_columns = ("before", "after")

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Any], search_term: str
    ) -> tuple[QuerySet[Any], bool]:
        """Search names and people, every word on its own."""
        for word in search_term.split():
            queryset = queryset.filter(Q(name__contains=word) | Q(actor_name__contains=word))
        return queryset, False

    before_text = column("before", lambda row: structured(row.before))
    after_text = column("after", lambda row: structured(row.after))


@admin.register(Drain)
class DrainAdmin(ReadOnlyAdmin):
    """Drains; they are started and canceled on the pages of their clusters."""

    list_display = ("cluster_name", "state", "at_once", "deadline", "started_by", "started_at", "ended_at")
    list_filter = ("state",)
    search_fields = ("cluster_name",)
    ordering = ("-pk",)
    fields = (
        ("cluster_name", "state"),
        ("at_once", "per_placement", "deadline"),
        ("started_by", "started_at"),
        ("ended_at", "ended_reason"),
        "order",
        "placements",
    )

    order = column("priority", lambda row: ", ".join(row.first) or NONE)

    @admin.display(description="placements")
    def placements(self, drain: Drain) -> SafeString:
        rows = drain.steps.order_by("placement_name")
        return block("\n".join(f"{one.placement_name}: {step_sentence(one)}" for one in rows))


@admin.register(Eviction)
class EvictionAdmin(ReadOnlyAdmin):
    list_display = ("placement_name", "cluster_name", "outcome", "result", "by", "at")
    list_display_links = ("placement_name", "cluster_name")
    list_filter = ("outcome",)
    search_fields = ("=placement_name", "=cluster_name")
    search_help_text = "The name of a placement, or of a cluster."
    ordering = ("-pk",)
    fields = (("placement_name", "cluster_name"), ("outcome", "why"), "result", ("by", "at"), "document_text")
    large_columns = ("document",)

    result = column("result", event_line)
    document_text = column("document", lambda row: structured(row.document))


@admin.register(DisruptionBudget)
class DisruptionBudgetAdmin(ReadOnlyAdmin):
    list_display = ("name", "revision", "created_at", "updated_at")
    search_fields = ("name",)
    ordering = ("name",)
    fields = (("name", "revision"), ("created_at", "updated_at"), "manifest")
    large_columns = ("document",)

    manifest = column("manifest", lambda row: block(dump_yaml(row.document)))


def _first_names(clusters: list[str], count: int) -> str:
    """Return names of clusters; the row of a decision has the first few, its record all."""
    return ", ".join(clusters) + (", …" if 0 < len(clusters) < count else "") if clusters else NONE
