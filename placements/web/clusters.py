"""The pages of member clusters: the list and its download, one cluster, and the fleet by label."""

import csv
import io
from collections.abc import Hashable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any
from urllib.parse import urlencode

from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseBase, JsonResponse
from django.shortcuts import get_object_or_404
from django.template.loader import render_to_string
from django.urls import reverse
from django.utils.safestring import mark_safe
from django.views.decorators.http import require_safe

from clusters.drivers.kubernetes.properties import ENTRYPOINT, VERSION
from clusters.filters import (
    BESIDE_STATES,
    CLOSED_FILTERS,
    ClusterFilter,
    ClusterFilterState,
    ClusterListState,
    Domain,
    clusters_matching,
    counts_with,
    filter_params,
    filter_text,
    groups_by,
    groups_of,
    label_keys,
    near_duplicates,
    typed_pair,
)
from clusters.fleet import EligibilityKind
from clusters.models import MemberCluster, Membership
from clusters.observation import unhealthy_since
from clusters.operations.edit import not_ready_at
from clusters.queries import manifest_of
from fleetui.apimachinery.words import counted
from fleetui.apimachinery.yaml import dump_yaml
from fleetui.htmx import render_page
from fleetui.middleware import costly
from fleetui.permissions import for_readers, may_administer_clusters, may_operate
from placements.engine.status import HealthLevel
from placements.explain.charts.fleet import (
    label_filter,
    topology_chart,
)
from placements.explain.connections import unreachable_words
from placements.explain.vocabulary import value_words
from placements.models import Placement
from placements.services.bulk_changes import BULK_ACTIONS
from placements.services.filters import (
    LIST_FILTERS,
    bindings_on,
    events_matching,
    placements_on,
)
from placements.services.fleet.forms import taint_text, taints_without_cordon
from placements.services.fleet.queries import (
    LABEL,
    ORDERS,
    favourite_key,
    favourite_keys,
    in_order,
    stale_on,
    with_counts,
)
from placements.services.health import statuses_on, stored_healths
from placements.services.problems.book import workloads_changed_at
from placements.services.rollouts.queries import waiting_words
from placements.services.rollouts.removals import waiting_removals
from placements.services.workqueue import IS_DUE
from placements.templatetags.fleet import (
    ROW_AGE,
    ROW_MARK,
    ROW_NAME,
    offered,
    state_words,
)
from placements.web import badges
from placements.web.activity import event_rows
from placements.web.bulk_changes import cluster_filter
from placements.web.fault_injection import fault_rows
from placements.web.filter_bar import Facet, FilterBar, filter_bar, plain_choices
from placements.web.layout import live_page
from placements.web.request import as_file, page_from, pager_of, requested_table

FORMATS = ("csv", "json")
CSV_COLUMNS = {
    "name": "name",
    "state": "how",
    "verdictReason": "verdict_reason",
    "labels": "document__metadata__labels",
    "taints": "document__spec__taints",
    "heartbeatAt": "heartbeat_at",
    "placements": "placed",
    "outdatedPlacements": "stale_picks",
}
"""The columns of the download, named as in REST, by the column of the database."""


@costly
def download(
    _request: HttpRequest,
    rows: QuerySet[MemberCluster],
    form: str,
    order: str,
) -> HttpResponse:
    listed = with_counts(rows).order_by(
        order, "-name" if order.startswith("-") else "name"
    )
    items: list[dict[str, Any]] = [
        dict(zip(CSV_COLUMNS, values, strict=True))
        for values in listed.values_list(*CSV_COLUMNS.values())
    ]
    for item in items:
        item["labels"] = item["labels"] or {}
        item["taints"] = item["taints"] or []
    if form == "json":
        return as_file(JsonResponse({"items": items}), "clusters.json")
    text = io.StringIO()
    writer = csv.DictWriter(text, CSV_COLUMNS)
    writer.writeheader()
    for row in items:
        labels = " ".join(f"{key}={one}" for key, one in sorted(row["labels"].items()))
        writer.writerow(
            row | {"labels": labels, "taints": " ".join(map(taint_text, row["taints"]))}
        )
    return as_file(
        HttpResponse(text.getvalue(), content_type="text/csv; charset=utf-8"),
        "clusters.csv",
    )


EVENTS_SHOWN = 50
BINDINGS_SHOWN = 100
_MOST_COLUMNS, _DEFAULT_COLUMNS, _FACETS = 8, 3, 2
_LISTED = (
    "name",
    "hub",
    "document",
    "membership",
    "joined_at",
    "driver",
    "connection",
    "has_reported",
    "heartbeat_at",
    "agent_healthy",
    "healthy_since",
    "observed_until",
    "unanswered_since",
    "unanswered_code",
    "verdict",
    "verdict_since",
    "workloads_problem",
    "credential",
)
"""What rows and their order read: reading all the columns of a page takes as long as its query."""
_OTHER_ORDERS = {
    "-name": "Name, descending",
    "-joined_at": "Newest",
    "joined_at": "Oldest",
    "-verdict_since": "Recently changed",
    "verdict_since": "Least recently changed",
}


