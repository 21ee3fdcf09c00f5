"""The fleet map of the overview: clusters by a label, with a measure, and the panel of one."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from hashlib import sha256
from typing import Any
from urllib.parse import urlencode

from django.core.cache import caches
from django.http import HttpRequest, HttpResponse, HttpResponseBadRequest
from django.shortcuts import get_object_or_404, redirect
from django.urls import reverse
from django.views.decorators.http import require_safe
from django_htmx.http import HttpResponseClientRedirect

from clusters.filters import (
    ClusterFilter,
    ClusterListState,
    clusters_matching,
    cordoned_among,
    label_keys,
    members_by,
)
from clusters.models import MemberCluster
from fleetui.apimachinery.quantity import QuantityError, parse_quantity, quantity_words
from fleetui.htmx import render_page, wants_fragment
from fleetui.hub_scope import current_hub_id
from fleetui.permissions import for_readers
from placements.explain.charts.fleet import label_filter, value_words
from placements.explain.connections import unreachable_words
from placements.services.filters import bindings_on, placements_on
from placements.services.fleet.queries import favourite_key
from placements.services.health import healths_named
from placements.services.problems.book import bring_up_to_date
from placements.web import badges
from placements.web.request import unknown_words

_KEYS_SHOWN, _MEASURES_SHOWN, _ROWS = 50, 20, 30
HEALTH, PLACEMENTS = "health", "placements"
MAP_FIELDS = ("by", "measure")
"""The parameters of the overview that choose what the map shows."""
_KEPT_SECONDS = 60
NAMED_UP_TO = 200
"""Up to this number of clusters each has its name and its state on the map."""
Members = Sequence[tuple[str, str]]
"""Clusters, each with its state."""
_WORKING = (ClusterListState.READY, ClusterListState.NOT_MONITORED, ClusterListState.JOINING)
"""States that are no problem; domains are sorted by their share of clusters in another state."""


@dataclass(frozen=True, slots=True)
class DomainRow:
    """A row of the map: one domain, its clusters by state, and in a small fleet each of them."""

    words: str
    query: str
    total: int
    states: list[tuple[badges.Badge, int]]
    segments: list[badges.Segment]
    measured: str
    clusters: list[tuple[str, badges.Badge, str]]


def _number(value: object) -> float | None:
    try:
        return parse_quantity(value).approximate if isinstance(value, str) else None
    except QuantityError:
        return None


def kept_map_context(request: HttpRequest, version: str) -> dict[str, Any]:
    """Return the map, kept for a minute by this process where `version`, that of the fleet, decides it."""
    chosen = tuple(request.GET.get(name, "") for name in MAP_FIELDS)
    if chosen[1] not in ("", HEALTH):
        return map_context(request)
    words = "\0".join((str(current_hub_id()), version, *chosen))
    key = f"fleet-map/{sha256(words.encode(errors='replace')).hexdigest()}"
    kept: dict[str, Any] = (
        caches["process"].get_or_set(key, lambda: map_context(request), _KEPT_SECONDS) or {}
    )
    return kept


def map_context(request: HttpRequest) -> dict[str, Any]:
    """Return the map as the overview shows it: domains, with their clusters where there are few."""
    keys, params = [key for key, _ in label_keys()], request.GET
    by = params.get("by", "").strip() or favourite_key(keys)
    unsorted, sample = members_by(by)

    def place(item: tuple[str | None, Members]) -> tuple[bool, float]:
        value, clusters = item
        return value is None, -sum(state not in _WORKING for _, state in clusters) / len(clusters)

    members = dict(sorted(unsorted.items(), key=place))
    numeric = {name for one in sample for name, value in one.items() if _number(value) is not None}
    measures = [HEALTH, PLACEMENTS, *sorted(numeric)[:_MEASURES_SHOWN]]
    measure = next((one for one in measures if one == params.get("measure")), HEALTH)
    values = _measured(measure) if measure != HEALTH else {}
    is_named = sum(map(len, members.values())) <= NAMED_UP_TO
    rows = [
        _domain_row(by, value, clusters, values, measure, is_named=is_named)
        for value, clusters in members.items()
    ]
    return {
        "by": by,
        "keys": keys[:_KEYS_SHOWN],
        "measure": measure,
        "measures": measures,
        "has_fleet": True,
        "map_unknown": unknown_words(request, measure=measures),
        "domains": rows[:_ROWS],
        "more_domains": max(0, len(rows) - _ROWS),
    }


def _measured(measure: str) -> dict[str, float]:
    """Return the value of each cluster that has one."""
    if measure == PLACEMENTS:
        names = list(MemberCluster.objects.order_by().values_list("name", flat=True))
        return dict.fromkeys(names, 0.0) | {one: float(count) for one, count in placements_on(names).items()}
    rows = MemberCluster.objects.order_by().values_list("name", "properties")
    values = ((name, _number(properties.get(measure))) for name, properties in rows)
    return {name: value for name, value in values if value is not None}


def _domain_row(
    by: str,
    value: str | None,
    clusters: Members,
    values: Mapping[str, float],
    measure: str,
    *,
    is_named: bool,
) -> DomainRow:
    counts = Counter(ClusterListState(state) for _, state in clusters)
    of_state = [(badge, counts[state]) for state, badge in badges.STATE_BADGES.items() if counts[state]]
    measured = [values[name] for name, _ in clusters if name in values]
    numbers = (sum(measured) / len(measured), min(measured), max(measured)) if measured else ()
    cells = []
    for name, state in clusters if is_named else ():
        number = quantity_words(values[name], measure) if name in values else ""
        cells.append((name, badges.STATE_BADGES[ClusterListState(state)], number))
    return DomainRow(
        value_words(value),
        urlencode({"label": label_filter(by, value)}) if by else "",
        len(clusters),
        of_state,
        badges.segments((badge.kind, f"{count:,} {badge.words}", count) for badge, count in of_state),
        "{} ({} to {})".format(*(quantity_words(number, measure) for number in numbers)) if measured else "",
        cells,
    )


_BINDINGS, _LABELS = 10, 20


@for_readers
@require_safe
def map_panel(request: HttpRequest) -> HttpResponse:
    """Show a cluster or a domain of the map beside it; without a script its page or its list."""
    name, label = request.GET.get("cluster", ""), request.GET.get("label", "")
    if not name and not label:
        return HttpResponseBadRequest("Required: cluster=NAME or label=KEY:VALUE", "text/plain")
    rows = MemberCluster.objects.select_related("credential")
    cluster = get_object_or_404(rows, name=name) if name else None
    page = (
        reverse("web:cluster", args=[cluster.name])
        if cluster
        else f"{reverse('web:clusters')}?{urlencode({'label': label})}"
    )
    if not wants_fragment(request):
        return redirect(page)
    if not cluster:
        clusters = list(clusters_matching(ClusterFilter(labels=(label,))))
        if not clusters:
            return HttpResponseClientRedirect(page)
        cordoned, placed = cordoned_among(clusters), placements_on([one.name for one in clusters])
        domain = {
            "label": label,
            "query": urlencode({"label": label}),
            "total": len(clusters),
            "states": Counter(
                badges.cluster_badge(one, is_cordoned=one.pk in cordoned) for one in clusters
            ).most_common(),
            "bindings": sum(placed.values()),
            "empty": len(clusters) - len(placed),
        }
        return render_page(request, "dashboard/_map_domain.html", domain)

    is_cordoned, now = bool(cordoned_among([cluster])), datetime.now(UTC)
    bring_up_to_date(now=now)
    here = bindings_on(name)
    bindings = list(here[:_BINDINGS])
    healths = healths_named([one.placement.full_name for one in bindings], now=now)
    labels = sorted((cluster.document["metadata"].get("labels") or {}).items())
    context = {
        "cluster": cluster,
        "state": badges.cluster_badge(cluster, is_cordoned=is_cordoned),
        "is_cordoned": is_cordoned,
        "reason": unreachable_words(cluster, now=now) or cluster.workloads_problem,
        "labels": labels[:_LABELS],
        "more_labels": max(0, len(labels) - _LABELS),
        "bindings": [(one, badges.placement_state(healths[one.placement.full_name])) for one in bindings],
        "placements": here.count(),
    }
    return render_page(request, "dashboard/_map_cluster.html", context)
