"""The member clusters: the list, and one of them with what is placed there and why."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404
from django.views.decorators.http import require_safe

from clusters.listing import (
    ClusterFilter,
    Standing,
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
from placements.queries.cluster_list import LABEL, ORDERS, in_order
from placements.queries.headroom import stale_on
from placements.queries.lists import bindings_on, events_matching, placements_on
from placements.queries.topology import favourite_keys
from placements.views import states
from placements.views.cluster_download import FORMATS, download
from placements.views.happenings import happening_rows
from placements.views.lists import page_from, unknown_words, word_from
from placements.views.rehearsals import fault_rows

EVENTS_SHOWN = 15
BINDINGS_SHOWN = 100
_LABELS_SHOWN = 6
_MOST_COLUMNS, _FACETS = 8, 2


@dataclass(frozen=True, slots=True)
class ClusterRow:
    """One line of the list."""

    cluster: MemberCluster
    state: states.State
    labels: list[str]
    more_labels: int
    taints: list[str]
    placements: int
    stale: int
    values: list[str]


@dataclass(frozen=True, slots=True)
class Header:
    """The head of a column: what a press orders by, and how the list is ordered by it now."""

    title: str
    order: str
    sorted: str
    is_number: bool = False


@for_readers
@require_safe
def clusters(request: HttpRequest) -> HttpResponse:
    """List the clusters that match, a page at a time; or hand them all out as a file."""
    wanted = ClusterFilter(
        text=request.GET.get("q", "").strip(),
        labels=tuple(label for label in map(str.strip, request.GET.getlist("label")) if label),
        state=word_from(request, "state", State),
    )
    rows = clusters_matching(wanted)
    if request.GET.get("download") in FORMATS:
        return download(rows, request.GET["download"])
    ordered, column, order = in_order(rows, request.GET.get("sort", "name"))
    page, keys = page_from(request, ordered, order=column), label_keys()
    columns, states_counted = _columns(request), counts_by_state()
    context = {
        "wanted": wanted,
        "unknown": unknown_words(request, state=State, sort=_orders(request), download=FORMATS),
        "rows": _rows(page.rows, columns),
        "after": page.after,
        "count": rows.count() if wanted != ClusterFilter() else _total(states_counted),
        "states": states_counted,
        "order": order,
        "columns": columns,
        "headers": _headers(order, columns),
        "formats": FORMATS,
        **_facets(request, wanted, keys),
    }
    return render_page(request, "clusters/list.html", context, fragment="clusters/_list.html")


def _orders(request: HttpRequest) -> list[str]:
    """List the orders that there are; by a label, any is one."""
    given = request.GET.get("sort", "")
    by_label = given.removeprefix("-").startswith(LABEL)
    return [*ORDERS, given] if by_label else list(ORDERS)


def _total(counted: dict[State, int]) -> int:
    """Count all clusters: each may be picked, or may not."""
    return counted[State.ELIGIBLE] + counted[State.NOT_ELIGIBLE]


def _columns(request: HttpRequest) -> list[str]:
    """Read which labels have a column of their own: `?columns=region,env`."""
    written = request.GET.get("columns", "").replace(",", " ").split()
    return list(dict.fromkeys(written))[:_MOST_COLUMNS]


def _headers(order: str, columns: list[str]) -> list[Header]:
    heads = [
        ("Name", "name", False),
        ("State", "state", False),
        *((key, f"{LABEL}{key}", False) for key in columns),
        ("Labels", "", False),
        ("Taints", "", False),
        ("Heartbeat", "heartbeat", True),
        ("Placements", "placements", True),
        ("Stale picks", "stale", True),
    ]
    return [_header(title, by, order, is_number=is_number) for title, by, is_number in heads]


def _header(title: str, by: str, order: str, *, is_number: bool) -> Header:
    directions = {by: "ascending", f"-{by}": "descending"} if by else {}
    following = f"-{by}" if by and order == by else by
    return Header(title, following, directions.get(order, ""), is_number)


def _facets(request: HttpRequest, wanted: ClusterFilter, keys: list[tuple[str, int]]) -> dict[str, Any]:
    """Offer the groups of one label: the one asked for, else those filtered by, else those spread over."""
    known = [key for key, _ in keys]
    filtered = [one.removeprefix("!").partition(":")[0] for one in wanted.labels]
    chosen = [request.GET["by"]] if request.GET.get("by") else filtered[:1]
    shown = chosen or favourite_keys(known, most=_FACETS)
    groups = [
        (key, [(f"{key}:{value}", value or "(empty)", count) for value, count in found])
        for key, found in groups_of(shown).items()
    ]
    return {"keys": keys, "by": next(iter(chosen), ""), "groups": [(key, one) for key, one in groups if one]}


def _rows(clusters: list[MemberCluster], columns: list[str]) -> list[ClusterRow]:
    names = [cluster.name for cluster in clusters]
    placed, stale = placements_on(names), stale_on(names)
    return [
        _row(
            cluster,
            columns,
            is_cordoned=getattr(cluster, "how", "") == Standing.CORDONED,
            placements=placed.get(cluster.name, 0),
            stale=stale.get(cluster.name, 0),
        )
        for cluster in clusters
    ]


def _row(
    cluster: MemberCluster, columns: list[str], *, is_cordoned: bool, placements: int, stale: int
) -> ClusterRow:
    found = cluster.document["metadata"].get("labels") or {}
    labels = [one for one in labels_in(cluster) if one.partition("=")[0] not in columns]
    return ClusterRow(
        cluster,
        states.cluster_state(cluster, is_cordoned=is_cordoned),
        labels[:_LABELS_SHOWN],
        max(0, len(labels) - _LABELS_SHOWN),
        taints_in(cluster),
        placements,
        stale,
        [found.get(key, "") for key in columns],
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
        "told_to_fail": fault_rows(found, now=datetime.now(UTC)),
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
