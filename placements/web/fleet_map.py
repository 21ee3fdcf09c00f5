"""The fleet map of the overview: columns of clusters by a label, with a measure, and the panel of one."""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from hashlib import sha256
from math import inf
from typing import Any
from urllib.parse import urlencode

from django.core.cache import caches
from django.http import HttpRequest, HttpResponse, HttpResponseBadRequest
from django.shortcuts import get_object_or_404, redirect
from django.urls import reverse
from django.views.decorators.http import require_safe

from clusters.filters import (
    ClusterFilter,
    ClusterListState,
    clusters_matching,
    label_keys,
    members_by,
)
from clusters.models import MemberCluster
from fleetui.apimachinery.quantity import QuantityError, parse_quantity, quantity_words
from fleetui.htmx import redirect_page, render_page, wants_fragment
from fleetui.hub_scope import current_hub_id
from fleetui.permissions import for_readers
from placements.explain.charts.fleet import label_filter
from placements.explain.connections import unreachable_words
from placements.explain.vocabulary import value_words
from placements.manifests.binding import BindingState
from placements.models import Binding
from placements.services.dashboard.queries import WITH_PLACEMENTS
from placements.services.filters import bindings_on, placements_on
from placements.services.fleet.queries import favourite_key
from placements.services.health import healths_named
from placements.services.problems.book import bring_up_to_date
from placements.web import badges
from placements.web.request import unknown_words

_KEYS_SHOWN, _MEASURES_SHOWN, _COLUMNS = 50, 20, 16
HEALTH, PLACEMENTS = "health", "placements"
MAP_FIELDS = ("by", "measure")
"""The parameters of the overview that choose what the map shows."""
_KEPT_SECONDS = 60
SQUARES_UP_TO = 200
"""Up to this number of clusters each is a square; above it a domain is a pillar."""
_FORMS = {"boxes": WITH_PLACEMENTS, "squares": SQUARES_UP_TO, "pillars": inf}
_NARROW, _HIGHEST = 3, 7
"""A column has three squares beside each other, and more where it would be higher than seven."""
_SHADES = 4
Members = Sequence[tuple[str, ClusterListState]]
"""Clusters, each with its state."""
_WORKING = (
    ClusterListState.READY,
    ClusterListState.NOT_MONITORED,
    ClusterListState.JOINING,
)
"""States that are no problem."""
_QUIET = (*_WORKING, ClusterListState.CORDONED)
"""States that are not written above a column."""
_GLYPHS = {
    ClusterListState.WORKLOADS_FAILING: "!",
    ClusterListState.UNHEALTHY: "!",
    ClusterListState.HEARTBEAT_LATE: "?",
    ClusterListState.NOT_OBSERVED: "?",
    ClusterListState.NOT_ELIGIBLE: "×",  # noqa: RUF001 - a cross
    ClusterListState.LEAVING: "−",
    ClusterListState.JOINING: "+",
}
"""The sign in the square of a state, so that colour is not the only one."""
_COUNTED = {ClusterListState.WORKLOADS_FAILING: "with failing workloads"}
"""The words of a state after a number of clusters, where those of its badge do not fit there."""


@dataclass(frozen=True, slots=True)
class MapState:
    """A state in the legend or above a column: how many clusters have it, and how it is drawn."""

    kind: str
    glyph: str
    words: str
    count: int
    is_quiet: bool


@dataclass(frozen=True, slots=True)
class MapCluster:
    """A cluster of the map; `shade` is that of a measure, `text` what is beside its name."""

    name: str
    state: badges.Badge
    glyph: str
    text: str = ""
    shade: str = ""


@dataclass(frozen=True, slots=True)
class MapColumn:
    """One domain: its clusters from the base up, and what is wrong there.

    `height` is that of a pillar in percent of the largest domain.
    """

    words: str
    query: str
    total: int
    states: list[MapState]
    clusters: list[MapCluster]
    width: int
    height: int
    measured: str

    @property
    def trouble(self) -> list[MapState]:
        return [state for state in self.states if not state.is_quiet]


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
        caches["process"].get_or_set(key, lambda: map_context(request), _KEPT_SECONDS)
        or {}
    )
    return kept