@lru_cache(maxsize=2_000)
def _row_html(clusters_page: str, placements_page: str, **facts: Hashable) -> str:
    """Return the row of all clusters with the same facts: the tag `cluster_row` fills the rest in."""
    context = {
        "row": facts,
        "name": ROW_NAME,
        "age": mark_safe(ROW_AGE),  # noqa: S308 - a constant
        "mark": ROW_MARK,
        "page": f"{clusters_page}{ROW_NAME}/",
        "placements_page": placements_page,
    }
    return render_to_string("clusters/_row.html", context)


@dataclass(frozen=True, slots=True)
class Header:
    """The heading of a column: the order that its link sets, and how the list is sorted by it now."""

    title: str
    order: str
    sorted: str
    is_number: bool = False


@for_readers
@require_safe
def clusters(request: HttpRequest) -> HttpResponseBase:
    """List the clusters that match, a page at a time, or download them all."""
    wanted = _read_filter(request)
    rows = clusters_matching(wanted)
    ordered, column, order = in_order(rows, request.GET.get("order", "name"))
    if request.GET.get("download") in FORMATS:
        return download(request, ordered, request.GET["download"], column)
    list_rows = ordered.select_related("credential").only(*_LISTED)
    page, keys = page_from(request, list_rows, order=column), label_keys()
    favourites = favourite_keys([key for key, _ in keys], most=_DEFAULT_COLUMNS)
    names = " ".join(request.GET.getlist("columns")).replace(",", " ").split()
    columns = list(dict.fromkeys(names if "columns" in request.GET else favourites))[
        :_MOST_COLUMNS
    ]
    count, states_counted = counts_with(wanted)
    headers, orders = _columns_and_orders(columns, order)
    may_change = may_operate(request.user) and offered(
        reverse("web:bulk-change", args=["cordon"])
    )
    return render_page(
        request,
        "clusters/list.html",
        {
            "wanted": wanted,
            "filter": [
                (key, value)
                for key in ("q", *LIST_FILTERS["clusters"])
                for value in request.GET.getlist(key)
                if value
            ],
            "rows": _rows(page.rows, columns, may_change=may_change),
            "pager": pager_of(
                request, len(page.rows), count, before=page.before, after=page.after
            ),
            "count": count,
            "order": order,
            "orders": orders,
            "columns": columns,
            "headers": headers,
            "formats": FORMATS,
            "may_change": may_change,
            "actions": BULK_ACTIONS.values(),
            "keys": keys,
            "bar": _bar(request, wanted, keys, states_counted, favourites),
        },
        fragment="clusters/_list.html",
    )


def _columns_and_orders(
    columns: list[str], order: str
) -> tuple[list[Header], dict[str, str]]:
    """Return the headings, and the orders to choose from with the present one."""
    heads = [
        ("Name", "name", False),
        ("Status", "state", False),
        *((key, f"{LABEL}{key}", False) for key in columns),
        ("Labels", "", False),
        ("Taints", "", False),
        ("Heartbeat", "heartbeat", True),
        ("Placements", "placements", True),
        ("Outdated placements", "stale", True),
    ]
    headers = []
    for title, by, is_number in heads:
        directions = {by: "ascending", f"-{by}": "descending"} if by else {}
        following = f"-{by}" if by and order == by else by
        headers.append(Header(title, following, directions.get(order, ""), is_number))
    by_heading = {
        head.order.removeprefix("-"): head.title for head in headers if head.order
    }
    orders = {**by_heading, **_OTHER_ORDERS}
    present = orders.get(order, f"{by_heading.get(order[1:], order)}, descending")
    return headers, {**orders, order: present}


def _read_filter(request: HttpRequest) -> ClusterFilter:
    """Read the filter, and move what was typed into the parameters of the address."""
    wanted, query = cluster_filter(request.GET), request.GET.copy()
    # A state or a verdict that does not exist stays, so that the page can say so.
    unknown = {key: query.getlist(key) for key in CLOSED_FILTERS}
    typed = filter_params(wanted)
    for key in ("q", *LIST_FILTERS["clusters"]):
        query.setlist(key, typed.get(key) or unknown.get(key, []))
    request.GET = query  # type: ignore[assignment]  # a cached property of the request
    return wanted


