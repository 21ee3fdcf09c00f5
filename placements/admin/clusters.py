"""Member clusters in the admin: the list, the form, the actions; every change is an operation's."""

from typing import Any

from django.contrib import admin
from django.contrib.admin.views.main import ChangeList
from django.db import transaction
from django.db.models import Count, IntegerField, OuterRef, Prefetch, QuerySet, Subquery
from django.db.models.functions import Coalesce
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.urls import reverse
from django.utils import timezone
from django.utils.http import urlencode
from django.utils.safestring import SafeString

from clusters.models import CORDON_KEY, CORDON_VALUE, ClusterLabel, ClusterTaint, MemberCluster, Membership
from clusters.operations.fleet_changes import lock_fleet
from clusters.operations.joining import CLUSTER, put_cluster
from clusters.queries import manifest_of
from placements.admin.access import ByRole
from placements.admin.cluster_actions import ACTIONS, admin_action, cluster_urls
from placements.admin.cluster_filters import (
    DemoFilter,
    LabelFilter,
    StateFilter,
    VerdictFilter,
    matching_words,
)
from placements.admin.cluster_forms import ClusterForm, ClusterRows, LabelRow, TaintRow
from placements.admin.display import NONE, age, badge, block, chips, structured, table
from placements.explain.wording import ELIGIBILITY_WORDS
from placements.manifests import dump_yaml
from placements.models import Binding
from placements.scheduling.bindings import BindingState

_LABELS_SHOWN = 6
_BLOBS = ("document", "connection", "properties", "usage")


