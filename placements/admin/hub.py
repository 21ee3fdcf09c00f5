"""Placements, what they left behind, resources and events: to look at, never to change."""

from typing import Any

from django.contrib import admin
from django.db.models import Q, QuerySet
from django.http import HttpRequest
from django.urls import reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString

from clusters.operations.joining import CLUSTER
from fleetui.models import Event
from placements.admin.display import NONE, badge, block, structured
from placements.admin.looking import LookOnly
from placements.manifests import dump_yaml
from placements.models import (
    Binding,
    Decision,
    Placement,
    PolicySnapshot,
    Resource,
    ResourceSnapshot,
)
from placements.operations.budgets import BUDGET
from placements.operations.placements import PLACEMENT
from placements.operations.resources import RESOURCE
from placements.queries.lists import PlacementFilter, State, decisions_of, placements_matching
from placements.scheduling.hub.secrets import without_secrets


class PlacementStateFilter(admin.SimpleListFilter):
    """Fulfilled, pending and so on, as everywhere."""

    title = "state"
    parameter_name = "state"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        """Give the states."""
        return [(state.value, state.value) for state in State]

    def queryset(self, request: HttpRequest, rows: QuerySet[Placement]) -> QuerySet[Placement]:
        """Keep the placements in that state."""
        wanted = self.value()
        if wanted not in set(State):
            return rows
        return rows.filter(pk__in=placements_matching(PlacementFilter(state=State(wanted))).values("pk"))


@admin.register(Placement)
class PlacementAdmin(LookOnly):
    """Placements; they are changed on their own pages."""

    list_display = (
        "name",
        "state",
        "placement_type",
        "number_of_clusters",
        "placed_count",
        "semantics",
        "updated_at",
    )
    list_filter = (PlacementStateFilter, "placement_type", "semantics", "is_demo")
    search_fields = ("name",)
    ordering = ("name",)
    fields = (
        "page",
        "name",
        "state",
        ("placement_type", "number_of_clusters", "semantics"),
        ("placed_count", "decisions_made", "keeps_looking"),
        ("asked_because", "asked_by"),
        ("created_at", "updated_at", "deleting_since"),
        "manifest",
    )

    def get_queryset(self, request: HttpRequest) -> QuerySet[Placement]:
        """Give the placements; the manifest only where one is opened."""
        rows: QuerySet[Placement] = super().get_queryset(request)
        return rows.defer("document", "label_keys_read", "property_names_read")

    @admin.display(description="page")
    def page(self, placement: Placement) -> SafeString:
        """Lead to the placement's own page."""
        url = reverse("pages:placement", args=[placement.name])
        return format_html('<a href="{}">Open in the console</a>', url)

    @admin.display(description="state", ordering="is_fulfilled")
    def state(self, placement: Placement) -> SafeString:
        """Say how far it is."""
        if placement.deleting_since:
            return badge("off", "Being deleted")
        if placement.selection_faults:
            return badge("bad", "Invalid", "its resource selectors are at fault")
        if placement.is_due:
            return badge("off", "Pending", placement.asked_because)
        return badge("good", "Fulfilled") if placement.is_fulfilled else badge("bad", "Not fulfilled")

    @admin.display(description="manifest")
    def manifest(self, placement: Placement) -> SafeString:
        """Show the manifest as it was written."""
        return block(dump_yaml(placement.document))


@admin.register(Resource)
class ResourceAdmin(LookOnly):
    """The objects on the hub; what a Secret holds is not shown."""

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

    def get_queryset(self, request: HttpRequest) -> QuerySet[Resource]:
        """Give the objects; the content only where one is opened."""
        rows: QuerySet[Resource] = super().get_queryset(request)
        return rows.defer("content", "labels")

    @admin.display(description="manifest")
    def manifest(self, resource: Resource) -> SafeString:
        """Show the object."""
        return block(dump_yaml(without_secrets(resource.content)))


@admin.register(PolicySnapshot)
class PolicySnapshotAdmin(LookOnly):
    """The policies that placements had."""

    list_display = ("placement_name", "number", "semantics", "is_latest", "created_by", "created_at")
    list_display_links = ("placement_name", "number")
    list_filter = ("is_latest", "semantics")
    list_select_related = ("placement",)
    search_fields = ("placement__name",)
    ordering = ("-pk",)
    fields = (("placement_name", "number", "is_latest"), ("created_by", "created_at"), "semantics", "said")

    def get_queryset(self, request: HttpRequest) -> QuerySet[PolicySnapshot]:
        """Give the snapshots; the policy only where one is opened."""
        rows: QuerySet[PolicySnapshot] = super().get_queryset(request)
        return rows.defer("policy", "options", "placement__document")

    @admin.display(description="placement", ordering="placement__name")
    def placement_name(self, snapshot: PolicySnapshot) -> str:
        """Name the placement."""
        return snapshot.placement.name

    @admin.display(description="policy")
    def said(self, snapshot: PolicySnapshot) -> SafeString:
        """Show policy and options."""
        return block(dump_yaml({"policy": snapshot.policy, "options": snapshot.options}))


