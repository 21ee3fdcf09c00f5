"""Member clusters in the admin: the list with its filters, two forms; changes are made by operations."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from datetime import UTC, datetime
from typing import Any

from django import forms
from django.contrib import admin, messages
from django.contrib.admin.views.main import ChangeList
from django.db import transaction
from django.db.models import Prefetch, Q, QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import redirect
from django.template.loader import render_to_string
from django.urls import reverse
from django.utils import timezone
from django.utils.html import format_html, format_html_join
from django.utils.http import urlencode
from django.utils.safestring import SafeString

from clusters.connection_input import CLUSTER_KINDS, CLUSTER_NAME_HINT, DRIVERS_BY_KIND
from clusters.credentials import credential_of, public_facts
from clusters.drivers.base import KUBERNETES
from clusters.drivers.kubernetes.properties import ENTRYPOINT
from clusters.filters import (
    ClusterFilter,
    ClusterFilterState,
    clusters_matching,
    groups_of,
    label_keys,
)
from clusters.fleet import CORDON_KEY, CORDON_VALUE, is_cordon
from clusters.models import ClusterLabel, ClusterTaint, MemberCluster
from clusters.operations.change_log import lock_fleet
from clusters.operations.connection import new_member
from clusters.operations.join import CLUSTER, ClusterSpec, parse_cluster, put_cluster
from clusters.queries import manifest_of
from fleetui.apimachinery.errors import InvalidManifest, split_path
from fleetui.apimachinery.yaml import dump_yaml
from fleetui.concurrency import RevisionConflict, check_revision
from fleetui.hub_scope import LOCAL_HUB, current_hub_id
from fleetui.permissions import may_administer_clusters, may_operate, may_read
from placements.explain.clusters import cluster_status
from placements.explain.vocabulary import ELIGIBILITY_WORDS
from placements.services.bulk_changes import BULK_ACTIONS
from placements.services.fleet.forms import (
    LABELS_PATH,
    TAINTS_PATH,
    read_cluster,
    row_context,
    taint_text,
    taints_without_cordon,
    typed_rows,
    with_cordon,
    write_labels,
    write_taints,
)
from placements.services.fleet.queries import placed_count

NONE = "–"  # noqa: RUF001 -- the dash of tables


class RoleAdmin(admin.ModelAdmin):
    """A list that counts no more than it has to; every role reads, operators add and change.

    Rows are deleted by operations only, and those of a live hub are changed by its projection only.
    """

    list_per_page = 50
    list_max_show_all = 500
    show_full_result_count = False
    show_facets = admin.ShowFacets.NEVER

    def has_module_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return may_read(request.user)

    def has_add_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return may_operate(request.user) and current_hub_id() == LOCAL_HUB

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    has_view_permission, has_change_permission = (
        has_module_permission,
        has_add_permission,
    )

    def changelist_view(
        self, request: HttpRequest, extra_context: dict[str, str] | None = None
    ) -> Any:
        title = str(self.opts.verbose_name_plural).capitalize()
        return super().changelist_view(
            request, {"title": title, **(extra_context or {})}
        )


def list_filter(
    title: str,
    parameter: str,
    choices: Sequence[tuple[str, str]],
    narrow: Callable[[QuerySet[Any], str], QuerySet[Any]],
) -> type[admin.SimpleListFilter]:
    """Return a filter of a list: its values with their words, and what `narrow` leaves of the rows."""

    class Filter(admin.SimpleListFilter):
        def lookups(
            self, request: HttpRequest, model_admin: Any
        ) -> Sequence[tuple[str, str]]:
            return choices

        def queryset(
            self, request: HttpRequest, queryset: QuerySet[Any]
        ) -> QuerySet[Any]:
            value = self.value()
            return narrow(queryset, value) if value else queryset

    Filter.title, Filter.parameter_name = title, parameter
    return Filter


def column(
    description: str, write: Callable[[Any], Any], *, ordering: str | None = None
) -> Any:
    """Return a column or field of an admin: what `write` makes of a row."""

    def show(_model_admin: Any, row: Any) -> Any:
        return write(row)

    return admin.display(show, description=description, ordering=ordering)


def moment(at: datetime | None) -> str:
    """Return a time: pages of the admin are not kept current, so an age would become wrong."""
    return "Never" if at is None else f"{at.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"


def badge(sort: str, words: str, more: str = "") -> SafeString:
    """Return a status as a colored word, and its message beside it."""
    word = format_html('<span class="state-{}">{}</span>', sort, words)
    return (
        format_html('{} <span class="state-why">{}</span>', word, more)
        if more
        else word
    )


def chips(links: Iterable[tuple[str, str]], *, hidden: int = 0) -> SafeString:
    """Return short texts with their links, and the number of those that are not shown."""
    visible = format_html_join(" ", '<a class="chip" href="{}">{}</a>', links)
    return (
        format_html('{} <span class="quiet">+{}</span>', visible, hidden)
        if hidden
        else visible
    )


def table(rows: Mapping[str, Any]) -> SafeString:
    if not rows:
        return format_html("{}", NONE)
    lines = format_html_join(
        "", '<tr><th scope="row">{}</th><td>{}</td></tr>', sorted(rows.items())
    )
    return format_html('<table class="facts">{}</table>', lines)


_LABELS_SHOWN = 6
_MOST_SELECTED = 200
"""Names of clusters in the address of a page of the console."""
_KEYS_SHOWN = 15
_FIELDS: Mapping[tuple[str | int, ...], str] = {
    ("metadata", "name"): "name",
    ("spec", "identity"): "identity_name",
    ("spec", "identity", "kind"): "identity_kind",
    ("spec", "identity", "name"): "identity_name",
    ("spec", "identity", "namespace"): "identity_namespace",
    ("spec", "identity", "apiGroup"): "identity_group",
    ("spec", "heartbeatPeriodSeconds"): "heartbeat_period",
}
_IDENTITY = {
    "kind": "kind",
    "name": "name",
    "namespace": "namespace",
    "apiGroup": "group",
}


def _in_state(rows: QuerySet[MemberCluster], value: str) -> QuerySet[MemberCluster]:
    if value not in set(ClusterFilterState):
        return rows
    matching = clusters_matching(ClusterFilter(state=ClusterFilterState(value)))
    return rows.filter(pk__in=matching.values("pk"))


_TYPED = (
    "name",
    "kind",
    "label_key",
    "label_value",
    "taint_key",
    "taint_value",
    "taint_effect",
)
"""What the console takes over of a new cluster that it connects."""
_DRIVER_NAMES = {
    DRIVERS_BY_KIND.get(kind, kind): name for kind, name, _ in CLUSTER_KINDS
}
_MAINTENANCE = {
    True: (
        "uncordon",
        "Cordoned: new placements need a matching toleration.",
        "Uncordon",
    ),
    False: ("drain", "Not cordoned.", "Cordon or drain"),
}
"""By whether a cluster is cordoned: the page, the state, and the link to the page."""
_SIGNS = {"healthy": "good", "attention": "warn", "failed": "bad"}
"""How the admin draws the levels of a status; others are quiet."""
_STATES = [
    (ClusterFilterState.READY, "Ready"),
    (ClusterFilterState.NOT_ELIGIBLE, "Not ready"),
    (ClusterFilterState.UNHEALTHY, "Unhealthy"),
    (ClusterFilterState.WORKLOADS_FAILING, "Workloads failing"),
    (ClusterFilterState.HEARTBEAT_LATE, "Heartbeat late"),
    (ClusterFilterState.NOT_MONITORED, "Not monitored"),
    (ClusterFilterState.CORDONED, "Cordoned"),
    (ClusterFilterState.JOINING, "Joining"),
    (ClusterFilterState.LEAVING, "Leaving"),
]
StateFilter = list_filter("status", "state", _STATES, _in_state)
VerdictFilter = list_filter(
    "not-ready reason",
    "verdict",
    [(kind.value, words) for kind, words in ELIGIBILITY_WORDS.items()],
    lambda rows, value: rows.filter(verdict=value),
)
DemoFilter = list_filter(
    "demo",
    "demo",
    [("yes", "Demo"), ("no", "Not demo")],
    lambda rows, value: (
        rows.filter(is_demo=value == "yes") if value in ("yes", "no") else rows
    ),
)


class LabelFilter(admin.ListFilter):
    """By labels: `label=region:east`, shown and typed as `region=east`, or `label=region` for any value.

    All of several have to match.

    Offers keys first, then the values of a chosen key, so that thousands of values do no harm.
    """

    title = "label"
    parameter_name = "label"
    template = "admin/clusters/membercluster/label_filter.html"

    def __init__(
        self,
        request: HttpRequest,
        params: dict[str, Any],
        model: Any,
        model_admin: Any,
    ) -> None:
        super().__init__(request, params, model, model_admin)
        typed = (one.strip() for one in params.pop(self.parameter_name, []))
        labels = (one.replace("=", ":", 1) for one in typed)
        self.labels = tuple(
            dict.fromkeys(label for label in labels if label and "\0" not in label)
        )
        if self.labels:
            self.used_parameters[self.parameter_name] = list(self.labels)

    def has_output(self) -> bool:
        return True

    def expected_parameters(self) -> list[str | None]:
        return [self.parameter_name]

    def queryset(
        self, request: HttpRequest, rows: QuerySet[MemberCluster]
    ) -> QuerySet[MemberCluster]:
        if not self.labels:
            return rows
        return rows.filter(
            pk__in=clusters_matching(ClusterFilter(labels=self.labels)).values("pk")
        )

    def choices(self, changelist: ChangeList) -> Iterator[dict[str, Any]]:
        """Yield the whole filter for its template: what is chosen, and what may be chosen next."""
        yield {
            "name": self.parameter_name,
            "chosen": [
                {
                    "display": label.replace(":", "=", 1),
                    "query_string": self._link(changelist, without=label),
                }
                for label in self.labels
            ],
            "next": list(self._next(changelist)),
            "kept": [
                (name, value)
                for name, values in changelist.filter_params.items()
                for value in values
            ],
        }

    def _next(self, changelist: ChangeList) -> Iterator[dict[str, str | int]]:
        keys = [label for label in self.labels if ":" not in label]
        for key in keys:
            for value, count in groups_of([key], most=_KEYS_SHOWN)[key]:
                link = self._link(changelist, without=key, plus=f"{key}:{value}")
                yield {
                    "display": f"{key}={value}",
                    "count": count,
                    "query_string": link,
                }
        if keys:
            return
        used = {label.partition(":")[0] for label in self.labels}
        by_use = sorted(label_keys(), key=lambda row: (-row[1], row[0]))
        for key, count in [row for row in by_use if row[0] not in used][:_KEYS_SHOWN]:
            yield {
                "display": key,
                "count": count,
                "query_string": self._link(changelist, plus=key),
            }

    def _link(
        self,
        changelist: ChangeList,
        *,
        without: str = "",
        plus: str = "",
    ) -> str:
        labels = [
            *(label for label in self.labels if label != without),
            *([plus] if plus else []),
        ]
        return changelist.get_query_string({self.parameter_name: labels or None})


def _put(part: dict[str, Any], key: str, value: Any) -> None:
    """Set a field of a manifest, or remove it for None; what is equal stays as it was written."""
    if value == part.get(key) or (value is None and part.get(key) == ""):
        return
    part.pop(key, None)
    if value is not None:
        part[key] = value


class RowsWidget(forms.Widget):
    """Rows of labels or taints, as in the console; the value is a text with one of them a line."""

    use_fieldset = True

    def __init__(self, part: str) -> None:
        super().__init__()
        self.part = part

    def render(
        self,
        name: str,
        value: Any,
        attrs: Any = None,
        renderer: Any = None,
    ) -> SafeString:
        texts = {"labels": "", "taints": "", self.part: value or ""}
        return render_to_string(
            f"clusters/_{name.removesuffix('s')}_rows.html",
            row_context(texts["labels"], texts["taints"]),
        )

    def value_from_datadict(
        self,
        data: Any,
        files: Any,
        name: str,
    ) -> str:
        labels, taints = typed_rows(data)
        return labels if self.part == "labels" else taints

    def value_omitted_from_data(
        self,
        data: Any,
        files: Any,
        name: str,
    ) -> bool:
        return False


class ClusterForm(forms.ModelForm):
    """Edits a cluster whole; writes the manifest that the operation saves."""

    labels = forms.CharField(required=False, widget=RowsWidget("labels"))
    taints = forms.CharField(required=False, widget=RowsWidget("taints"))
    identity_kind = forms.CharField(required=False, label="Agent kind")
    identity_name = forms.CharField(
        required=False,
        label="Agent name",
        help_text="Identity of the member agent on the hub",
    )
    identity_namespace = forms.CharField(required=False, label="Agent namespace")
    identity_group = forms.CharField(required=False, label="Agent API group")
    heartbeat_period = forms.IntegerField(
        required=False,
        label="Heartbeat period",
        help_text="Seconds between heartbeats (default: 60)",
    )
    started_from = forms.IntegerField(required=False, widget=forms.HiddenInput)

    class Meta:
        model = MemberCluster
        fields: tuple[str, ...] = ()

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        document = self.instance.document if self.instance.pk else new_member("")
        spec = document["spec"]
        identity = spec.get("identity") or {}
        for key, field in _IDENTITY.items():
            self.initial[f"identity_{field}"] = identity.get(key, "")
        self.initial["heartbeat_period"] = spec.get("heartbeatPeriodSeconds")
        self.initial["labels"] = write_labels(document["metadata"].get("labels") or {})
        self.initial["taints"] = write_taints(taints_without_cordon(document))
        if self.instance.pk and self.instance.is_cordoned:
            self.fields["taints"].help_text = (
                f"Cordoned until {self.instance.name} is uncordoned,"
                " whatever its taints are."
            )
        if self.instance.pk:
            self.initial["started_from"] = self.instance.revision

    def _post_clean(self) -> None:
        """Leave the instance as it is in the database."""

    def clean(self) -> dict[str, Any]:
        """Check the revision and the manifest; each error is shown at its field."""
        typed: dict[str, Any] = super().clean() or self.cleaned_data
        name = self.instance.name or typed.get("name", "")
        revision = self.instance.revision
        if not self.instance.pk:
            revision = (
                MemberCluster.objects.filter(name=name)
                .values_list("revision", flat=True)
                .first()
                or 0
            )
        try:
            check_revision(
                CLUSTER,
                name,
                expected=typed.get("started_from") or 0,
                revision=revision,
            )
            parse_cluster(self.manifest(typed))
        except RevisionConflict as error:
            self.add_error("name" if "name" in self.fields else None, str(error))
        except InvalidManifest as invalid:
            for fault in invalid.errors:
                field = _FIELDS.get(split_path(fault.path))
                if fault.path.startswith(LABELS_PATH):
                    field = "labels"
                elif fault.path.startswith(TAINTS_PATH):
                    field = "taints"
                self.add_error(field if field in self.fields else None, str(fault))
        return typed

    def manifest(self, typed: Mapping[str, Any]) -> dict[str, Any]:
        """Return the manifest; what did not change stays as it was written. Raise InvalidManifest."""
        document = new_member(typed.get("name", ""))
        if self.instance.pk:
            document = deepcopy(self.instance.document)
        spec = document["spec"]
        identity = spec.setdefault("identity", {})
        for key, field in _IDENTITY.items():
            value = typed.get(f"identity_{field}") or None
            # What is required stays, so that its error says what is allowed.
            if value is None and key in ("kind", "name"):
                value = ""
            _put(identity, key, value)
        _put(spec, "heartbeatPeriodSeconds", typed.get("heartbeat_period"))

        rows = read_cluster(typed.get("labels", ""), typed.get("taints", ""))
        if rows.errors:
            raise InvalidManifest(rows.errors)
        if typed.get("labels", "") != self.initial["labels"]:
            document["metadata"]["labels"] = rows.labels
        if typed.get("taints", "") != self.initial["taints"]:
            spec["taints"] = with_cordon(rows.taints, document)
        return document


class JoinForm(ClusterForm):
    name = forms.CharField(
        required=False,
        help_text=CLUSTER_NAME_HINT,
    )
    kind = forms.ChoiceField(
        choices=[(kind, f"{name}: {hint}") for kind, name, hint in CLUSTER_KINDS],
        initial=CLUSTER_KINDS[0][0],
        widget=forms.RadioSelect,
        help_text="Save continues with the connection of a Kubernetes cluster.",
    )

    class Meta(ClusterForm.Meta):
        fields = ("name", "kind")


class ClusterChangeList(ChangeList):
    """The list without the large columns, with labels and taints fetched at once."""

    def get_queryset(
        self, request: HttpRequest, exclude_parameters: Any = None
    ) -> QuerySet[MemberCluster]:
        rows: QuerySet[MemberCluster] = super().get_queryset(
            request, exclude_parameters
        )
        return rows.defer(
            "document", "connection", "properties", "usage"
        ).prefetch_related(
            Prefetch("labels", ClusterLabel.objects.order_by("key")),
            Prefetch("taints", ClusterTaint.objects.order_by("pk")),
        )


def _action_on_many(name: str) -> Callable[..., HttpResponse | None]:
    """Return an action of the list: its page in the console, which shows the impact first."""

    def open_page(
        _model_admin: Any, request: HttpRequest, rows: QuerySet[MemberCluster]
    ) -> HttpResponse | None:
        names = list(rows.order_by("name").values_list("name", flat=True))
        if len(names) > _MOST_SELECTED:
            messages.error(
                request,
                f"{len(names)} clusters selected (most: {_MOST_SELECTED})."
                " The list of clusters in the console has actions on all that match.",
            )
            return None
        query = {"name": " ".join(names), "next": request.get_full_path()}
        return redirect(reverse("web:bulk-change", args=[name], query=query))

    open_page.__name__ = name.replace("-", "_")
    return admin.action(
        open_page, permissions=["change"], description=BULK_ACTIONS[name].short_title
    )


@admin.register(MemberCluster)
class MemberClusterAdmin(RoleAdmin):
    """Member clusters whole; actions on many open their pages in the console."""

    list_display = (
        "name",
        "state",
        "label_chips",
        "taint_list",
        "heartbeat",
        "placements_here",
        "demo",
    )
    list_filter = (StateFilter, LabelFilter, VerdictFilter, DemoFilter)
    ordering = ("name",)
    search_fields = ("name",)
    search_help_text = (
        "Part of a name, the value of a label, or key=value. All terms must match."
    )
    save_on_top = False
    actions = [_action_on_many(name) for name in BULK_ACTIONS]
    readonly_fields = (
        "page",
        "state",
        "heartbeat",
        "placements_here",
        "demo",
        "label_chips",
        "taint_list",
        "maintenance",
        "driver_name",
        "identity",
        "property_table",
        "manifest",
        "credential_table",
    )

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[ChangeList]:
        return ClusterChangeList

    def get_queryset(self, request: HttpRequest) -> QuerySet[MemberCluster]:
        rows: QuerySet[MemberCluster] = super().get_queryset(request)
        return rows.annotate(bindings_count=placed_count())

    def get_object(
        self,
        request: HttpRequest,
        object_id: str,
        from_field: str | None = None,
    ) -> MemberCluster | None:
        """Return a cluster; its address is for cluster administrators only."""
        cluster: MemberCluster | None = super().get_object(
            request, object_id, from_field
        )
        if cluster and not may_administer_clusters(request.user):
            cluster.properties.pop(ENTRYPOINT, None)
        return cluster

    def get_search_results(
        self,
        request: HttpRequest,
        queryset: QuerySet[Any],
        search_term: str,
    ) -> tuple[QuerySet[Any], bool]:
        """Search names and labels; no row occurs twice."""
        for word in search_term.split():
            key, colon, value = word.replace("=", ":", 1).partition(":")
            labels = ClusterLabel.objects.filter(value=word)
            if colon:
                labels = ClusterLabel.objects.filter(key=key, value__startswith=value)
            queryset = queryset.filter(
                Q(name__contains=word.lower()) | Q(pk__in=labels.values("cluster_id"))
            )
        return queryset, False

    def get_form(
        self, request: HttpRequest, obj: Any = None, change: bool = False, **kwargs: Any
    ) -> Any:
        return super().get_form(
            request, obj, change, form=ClusterForm if obj else JoinForm, **kwargs
        )

    def get_fieldsets(
        self, request: HttpRequest, obj: MemberCluster | None = None
    ) -> Any:
        identity = (
            "identity_kind",
            "identity_name",
            "identity_namespace",
            "identity_group",
        )
        agent: tuple[Any, ...] = (identity, "heartbeat_period", "started_from")
        if obj is None:
            return (
                (None, {"fields": ("name", "kind")}),
                ("Labels and taints", {"fields": ("labels", "taints")}),
                ("Member agent", {"fields": agent}),
            )
        overview = ("page", ("state", "heartbeat"), ("placements_here", "demo"))
        labels: tuple[str, ...] = ("labels", "taints")
        if not self.has_change_permission(request, obj):
            agent = ("identity",)
            labels = ("label_chips", "taint_list")
        connection = ["driver_name"]
        if obj.driver == KUBERNETES and may_administer_clusters(request.user):
            connection.append("credential_table")
        return (
            (None, {"fields": overview}),
            ("Labels and taints", {"fields": labels}),
            ("Member agent", {"fields": agent}),
            ("Connection", {"fields": connection}),
            ("Maintenance", {"fields": ("maintenance",)}),
            ("Reported", {"fields": ("property_table",)}),
            ("Manifest", {"fields": ("manifest",), "classes": ("collapse",)}),
        )

    def changeform_view(
        self,
        request: HttpRequest,
        object_id: str | None = None,
        form_url: str = "",
        extra_context: dict[str, Any] | None = None,
    ) -> Any:
        """Show or save; the fleet is locked while saving, so that what was checked still holds."""
        context = extra_context or {}
        if object_id is None:
            context |= {"title": "Add member cluster", "show_save_and_continue": False}
        if object_id is None and request.POST.get("kind") == KUBERNETES:
            typed = {name: request.POST.getlist(name) for name in _TYPED}
            return redirect(reverse("web:cluster-new", query=typed))
        if request.method != "POST":
            return super().changeform_view(request, object_id, form_url, context)
        with transaction.atomic():
            lock_fleet()
            return super().changeform_view(request, object_id, form_url, context)

    def save_model(
        self,
        request: HttpRequest,
        obj: MemberCluster,
        form: Any,
        change: bool,
    ) -> None:
        typed = form.cleaned_data
        spec = ClusterSpec(
            form.manifest(typed),
            driver=None if change else DRIVERS_BY_KIND[typed["kind"]],
        )
        expected = typed.get("started_from") or 0
        put = put_cluster(spec, by=request.user, now=timezone.now(), expected=expected)  # type: ignore[arg-type]
        obj.name = put.name
        obj.pk = MemberCluster.objects.values_list("pk", flat=True).get(name=put.name)

    def response_post_save_add(
        self, request: HttpRequest, obj: MemberCluster
    ) -> HttpResponseRedirect:
        """Go to the new cluster, as the console does: its actions are there."""
        return HttpResponseRedirect(
            reverse("admin:clusters_membercluster_change", args=[obj.pk])
        )

    def log_addition(
        self,
        request: HttpRequest,
        obj: Any,
        message: Any,
    ) -> Any:
        """Log nothing: the operation records an event."""

    def log_change(
        self,
        request: HttpRequest,
        obj: Any,
        message: Any,
    ) -> Any:
        """Log nothing: the operation records an event."""

    def history_view(
        self,
        request: HttpRequest,
        object_id: str,
        extra_context: Any = None,
    ) -> HttpResponse:
        cluster = self.get_object(request, object_id)
        query = {"kind": CLUSTER, "name": cluster.name if cluster else ""}
        return redirect(reverse("web:activity", query=query))

    @admin.display(description="page")
    def page(self, cluster: MemberCluster) -> SafeString:
        return format_html(
            '<a href="{}">Open in the console</a>',
            reverse("web:cluster", args=[cluster.name]),
        )

    @admin.display(description="status", ordering="verdict")
    def state(self, cluster: MemberCluster) -> SafeString:
        is_cordoned = any(
            (taint.key, taint.value) == (CORDON_KEY, CORDON_VALUE)
            for taint in cluster.taints.all()
        )
        level, words = cluster_status(cluster, is_cordoned=is_cordoned)
        why = cluster.health_message if cluster.is_unhealthy else ""
        return badge(_SIGNS.get(level, "off"), words, why)

    @admin.display(description="maintenance")
    def maintenance(self, cluster: MemberCluster) -> SafeString:
        page, words, link = _MAINTENANCE[cluster.is_cordoned]
        here = reverse("admin:clusters_membercluster_change", args=[cluster.pk])
        url = reverse(f"web:cluster-{page}", args=[cluster.name], query={"next": here})
        return format_html('{} <a href="{}">{}</a>', words, url, link)

    @admin.display(description="credentials")
    def credential_table(self, cluster: MemberCluster) -> SafeString:
        """Show what may be shown of the credentials; they are set on the page of the connection."""
        facts = public_facts(credential_of(cluster)) or {}
        rows = table(
            {name: NONE if value is None else value for name, value in facts.items()}
        )
        return format_html(
            '{} <a href="{}">Connection in the console</a>',
            rows,
            reverse("web:cluster-connection", args=[cluster.name]),
        )

    @admin.display(description="labels")
    def label_chips(self, cluster: MemberCluster) -> SafeString | str:
        """Show the first labels; each links to the clusters that share it."""
        labels = sorted(cluster.labels.all(), key=lambda one: one.key)
        if not labels:
            return NONE
        url = reverse("admin:clusters_membercluster_changelist")
        links = [
            (
                f"{url}?{urlencode({'label': f'{label.key}:{label.value}'})}",
                f"{label.key}={label.value}",
            )
            for label in labels[:_LABELS_SHOWN]
        ]
        return chips(links, hidden=max(len(labels) - _LABELS_SHOWN, 0))

    @admin.display(description="taints")
    def taint_list(self, cluster: MemberCluster) -> SafeString | str:
        taints = [
            {"key": taint.key, "value": taint.value, "effect": taint.effect}
            for taint in cluster.taints.all()
        ]
        others = ", ".join(
            taint_text(taint) for taint in taints if not is_cordon(taint)
        )
        is_cordoned = any(map(is_cordon, taints))
        return badge("off", "Cordoned", others) if is_cordoned else others or NONE

    @admin.display(description="heartbeat", ordering="heartbeat_at")
    def heartbeat(self, cluster: MemberCluster) -> str:
        if cluster.heartbeat_at is None and not cluster.expects_report:
            return "Not monitored"
        return moment(cluster.heartbeat_at)

    @admin.display(description="placements", ordering="bindings_count")
    def placements_here(self, cluster: MemberCluster) -> SafeString | str:
        count: int = getattr(cluster, "bindings_count", 0)
        if not count:
            return "0"
        return chips([(reverse("web:cluster", args=[cluster.name]), str(count))])

    driver_name = column(
        "driver", lambda row: _DRIVER_NAMES.get(row.driver, row.driver)
    )
    demo = column(
        "demo", lambda row: "Demo" if row.is_demo else NONE, ordering="is_demo"
    )
    identity = column(
        "identity", lambda row: table(row.document["spec"].get("identity") or {})
    )
    property_table = column("properties", lambda row: table(row.properties))
    manifest = column(
        "manifest",
        lambda row: format_html(
            '<pre class="source" tabindex="0">{}</pre>', dump_yaml(manifest_of(row))
        ),
    )
