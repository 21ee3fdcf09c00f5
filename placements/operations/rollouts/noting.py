"""Noting the conditions of a placement and its clusters, so that each keeps its own moment of transition."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime

from placements.explain.hub_conditions import conditions_in_all, conditions_on, noted_of
from placements.models import Binding, Placement
from placements.queries.conditions import Reading
from placements.scheduling.bindings import BindingState
from placements.standing import Held, Standing

_BATCH = 500


def note_conditions(standing: Standing, *, now: datetime) -> None:
    """Write down which conditions have changed since they were noted last, and when.

    Only in the transaction of a look, after what it started: every change of a cluster or of what is wanted
    asks for a look. What a condition is now is read from the rows whenever somebody asks, so that nothing is
    lost when a look comes late.
    """
    reading = replace(Reading.of(standing.manifest, standing.target, now=now), wanted_since=now)
    wanted = {one.name: one.wanted for one in standing.state.clusters}
    each = []
    for bindings in _alike(standing, wanted):
        one = bindings[0]
        found = conditions_on(reading.of_binding(one, wanted[one.cluster_name]))
        each.append(found)
        noted = noted_of(found)
        if noted != one.conditions:
            _write(noted, [binding.pk for binding in bindings])
    in_all = noted_of(conditions_in_all(each, standing.placement.conditions))
    if in_all != standing.placement.conditions:
        Placement.objects.filter(pk=standing.placement.pk).update(conditions=in_all)


def _alike(standing: Standing, wanted: Mapping[str, str | None]) -> Iterable[Sequence[Held]]:
    """Put the bindings together that differ in nothing a condition is read from: in a large fleet, most."""
    found: dict[object, list[Held]] = {}
    for read in standing.bindings:
        one = read.having(standing.started[read.pk]) if read.pk in standing.started else read
        if one.state != BindingState.UNSCHEDULED:
            name = one.cluster_name
            facts = one._replace(pk=0, cluster_name="", message="", attempts=0, retry_at=None)
            found.setdefault((facts, wanted[name]), []).append(one)
    return found.values()


def _write(noted: dict[str, list[str]], listed: Sequence[int]) -> None:
    for start in range(0, len(listed), _BATCH):
        Binding.objects.filter(pk__in=listed[start : start + _BATCH]).update(conditions=noted)