def _bar(
    request: HttpRequest,
    wanted: ClusterFilter,
    keys: list[tuple[str, int]],
    counts: dict[ClusterFilterState, int],
    favourites: list[str],
) -> FilterBar:
    """Return the filters by status and by label: the requested one, else of the filter, else favourites."""
    filtered = [label.removeprefix("!").partition(":")[0] for label in wanted.labels]
    chosen = [request.GET["by"]] if request.GET.get("by") else filtered[:1]
    states = [
        (state, state_words(state), count)
        for state, count in counts.items()
        if state == wanted.state or (count and state not in BESIDE_STATES)
    ]
    simulated = ClusterFilterState.SIMULATED
    drivers = [(simulated, state_words(simulated), counts[simulated])]
    # A value that is chosen replaces the present labels.
    values = groups_of(
        chosen or favourites[:_FACETS], among=replace(wanted, labels=())
    ).items()
    order = request.GET.get("order", "")
    orders = [*ORDERS, order] if order.removeprefix("-").startswith(LABEL) else ORDERS
    return filter_bar(
        request,
        (),
        [
            Facet("state", "Status", states, is_row=True),
            *(
                Facet(
                    "label",
                    key,
                    [(f"{key}:{one}", one or "(empty)", count) for one, count in sizes],
                )
                for key, sizes in values
            ),
            Facet("state", "Driver", drivers if counts[simulated] else []),
            Facet("verdict", "Reason not ready", plain_choices(EligibilityKind)),
            Facet(
                "by", "Values of another label", [(key, key, None) for key, _ in keys]
            ),
        ],
        text=filter_text(wanted),
        hints=[
            *(
                (typed_pair("status", words), counted(count, "cluster"))
                for _, words, count in states
            ),
            *(
                (f"{key}={one}", counted(count, "cluster"))
                for key, sizes in values
                for one, count in sizes
            ),
            *((f"{key}=", counted(count, "cluster")) for key, count in keys),
        ],
        **CLOSED_FILTERS,
        order=orders,
        download=FORMATS,
    )


def _rows(
    clusters: list[MemberCluster], columns: list[str], *, may_change: bool
) -> list[tuple[MemberCluster, str]]:
    names = [cluster.name for cluster in clusters]
    placed, stale, now = placements_on(names), stale_on(names), datetime.now(UTC)
    pages = [reverse(f"web:{page}") for page in ("clusters", "placements")]
    rows = []
    for cluster in clusters:
        labels = cluster.document["metadata"].get("labels") or {}
        taints = cluster.document["spec"].get("taints") or ()
        is_cordoned = getattr(cluster, "how", "") == ClusterListState.CORDONED
        html = _row_html(
            *pages,
            state=badges.cluster_badge(cluster, is_cordoned=is_cordoned),
            reason=unreachable_words(cluster, now=now) or cluster.workloads_problem,
            is_cordoned=is_cordoned,
            has_insecure_tls=cluster.has_insecure_tls,
            values=tuple(labels.get(key, "") for key in columns),
            more_labels=len(labels.keys() - set(columns)),
            taints=tuple(map(taint_text, taints)),
            placements=placed.get(cluster.name, 0),
            stale=stale.get(cluster.name, 0),
            is_simulated=cluster.is_simulated,
            is_staying=cluster.membership != Membership.LEAVING,
            may_change=may_change,
        )
        rows.append((cluster, html))
    return rows


@for_readers
@require_safe
@live_page
def cluster(request: HttpRequest, name: str, tab: str = "placements") -> HttpResponse:
    rows: QuerySet[Any] = MemberCluster.objects.select_related("credential").annotate(
        workloads_changed_at=workloads_changed_at()
    )
    row, now = get_object_or_404(rows, name=name), datetime.now(UTC)
    changes: list[datetime | None] = [row.away_since]
    if row.is_eligible:
        changes += row.healthy_since, row.workloads_changed_at
    context = {
        "cluster": row,
        "since": max(filter(None, changes), default=None),
        "tab": tab,
        "state": badges.cluster_badge(row, is_cordoned=row.is_cordoned),
        "is_cordoned": row.is_cordoned,
        "kubernetes_version": row.properties.get(VERSION, ""),
        "reason": unreachable_words(row, now=now) or row.workloads_problem,
        "repelling": [
            taint_text(taint) for taint in taints_without_cordon(row.document)
        ],
        "faults": fault_rows(row, now=now),
        "removals": len(waiting_removals(row.name)),
        "not_ready_at": not_ready_at(row, now=now),
        "unhealthy_since": unhealthy_since(row, now=now),
        "now": now,
        "placements": bindings_on(name).count(),
        "outdated": stale_on([name]).get(name, 0),
        **_tab_context(request, row, tab),
    }
    is_rolling = any(
        status.level == "progress" for _, status, *_ in context.get("bindings", ())
    )
    is_expected = (
        row.awaits_first_heartbeat or Placement.objects.filter(IS_DUE).exists()
    )
    context["is_changing"] = is_rolling or is_expected
    context["is_polled"] = is_rolling or is_expected or bool(row.driver)
    return render_page(
        request, "clusters/cluster.html", context, fragment="clusters/_live.html"
    )


