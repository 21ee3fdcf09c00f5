"""The member clusters: the list, and one of them with what is placed there and why."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404
from django.views.decorators.http import require_safe

from clusters.listing import (
    ORDERS,
    ClusterFilter,
    State,
    clusters_matching,
    cordoned_among,
    counts_by_state,
    groups_of,
    label_keys,
)
from clusters.models import MemberCluster
from clusters.queries import manifest_of
from fleetui.access import for_readers
from fleetui.htmx import render_page
from placements.manifests import dump_yaml
from placements.queries.lists import bindings_on, events_matching, placements_on
from placements.views import states
from placements.views.happenings import happening_rows
from placements.views.lists import order_from, page_from, word_from

EVENTS_SHOWN = 15
BINDINGS_SHOWN = 100
_LABELS_SHOWN = 6


@dataclass(frozen=True, slots=True)
class ClusterRow:
    """One line of the list."""

    cluster: MemberCluster
    state: states.State
    labels: list[str]
    more_labels: int
    taints: list[str]
    placements: int


@for_readers
@require_safe
def clusters(request: HttpRequest) -> HttpResponse:
    """List the clusters that match, a page at a time."""
    wanted = ClusterFilter(
        text=request.GET.get("q", "").strip(),
        labels=tuple(label for label in map(str.strip, request.GET.getlist("label")) if label),
        state=word_from(request, "state", State),
    )
    rows, order = clusters_matching(wanted), order_from(request, ORDERS)
    page, keys = page_from(request, rows, order=order), label_keys()
    context = {
        "wanted": wanted,
        "rows": _rows(page.rows),
        "after": page.after,
        "count": rows.count(),
        "states": counts_by_state(),
        "order": order,
        **_facets(request, wanted, keys),
    }
    return render_page(request, "clusters/list.html", context, fragment="clusters/_list.html")


def _facets(request: HttpRequest, wanted: ClusterFilter, keys: list[tuple[str, int]]) -> dict[str, Any]:
    """Offer the groups of one label: the one asked for, else the one that is filtered by."""
    chosen = request.GET.get("by") or next((one.partition(":")[0] for one in wanted.labels), "")
    groups = (
        [(f"{chosen}:{value}", value or "(empty)", count) for value, count in groups_of(chosen)]
        if chosen
        else []
    )
    return {"keys": keys, "by": chosen, "groups": groups}


def _rows(clusters: list[MemberCluster]) -> list[ClusterRow]:
    cordoned = cordoned_among(clusters)
    placed = placements_on(cluster.name for cluster in clusters)
    return [
        _row(cluster, is_cordoned=cluster.pk in cordoned, placements=placed.get(cluster.name, 0))
        for cluster in clusters
    ]


def _row(cluster: MemberCluster, *, is_cordoned: bool, placements: int) -> ClusterRow:
    labels = labels_in(cluster)
    return ClusterRow(
        cluster,
        states.cluster_state(cluster, is_cordoned=is_cordoned),
        labels[:_LABELS_SHOWN],
        max(0, len(labels) - _LABELS_SHOWN),
        taints_in(cluster),
        placements,
    )


def labels_in(cluster: MemberCluster) -> list[str]:
    """Write the labels of a cluster, by key."""
    found = cluster.document["metadata"].get("labels") or {}
    return [f"{key}={value}" for key, value in sorted(found.items())]


def taints_in(cluster: MemberCluster) -> list[str]:
    """Write the taints of a cluster, in their order."""
    return list(map(_taint, cluster.document["spec"].get("taints") or ()))


def _taint(written: dict[str, Any]) -> str:
    value = f"={written['value']}" if written.get("value") else ""
    return f"{written['key']}{value}:{written['effect']}"


@for_readers
@require_safe
def cluster(request: HttpRequest, name: str) -> HttpResponse:
    """Show one cluster: what it is, what is placed on it, and which decision put it there."""
    found = get_object_or_404(MemberCluster, name=name)
    is_cordoned = bool(cordoned_among([found]))
    here = bindings_on(name)
    context = {
        "cluster": found,
        "state": states.cluster_state(found, is_cordoned=is_cordoned),
        "is_cordoned": is_cordoned,
        "labels": labels_in(found),
        "taints": taints_in(found),
        "usage": _usage(found.usage),
        "bindings": here[:BINDINGS_SHOWN],
        "placements": here.count(),
        "events": happening_rows(events_matching(kind="cluster", name=name).order_by("-id")[:EVENTS_SHOWN]),
        "manifest": dump_yaml(manifest_of(found)),
    }
    return render_page(request, "clusters/cluster.html", context)


def _usage(usage: dict[str, dict[str, str]]) -> list[tuple[str, Iterable[str]]]:
    """Turn amounts by sort into rows by resource: capacity, allocatable, available."""
    resources = sorted({name for amounts in usage.values() for name in amounts})
    sorts = ("capacity", "allocatable", "available")
    return [(name, [usage.get(sort, {}).get(name, "") for sort in sorts]) for name in resources]
