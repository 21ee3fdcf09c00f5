"""The options of `ocm` that may lead to another choice, for advice: each with the values worth trying."""

from collections.abc import Iterator
from typing import NamedTuple

from placements.scheduling.cycle import Cycle
from placements.scheduling.door.ocm_options import Mode, OcmOptions, UnsetPolicy

_LADDER = (0, 0.1, 0.25, 0.5, 0.75, 1, 1.5, 2, 3, 4, 6, 8, 12, 16, 24, 32, 64, 128)


class Choice(NamedTuple):
    """An option, what it is today, and other values of it, the nearest first."""

    option: str
    today: object
    values: tuple[object, ...]


def ocm_choices(cycle: Cycle) -> Iterator[Choice]:
    """Give the options that matter for a cycle: none without a spread; no values of `u` in strict mode."""
    options, constraints = cycle.ocm_options, cycle.policy.topology_spread_constraints
    if not constraints:
        return
    if _somebody_lacks_a_key(cycle):
        today = options.unset_policy
        yield Choice("unsetPolicy", str(today), tuple(str(one) for one in UnsetPolicy if one is not today))
    if len(constraints) > 1:
        yield Choice("nested", options.nested, (not options.nested,))
    other = Mode.WEIGHTED if options.mode is Mode.STRICT else Mode.STRICT
    yield Choice("mode", str(options.mode), (str(other),))
    if options.mode is Mode.WEIGHTED:
        yield from _weighings(options)


def _weighings(options: OcmOptions) -> Iterator[Choice]:
    yield Choice("u", options.u, tuple(one for one in _LADDER if one > options.u))
    yield Choice("u", options.u, tuple(one for one in reversed(_LADDER) if one < options.u))


def _somebody_lacks_a_key(cycle: Cycle) -> bool:
    columns = (
        cycle.fleet.topology(one.topology_key, one.topology_key_type)
        for one in cycle.policy.topology_spread_constraints
    )
    return any(not column.is_present.all() for column in columns)
