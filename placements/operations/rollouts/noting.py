"""Noting the conditions of a placement and its clusters, so that each keeps its own moment of transition."""

import json
from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime

from placements.explain.hub_conditions import conditions_in_all, conditions_on, noted_of
from placements.models import Binding, Placement
from placements.queries.conditions import Reading
from placements.scheduling.bindings import BindingState
from placements.standing import Standing

_BATCH = 500


def note_conditions(standing: Standing, *, now: datetime) -> None:
    """Write down which conditions have changed since they were noted last, and when.

    Only in the transaction of a look, after what it started: every change of a cluster or of what is wanted
    asks for a look. What a condition is now is read from the rows whenever somebody asks, so that nothing is
    lost when a look comes late.
    """
    reading = replace(Reading.of(standing.manifest, standing.target, now=now), wanted_since=now)
    wanted = {one.name: one.wanted for one in standing.state.clusters}
    changed: dict[str, tuple[dict[str, list[str]], list[int]]] = {}
    each = []
    for binding in standing.bindings:
        if binding.state == BindingState.UNSCHEDULED:
            continue
        found = conditions_on(reading.of_binding(binding, wanted[binding.cluster_name]))
        each.append(found)
        noted = noted_of(found)
        if noted != binding.conditions:
            changed.setdefault(json.dumps(noted), (noted, []))[1].append(binding.pk)
    for noted, pks in changed.values():
        _write(noted, pks)
    in_all = noted_of(conditions_in_all(each, standing.placement.conditions))
    if in_all != standing.placement.conditions:
        Placement.objects.filter(pk=standing.placement.pk).update(conditions=in_all)


def _write(noted: dict[str, list[str]], pks: Iterable[int]) -> None:
    listed = list(pks)
    for start in range(0, len(listed), _BATCH):
        Binding.objects.filter(pk__in=listed[start : start + _BATCH]).update(conditions=noted)
