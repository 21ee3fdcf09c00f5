"""Admin lists, to look at only, of drains, evictions and the budgets that hold them."""

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils.safestring import SafeString

from placements.admin.display import NONE, block, structured
from placements.admin.looking import LookOnly
from placements.manifests import dump_yaml
from placements.models import DisruptionBudget, Drain, Eviction
from placements.queries.disruptions import said_of, step_sentence


@admin.register(Drain)
class DrainAdmin(LookOnly):
    """Clusters that were emptied, or are; begun and cancelled on the clusters themselves."""

    list_display = ("cluster_name", "state", "at_once", "deadline", "started_by", "started_at", "ended_at")
    list_filter = ("state",)
    search_fields = ("cluster_name",)
    ordering = ("-pk",)
    fields = (
        ("cluster_name", "state"),
        ("at_once", "per_placement", "deadline"),
        ("started_by", "started_at"),
        ("ended_at", "ended_because"),
        "order",
        "placements",
    )

    @admin.display(description="go first")
    def order(self, drain: Drain) -> str:
        """Name the placements that go before the others."""
        return ", ".join(drain.first) or NONE

    @admin.display(description="placements")
    def placements(self, drain: Drain) -> SafeString:
        """Say of each placement how far the drain is with it."""
        rows = drain.steps.order_by("placement_name")
        return block("\n".join(f"{one.placement_name}: {step_sentence(one)}" for one in rows))


@admin.register(Eviction)
class EvictionAdmin(LookOnly):
    """Placements that were told to leave clusters, and what became of that."""

    list_display = ("placement_name", "cluster_name", "outcome", "said", "by", "at")
    list_display_links = ("placement_name", "cluster_name")
    list_filter = ("outcome",)
    search_fields = ("=placement_name", "=cluster_name")
    search_help_text = "The name of a placement, or of a cluster."
    ordering = ("-pk",)
    fields = (("placement_name", "cluster_name"), ("outcome", "why"), "said", ("by", "at"), "written")

    def get_queryset(self, request: HttpRequest) -> QuerySet[Eviction]:
        """Give the evictions; the document only where one is opened."""
        rows: QuerySet[Eviction] = super().get_queryset(request)
        return rows.defer("document")

    @admin.display(description="what became of it")
    def said(self, eviction: Eviction) -> str:
        """Say it in a sentence."""
        return said_of(eviction)

    @admin.display(description="document")
    def written(self, eviction: Eviction) -> SafeString:
        """Show the document that it came as, if it did."""
        return structured(eviction.document)


@admin.register(DisruptionBudget)
class DisruptionBudgetAdmin(LookOnly):
    """How many clusters evictions may take from a placement."""

    list_display = ("name", "revision", "created_at", "updated_at")
    search_fields = ("name",)
    ordering = ("name",)
    fields = (("name", "revision"), ("created_at", "updated_at"), "manifest")

    def get_queryset(self, request: HttpRequest) -> QuerySet[DisruptionBudget]:
        """Give the budgets; the manifest only where one is opened."""
        rows: QuerySet[DisruptionBudget] = super().get_queryset(request)
        return rows.defer("document")

    @admin.display(description="manifest")
    def manifest(self, budget: DisruptionBudget) -> SafeString:
        """Show the manifest as it was written."""
        return block(dump_yaml(budget.document))