@admin.register(ResourceSnapshot)
class ResourceSnapshotAdmin(LookOnly):
    """What placements took along; the contents stay in their parts."""

    list_display = ("placement_name", "number", "objects_count", "is_latest", "created_by", "created_at")
    list_display_links = ("placement_name", "number")
    list_filter = ("is_latest",)
    list_select_related = ("placement",)
    search_fields = ("placement__name",)
    ordering = ("-pk",)
    fields = (
        ("placement_name", "number", "is_latest"),
        ("created_by", "created_at"),
        "objects_count",
        "objects",
    )

    def get_queryset(self, request: HttpRequest) -> QuerySet[ResourceSnapshot]:
        """Give the snapshots; the names of their objects only where one is opened."""
        rows: QuerySet[ResourceSnapshot] = super().get_queryset(request)
        return rows.defer("identities", "placement__document")

    @admin.display(description="placement", ordering="placement__name")
    def placement_name(self, snapshot: ResourceSnapshot) -> str:
        """Name the placement."""
        return snapshot.placement.name

    @admin.display(description="objects")
    def objects(self, snapshot: ResourceSnapshot) -> SafeString:
        """Name the objects."""
        return block("\n".join(" ".join(filter(None, identity)) for identity in snapshot.identities))


@admin.register(Binding)
class BindingAdmin(LookOnly):
    """Which placement is on which cluster."""

    list_display = (
        "placement_name",
        "cluster_name",
        "state",
        "policy_number",
        "decision_number",
        "picked_at",
    )
    list_display_links = ("placement_name", "cluster_name")
    list_filter = ("state",)
    list_select_related = ("placement", "policy_snapshot", "decision")
    search_fields = ("=cluster_name", "placement__name")
    ordering = ("placement__name", "cluster_name")
    fields = (
        ("placement_name", "cluster_name"),
        ("state", "previous_state"),
        ("policy_number", "decision_number", "picked_at"),
        ("topology_spread_score", "affinity_score"),
    )

    def get_queryset(self, request: HttpRequest) -> QuerySet[Binding]:
        """Give the bindings without the large columns of what they belong to."""
        rows: QuerySet[Binding] = super().get_queryset(request)
        return rows.select_related(*self.list_select_related).defer(
            "placement__document", "policy_snapshot__policy", "decision__joins", "decision__leaves"
        )

    @admin.display(description="placement", ordering="placement__name")
    def placement_name(self, binding: Binding) -> str:
        """Name the placement."""
        return binding.placement.name

    @admin.display(description="policy")
    def policy_number(self, binding: Binding) -> int:
        """Give the number of the policy that it was picked under."""
        return binding.policy_snapshot.number

    @admin.display(description="decision")
    def decision_number(self, binding: Binding) -> int:
        """Give the number of the decision that picked it."""
        return binding.decision.number


@admin.register(Decision)
class DecisionAdmin(LookOnly):
    """Scheduling cycles that decided something; their records are read on the console's pages."""

    list_display = (
        "placement_name",
        "number",
        "kind",
        "is_fulfilled",
        "came",
        "went",
        "because",
        "asked_by",
        "created_at",
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
        "came",
        "went",
        ("because", "asked_by"),
        ("created_at", "milliseconds"),
    )

    def get_queryset(self, request: HttpRequest) -> QuerySet[Decision]:
        """Give the decisions with the ids of their records, without the records."""
        return decisions_of()

    @admin.display(description="decision id")
    def decision_id(self, decision: Decision) -> str:
        """Give the hash of its inputs."""
        return decision.record.decision_id

    @admin.display(description="joins")
    def came(self, decision: Decision) -> str:
        """Name the clusters that came."""
        return _named(decision.joins, decision.picked_count)

    @admin.display(description="leaves")
    def went(self, decision: Decision) -> str:
        """Name the clusters that went."""
        return _named(decision.leaves, decision.unscheduled_count)


class KindFilter(admin.SimpleListFilter):
    """What the event is about; the kinds are known, so the table is not read for them."""

    title = "kind"
    parameter_name = "kind"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        """Give the kinds."""
        return [(kind, kind) for kind in (CLUSTER, PLACEMENT, RESOURCE, BUDGET)]

    def queryset(self, request: HttpRequest, rows: QuerySet[Event]) -> QuerySet[Event]:
        """Keep the events about that kind."""
        return rows.filter(kind=self.value()) if self.value() else rows


@admin.register(Event)
class EventAdmin(LookOnly):
    """Who did what to which object, the last first."""

    list_display = ("at", "actor_name", "verb", "kind", "name", "revision")
    list_filter = (KindFilter,)
    search_fields = ("name", "actor_name")
    search_help_text = "Part of an object's name, or of who did it."
    ordering = ("-pk",)
    fields = (("at", "actor_name"), ("verb", "kind", "name", "revision"), "was", "became")

    def get_queryset(self, request: HttpRequest) -> QuerySet[Event]:
        """Give the events; what was before and after only where one is opened."""
        rows: QuerySet[Event] = super().get_queryset(request)
        return rows.defer("before", "after")

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Any], search_term: str
    ) -> tuple[QuerySet[Any], bool]:
        """Search names and people, every word on its own."""
        for word in search_term.split():
            queryset = queryset.filter(Q(name__contains=word) | Q(actor_name__contains=word))
        return queryset, False

    @admin.display(description="before")
    def was(self, event: Event) -> SafeString:
        """Show the object as it was."""
        return structured(without_secrets(event.before))

    @admin.display(description="after")
    def became(self, event: Event) -> SafeString:
        """Show the object as it became."""
        return structured(without_secrets(event.after))


def _named(clusters: list[str], count: int) -> str:
    """Name clusters; a decision's row keeps the first few, its record all."""
    return ", ".join(clusters) + (", …" if 0 < len(clusters) < count else "") if clusters else NONE