def _tab_context(
    request: HttpRequest, cluster: MemberCluster, tab: str
) -> dict[str, Any]:
    if not may_administer_clusters(
        request.user
    ):  # addresses are for cluster administrators
        cluster.properties.pop(ENTRYPOINT, None)
    if tab == "labels":
        labels = cluster.document["metadata"].get("labels") or {}
        counts = {key: dict(values) for key, values in groups_of(labels).items()}
        rows = [
            (key, value, counts[key].get(value, 1))
            for key, value in sorted(labels.items())
        ]
        return {"labels": rows, "taints": cluster.document["spec"].get("taints") or []}
    if tab == "properties":
        resources = sorted(
            {name for amounts in cluster.usage.values() for name in amounts}
        )
        sorts = ("capacity", "allocatable", "available")
        return {
            "usage": [
                (name, [cluster.usage.get(sort, {}).get(name, "") for sort in sorts])
                for name in resources
            ]
        }
    if tab == "events":
        events = events_matching(kind="cluster", name=cluster.name).order_by(
            "-at", "-id"
        )
        return {"events": event_rows(events[:EVENTS_SHOWN])}
    if tab == "yaml":
        return {"manifest": dump_yaml(manifest_of(cluster))}
    now = datetime.now(UTC)
    here = statuses_on(bindings_on(cluster.name), most=BINDINGS_SHOWN, now=now)
    healths = stored_healths([one.placement for one, _ in here], now=now)
    ill = [one for one, status in here if status.level != HealthLevel.HEALTHY]
    words = waiting_words(ill)
    messages = {one.pk: one.message or words.get(one.pk, "") for one in ill}
    return {
        "bindings": [
            (
                one,
                status,
                badges.placement_state(healths[one.placement_id]),
                messages.get(one.pk),
            )
            for one, status in here
        ]
    }


TABS = ("placements", "labels", "properties", "events", "yaml")


_ROWS = 50
_KEYS_SHOWN = 40
_PROBLEMS = (
    ClusterListState.NOT_ELIGIBLE,
    ClusterListState.NOT_OBSERVED,
    ClusterListState.HEARTBEAT_LATE,
    ClusterListState.UNHEALTHY,
    ClusterListState.WORKLOADS_FAILING,
    ClusterListState.CORDONED,
)


@dataclass(frozen=True, slots=True)
class TopologyRow:
    """One group; `query` selects its clusters."""

    values: list[str]
    total: int
    states: list[tuple[badges.Badge, int]]
    query: str

    @classmethod
    def of(cls, keys: tuple[str, ...], group: Domain) -> "TopologyRow":
        pairs = zip(keys, group.values, strict=True)
        return cls(
            list(map(value_words, group.values)),
            group.total,
            [
                (badge, group.counts[state])
                for state, badge in badges.STATE_BADGES.items()
                if group.counts.get(state)
            ],
            urlencode([("label", label_filter(key, value)) for key, value in pairs]),
        )


@for_readers
@require_safe
def topology(request: HttpRequest) -> HttpResponse:
    """Show how many clusters have which values, and which values look misspelt."""
    keys = label_keys()
    first = request.GET.get("key", "").strip() or favourite_key(
        [key for key, _ in keys]
    )
    second = request.GET.get("key2", "").strip()
    chosen = tuple(dict.fromkeys(one for one in (first, second) if one))
    groups = groups_by(*chosen) if chosen else []
    chart = topology_chart(chosen, groups) if chosen else None
    charts = [chart] if chart else []
    if table := requested_table(request, charts):
        return table
    ranked = sorted(
        groups,
        key=lambda one: (
            -sum(one.counts.get(state, 0) for state in _PROBLEMS) / one.total
        ),
    )
    return render_page(
        request,
        "clusters/topology.html",
        {
            "keys": keys[:_KEYS_SHOWN],
            "chosen": chosen,
            "key": chosen[0] if chosen else "",
            "key2": chosen[1] if len(chosen) > 1 else "",
            "charts": charts,
            "rows": [
                TopologyRow.of(chosen, group)
                for group in groups
                if group in ranked[:_ROWS]
            ],
            "more": max(0, len(groups) - _ROWS),
            "alike_keys": near_duplicates(key for key, _ in keys),
            "alike": [
                (key, alike)
                for place, key in enumerate(chosen)
                for alike in near_duplicates(
                    group.values[place] or "" for group in groups if group.values[place]
                )
            ],
            "lacking": sum(group.total for group in groups if None in group.values),
        },
    )