def map_context(request: HttpRequest) -> dict[str, Any]:
    """Return the map as the overview shows it: a column for each domain, with few clusters each."""
    keys, params = [key for key, _ in label_keys()], request.GET
    by = params.get("by", "").strip() or favourite_key(keys)
    members_of, sample = members_by(by)

    numeric = {
        name
        for document in sample
        for name, value in document.items()
        if _number(value) is not None
    }
    measures = [HEALTH, PLACEMENTS, *sorted(numeric)[:_MEASURES_SHOWN]]
    measure = next((one for one in measures if one == params.get("measure")), HEALTH)
    values = _measured(measure) if measure != HEALTH else {}
    total = sum(map(len, members_of.values()))
    placed = (
        _names_of_placements() if total <= WITH_PLACEMENTS and measure == HEALTH else {}
    )
    form = next(form for form, most in _FORMS.items() if total <= most)
    shown, rest = _drawn(members_of)
    highest = max(map(len, members_of.values()), default=1)
    drawing = _Drawing(by, measure, values, placed, form=form, highest=highest)
    columns = [drawing.column(value, members) for value, members in shown]
    states = Counter(state for members in members_of.values() for _, state in members)
    return {
        "by": by,
        "keys": keys[:_KEYS_SHOWN],
        "measure": measure,
        "measures": measures,
        "form": form,
        "map_unknown": unknown_words(request, measure=measures),
        "columns": columns,
        "legend": _states(states),
        "domains": sum(value is not None for value in members_of),
        "more_domains": len(rest),
        "more_clusters": sum(len(members) for _, members in rest),
    }


Domains = list[tuple[str | None, Members]]


def _drawn(members: Mapping[str | None, Members]) -> tuple[Domains, Domains]:
    """Return the domains to draw and the others, both in the given order.

    Of many domains those with a problem are drawn, then the largest.
    """

    def rank(item: tuple[str | None, Members]) -> tuple[bool, bool, int]:
        value, several = item
        is_calm = all(state in _QUIET for _, state in several)
        return is_calm, value is None, -len(several)

    domains = list(members.items())
    if len(domains) <= _COLUMNS:
        return domains, []
    values = {value for value, _ in sorted(domains, key=rank)[: _COLUMNS - 1]}
    return [domain for domain in domains if domain[0] in values], [
        domain for domain in domains if domain[0] not in values
    ]


def _states(counts: Mapping[ClusterListState, int]) -> list[MapState]:
    found = []
    for state, badge in badges.STATE_BADGES.items():
        if counts.get(state):
            words = _COUNTED.get(state, badge.words)
            words = words[:1].lower() + words[1:]
            glyph = _GLYPHS.get(state, "")
            found.append(
                MapState(badge.kind, glyph, words, counts[state], state in _QUIET)
            )
    return found


def _names_of_placements() -> dict[str, list[str]]:
    rows = Binding.objects.exclude(state=BindingState.UNSCHEDULED).order_by(
        "placement__full_name"
    )
    names: dict[str, list[str]] = defaultdict(list)
    for cluster, placement in rows.values_list("cluster_name", "placement__full_name"):
        names[cluster].append(placement)
    return names