class RowInline(ByRole, admin.TabularInline):
    """Rows of the form that operators may add and take out."""

    formset = ClusterRows
    extra = 1

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Let operators take rows out of the form."""
        return self.has_change_permission(request, obj)


class LabelInline(RowInline):
    """The labels of a cluster."""

    model, form = ClusterLabel, LabelRow
    ordering = ("key",)
    verbose_name, verbose_name_plural = "label", "labels"


class TaintInline(RowInline):
    """The taints of a cluster."""

    model, form = ClusterTaint, TaintRow
    ordering = ("pk",)
    verbose_name, verbose_name_plural = "taint", "taints (NoSchedule)"


class ClusterChangeList(ChangeList):
    """The list without the large columns, with labels and taints fetched at once."""

    def get_queryset(self, request: HttpRequest, exclude_parameters: Any = None) -> QuerySet[MemberCluster]:
        """Give the rows of the list."""
        rows: QuerySet[MemberCluster] = super().get_queryset(request, exclude_parameters)
        return rows.defer(*_BLOBS).prefetch_related(
            Prefetch("labels", ClusterLabel.objects.order_by("key")),
            Prefetch("taints", ClusterTaint.objects.order_by("pk")),
        )


@admin.register(MemberCluster)
class MemberClusterAdmin(ByRole, admin.ModelAdmin):
    """Operators work here; viewers and approvers look."""

    list_display = ("name", "state", "label_chips", "taint_list", "heartbeat", "placements_here", "demo")
    list_filter = (StateFilter, LabelFilter, VerdictFilter, DemoFilter)
    list_per_page = 50
    list_max_show_all = 500
    ordering = ("name",)
    search_fields = ("name",)
    search_help_text = "Part of a name, the value of a label, or key:value. Every word has to match."
    show_full_result_count = False
    show_facets = admin.ShowFacets.NEVER
    save_on_top = False
    actions = [admin_action(one) for one in ACTIONS.values()]
    form = ClusterForm
    inlines = (LabelInline, TaintInline)
    readonly_fields = (
        "state",
        "heartbeat",
        "placements_here",
        "demo",
        "identity",
        "property_table",
        "usage_table",
        "manifest",
    )

    def get_urls(self) -> list[Any]:
        """Give the pages of the actions and of the import ahead of Django's own."""
        return [*cluster_urls(self), *super().get_urls()]

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[ChangeList]:
        """Give the list without the large columns."""
        return ClusterChangeList

    def get_queryset(self, request: HttpRequest) -> QuerySet[MemberCluster]:
        """Give the clusters with how many placements each has."""
        here = Binding.objects.filter(cluster_name=OuterRef("name")).exclude(state=BindingState.UNSCHEDULED)
        counted = here.order_by().values("cluster_name").annotate(count=Count("pk")).values("count")
        rows: QuerySet[MemberCluster] = super().get_queryset(request)
        return rows.annotate(bindings_count=Coalesce(Subquery(counted, output_field=IntegerField()), 0))

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Any], search_term: str
    ) -> tuple[QuerySet[Any], bool]:
        """Search names and labels; no row comes twice."""
        return matching_words(queryset, search_term), False

    def get_readonly_fields(self, request: HttpRequest, obj: MemberCluster | None = None) -> tuple[str, ...]:
        """Keep name and driver once the cluster has joined."""
        return (*self.readonly_fields, "name", "driver_name") if obj else self.readonly_fields

    def get_fieldsets(self, request: HttpRequest, obj: MemberCluster | None = None) -> Any:
        """Give what is typed first, then what is only read."""
        identity = ("identity_kind", "identity_name", "identity_namespace", "identity_group")
        typed = (identity, "heartbeat_period", "started_from")
        if obj is None:
            return ((None, {"fields": ("name", "driver")}), ("Member agent", {"fields": typed}))
        may_change = self.has_change_permission(request, obj)
        return (
            (None, {"fields": ("name", ("state", "heartbeat"), ("driver_name", "placements_here", "demo"))}),
            ("Member agent", {"fields": typed if may_change else ("identity",)}),
            ("Reported", {"fields": ("property_table", "usage_table")}),
            ("Manifest", {"fields": ("manifest",), "classes": ("collapse",)}),
        )

    def changelist_view(self, request: HttpRequest, extra_context: dict[str, str] | None = None) -> Any:
        """Show the list under its own name."""
        return super().changelist_view(request, {"title": "Member clusters", **(extra_context or {})})

    def changeform_view(
        self,
        request: HttpRequest,
        object_id: str | None = None,
        form_url: str = "",
        extra_context: dict[str, Any] | None = None,
    ) -> Any:
        """Show or save; while saving nobody else changes the fleet, so what was checked still holds."""
        if request.method != "POST":
            return super().changeform_view(request, object_id, form_url, extra_context)
        with transaction.atomic():
            lock_fleet()
            return super().changeform_view(request, object_id, form_url, extra_context)

    def save_form(self, request: HttpRequest, form: Any, change: bool) -> MemberCluster:
        """Give the instance untouched."""
        instance: MemberCluster = form.instance
        return instance

    def save_model(self, request: HttpRequest, obj: MemberCluster, form: Any, change: bool) -> None:
        """Save by the operation; the instance learns what it became."""
        expected = form.cleaned_data.get("started_from") or 0
        put = put_cluster(form.wanted, by=request.user, now=timezone.now(), expected=expected)  # type: ignore[arg-type]
        obj.name = put.name
        obj.pk = MemberCluster.objects.values_list("pk", flat=True).get(name=put.name)

    def save_related(self, request: HttpRequest, form: Any, formsets: Any, change: bool) -> None:
        """Save nothing: labels and taints went with the manifest."""

    def construct_change_message(
        self, request: HttpRequest, form: Any, formsets: Any, add: Any = False
    ) -> Any:
        """Say nothing: the operation's event does."""
        return []

    def log_addition(self, request: HttpRequest, obj: Any, message: Any) -> Any:
        """Leave it to the operation's event."""

    def log_change(self, request: HttpRequest, obj: Any, message: Any) -> Any:
        """Leave it to the operation's event."""

    def history_view(
        self,
        request: HttpRequest,
        object_id: str,
        extra_context: Any = None,
    ) -> HttpResponse:
        """Show the events of the cluster."""
        cluster = self.get_object(request, object_id)
        query = urlencode({"kind": CLUSTER, "name": cluster.name if cluster else ""})
        return redirect(f"{reverse('admin:fleetui_event_changelist')}?{query}")

    @admin.display(description="state", ordering="verdict")
    def state(self, cluster: MemberCluster) -> SafeString:
        """Say in words whether the cluster may be picked, and why not."""
        if cluster.membership == Membership.LEAVING:
            return badge("off", "Leaving")
        if cluster.is_eligible:
            return badge("good", "Eligible")
        why = dict(ELIGIBILITY_WORDS.items()).get(cluster.verdict, cluster.verdict_reason)  # type: ignore[call-overload]
        joining = cluster.membership == Membership.JOINING
        return badge("off", "Joining", why) if joining else badge("bad", "Not eligible", why)

    @admin.display(description="labels")
    def label_chips(self, cluster: MemberCluster) -> SafeString | str:
        """Show the first labels; each leads to the clusters that share it."""
        labels = list(cluster.labels.all())
        links = [
            (f"?{urlencode({'label': f'{one.key}:{one.value}'})}", str(one)) for one in labels[:_LABELS_SHOWN]
        ]
        return chips(links, hidden=max(len(labels) - _LABELS_SHOWN, 0)) if labels else NONE

    @admin.display(description="taints")
    def taint_list(self, cluster: MemberCluster) -> SafeString | str:
        """Show taints; that of the drain tool is called by its name."""
        taints = list(cluster.taints.all())
        others = ", ".join(f"{one.key}={one.value}" for one in taints if not _is_cordon(one))
        if any(map(_is_cordon, taints)):
            return badge("off", "Cordoned", others)
        return others or NONE

    @admin.display(description="heartbeat", ordering="heartbeat_at")
    def heartbeat(self, cluster: MemberCluster) -> str:
        """Say how old the last heartbeat is; without a driver nobody waits for one."""
        if cluster.heartbeat_at is None and not cluster.expects_report:
            return "not observed"
        return age(cluster.heartbeat_at, now=timezone.now())

    @admin.display(description="placements here", ordering="bindings_count")
    def placements_here(self, cluster: MemberCluster) -> SafeString | str:
        """Count the placements; the number leads to their bindings."""
        count: int = getattr(cluster, "bindings_count", 0)
        if not count:
            return "0"
        link = f"{reverse('admin:placements_binding_changelist')}?{urlencode({'cluster_name': cluster.name})}"
        return chips([(link, str(count))])

    @admin.display(description="driver")
    def driver_name(self, cluster: MemberCluster) -> str:
        """Name the driver."""
        return cluster.driver or "none: nobody observes it"

    @admin.display(description="demo", ordering="is_demo")
    def demo(self, cluster: MemberCluster) -> str:
        """Mark what a demo brought."""
        return "demo" if cluster.is_demo else NONE

    @admin.display(description="identity")
    def identity(self, cluster: MemberCluster) -> SafeString:
        """Show who the member agent is."""
        return table(cluster.document["spec"].get("identity") or {})

    @admin.display(description="properties")
    def property_table(self, cluster: MemberCluster) -> SafeString:
        """Show the properties last reported."""
        return table(cluster.properties)

    @admin.display(description="usage")
    def usage_table(self, cluster: MemberCluster) -> SafeString:
        """Show the resources last reported."""
        return structured(cluster.usage)

    @admin.display(description="manifest")
    def manifest(self, cluster: MemberCluster) -> SafeString:
        """Show the manifest as it was written, with our status."""
        return block(dump_yaml(manifest_of(cluster)))


def _is_cordon(taint: ClusterTaint) -> bool:
    return (taint.key, taint.value) == (CORDON_KEY, CORDON_VALUE)
