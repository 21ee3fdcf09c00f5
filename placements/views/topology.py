"""The fleet by any one or two of its labels; each group leads to its clusters, and to what if they went."""

from dataclasses import dataclass
from urllib.parse import urlencode

from django.http import HttpRequest, HttpResponse
from django.views.decorators.http import require_safe

from clusters.listing import label_keys
from clusters.topology import Group, groups_by, near_duplicates
from fleetui.access import for_readers
from fleetui.htmx import render_page
from placements.explain.charts.topology import Grouped, topology_chart, value_words
from placements.queries.topology import favourite_key
from placements.views.chart_tables import asked_table
from placements.views.standings import STANDINGS
from placements.views.states import State

_ROWS = 100
_KEYS_SHOWN = 40


@dataclass(frozen=True, slots=True)
class GroupRow:
    """One group, with the addresses that it leads to."""

    values: list[str]
    total: int
    states: list[tuple[State, int]]
    query: str


@for_readers
@require_safe
def topology(request: HttpRequest) -> HttpResponse:
    """Show how many clusters have which values, and which values look misspelt."""
    keys = label_keys()
    chosen = _chosen(request, [key for key, _ in keys])
    groups = groups_by(*chosen) if chosen else []
    chart = topology_chart(chosen, [_grouped(one) for one in groups]) if chosen else None
    table = asked_table(request, [chart] if chart else [])
    if table:
        return table
    context = {
        "keys": keys[:_KEYS_SHOWN],
        "all_keys": keys,
        "chosen": chosen,
        "key": chosen[0] if chosen else "",
        "key2": chosen[1] if len(chosen) > 1 else "",
        "charts": [chart] if chart else [],
        "rows": [_row(chosen, one) for one in groups[:_ROWS]],
        "more": max(0, len(groups) - _ROWS),
        "alike_keys": near_duplicates(key for key, _ in keys),
        "alike": [(key, alike) for place, key in enumerate(chosen) for alike in _alike(groups, place)],
        "lacking": sum(one.total for one in groups if None in one.values),
    }
    return render_page(request, "topology/topology.html", context)


def _chosen(request: HttpRequest, known: list[str]) -> tuple[str, ...]:
    """Read the labels; one that no cluster carries is answered too: all lack it."""
    first = request.GET.get("key", "").strip() or favourite_key(known)
    second = request.GET.get("key2", "").strip()
    return tuple(dict.fromkeys(one for one in (first, second) if one))


def _grouped(group: Group) -> Grouped:
    return Grouped(group.values, {str(state): count for state, count in group.counts.items()})


def _alike(groups: list[Group], place: int) -> list[tuple[str, ...]]:
    return near_duplicates(one.values[place] or "" for one in groups if one.values[place])


def _row(keys: tuple[str, ...], group: Group) -> GroupRow:
    labels = [
        f"!{key}" if value is None else f"{key}:{value}"
        for key, value in zip(keys, group.values, strict=True)
    ]
    return GroupRow(
        list(map(value_words, group.values)),
        group.total,
        [(STANDINGS[state], group.counts[state]) for state in STANDINGS if state in group.counts],
        urlencode([("label", label) for label in labels]),
    )