@dataclass(frozen=True, slots=True)
class _Drawing:
    by: str
    measure: str
    values: Mapping[str, float]
    placed: Mapping[str, Sequence[str]]
    form: str
    highest: int

    def column(self, value: str | None, members: Members) -> MapColumn:
        counts = Counter(state for _, state in members)
        measured = [self.values[name] for name, _ in members if name in self.values]
        numbers = (
            (sum(measured) / len(measured), min(measured), max(measured))
            if measured
            else ()
        )
        words = [quantity_words(number, self.measure) for number in numbers]
        rank = list(badges.STATE_BADGES)
        clusters = list(members) if self.form != "pillars" else []
        if self.form == "squares":  # what is wrong is at the top
            clusters.sort(key=lambda one: rank.index(one[1]))
        return MapColumn(
            value_words(value),
            urlencode({"label": label_filter(self.by, value)}) if self.by else "",
            len(members),
            _states(counts),
            [self.cluster(*cluster) for cluster in clusters],
            max(_NARROW, -(-len(members) // _HIGHEST)),
            max(4, round(100 * len(members) / self.highest)),
            "{} ({} to {})".format(*words) if words else "",
        )

    def cluster(self, name: str, state: ClusterListState) -> MapCluster:
        text, shade = ", ".join(self.placed.get(name, ())), ""
        if name in self.values:
            text = quantity_words(self.values[name], self.measure)
            low, high = min(self.values.values()), max(self.values.values())
            share = (self.values[name] - low) / (high - low) if high > low else 1
            shade = f"shade-{1 + min(_SHADES - 1, int(_SHADES * share))}"
        return MapCluster(
            name, badges.STATE_BADGES[state], _GLYPHS.get(state, ""), text, shade
        )


def _measured(measure: str) -> dict[str, float]:
    if measure == PLACEMENTS:
        names = list(MemberCluster.objects.order_by().values_list("name", flat=True))
        return dict.fromkeys(names, 0.0) | {
            one: float(count) for one, count in placements_on(names).items()
        }
    rows = MemberCluster.objects.order_by().values_list("name", "properties")
    values = ((name, _number(properties.get(measure))) for name, properties in rows)
    return {name: value for name, value in values if value is not None}


_BINDINGS, _LABELS = 10, 20


@for_readers
@require_safe
def map_panel(request: HttpRequest) -> HttpResponse:
    """Show a cluster or a domain of the map beside it; without a script its page or its list."""
    name, label = request.GET.get("cluster", ""), request.GET.get("label", "")
    if not name and not label:
        return HttpResponseBadRequest(
            "Required: cluster=NAME or label=KEY:VALUE", "text/plain"
        )
    rows = MemberCluster.objects.select_related("credential")
    cluster = get_object_or_404(rows, name=name) if name else None
    page = (
        reverse("web:cluster", args=[cluster.name])
        if cluster
        else reverse("web:clusters", query={"label": label})
    )
    if not wants_fragment(request):
        return redirect(page)
    if not cluster:
        clusters = list(clusters_matching(ClusterFilter(labels=(label,))))
        if not clusters:
            return redirect_page(request, page)
        placed = placements_on([one.name for one in clusters])
        return render_page(
            request,
            "dashboard/_map_domain.html",
            {
                "label": label,
                "query": urlencode({"label": label}),
                "total": len(clusters),
                "states": Counter(
                    badges.cluster_badge(one, is_cordoned=one.is_cordoned)
                    for one in clusters
                ).most_common(),
                "bindings": sum(placed.values()),
                "empty": len(clusters) - len(placed),
            },
        )

    now = datetime.now(UTC)
    bring_up_to_date(now=now)
    here = bindings_on(name)
    bindings = list(here[:_BINDINGS])
    healths = healths_named(
        [binding.placement.full_name for binding in bindings], now=now
    )
    labels = sorted((cluster.document["metadata"].get("labels") or {}).items())
    return render_page(
        request,
        "dashboard/_map_cluster.html",
        {
            "cluster": cluster,
            "state": badges.cluster_badge(cluster, is_cordoned=cluster.is_cordoned),
            "is_cordoned": cluster.is_cordoned,
            "reason": unreachable_words(cluster, now=now) or cluster.workloads_problem,
            "labels": labels[:_LABELS],
            "more_labels": max(0, len(labels) - _LABELS),
            "bindings": [
                (binding, badges.placement_state(healths[binding.placement.full_name]))
                for binding in bindings
            ],
            "placements": here.count(),
        },
    )
