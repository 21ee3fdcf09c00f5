"""Rules about the number of clusters, the rollout and named clusters."""

from collections.abc import Iterator
from math import ceil

from placements.engine.checks.findings import (
    Case,
    Finding,
    Fix,
    Needs,
    Rule,
    Severity,
    counted,
    nearest,
    some,
)
from placements.engine.overlaps import PATH as OVERLAP_PATH
from placements.engine.scheduling.candidates import filter_columns
from placements.engine.scheduling.profile import profile_of
from placements.manifests.placement import NEVER_IN_PLACE
from placements.manifests.policy import PlacementType
from placements.manifests.strategy import RollingUpdate

_LONG = 6 * 3600
_QUARTER = "25%"


def too_many(case: Case) -> Iterator[Finding]:
    number, candidates = case.policy.number_of_clusters or 0, case.candidates
    if not case.is_pick_n or number <= candidates:
        return
    passing = {
        name: int(one.sum())
        for name, one in filter_columns(case.cycle, profile_of(case.cycle)).items()
    }
    strictest = min(passing, key=lambda name: passing[name], default="")
    message = f"{counted(number)} requested, only {candidates:,} pass the filters"
    message += " or stay selected." if case.kept else "."
    if strictest and passing[strictest] < len(case.fleet):
        message += f" The filter {strictest} removes most: {len(case.fleet) - passing[strictest]:,}."
    fix = Fix(
        f"Set numberOfClusters to {candidates}.",
        edits=((("policy", "numberOfClusters"), candidates),),
    )
    yield N01.finding(
        "spec.policy.numberOfClusters", message, ("numberOfClusters", ""), fix=fix
    )


def no_spare(case: Case) -> Iterator[Finding]:
    number = case.policy.number_of_clusters or 0
    if case.is_pick_n and number and number == case.candidates:
        message = "No spare cluster: after the loss of any candidate, fewer than numberOfClusters remain."
        edits = ((("policy", "numberOfClusters"), number - 1),)
        fix = Fix(
            f"Set numberOfClusters to {number - 1}, or widen the filters.", edits=edits
        )
        yield N02.finding(
            "spec.policy.numberOfClusters", message, fix=fix if number > 1 else None
        )


def _one_domain(case: Case, names: tuple[str, ...]) -> tuple[str, str] | None:
    """Return the first level of which these clusters share one value, and the value."""
    for key in ("region", "zone", "provider"):
        column = case.fleet.label(key)
        if len(column.values) < 2 or 2 * int(column.is_present.sum()) < len(case.fleet):
            continue
        values = {column.value_at(case.fleet.positions[name]) for name in names}
        if len(values) == 1 and (value := values.pop()) is not None:
            return key, value
    return None


def picks_together(case: Case) -> Iterator[Finding]:
    if (
        not case.is_pick_n
        or case.policy.topology_spread_constraints
        or (case.policy.number_of_clusters or 0) < 2
    ):
        return
    names = case.decision.picked_names
    domain = _one_domain(case, names) if len(names) > 1 else None
    if domain:
        key, value = domain
        message = f"All {len(names):,} selected clusters are in {key} {value}."
        constraint = {
            "topologyKey": key,
            "maxSkew": 1,
            "whenUnsatisfiable": "ScheduleAnyway",
        }
        fix = Fix(
            f"Spread over {key}.",
            edits=((("policy", "topologySpreadConstraints"), [constraint]),),
        )
        yield N04.finding("spec.policy", message, fix=fix)


def common_objects(case: Case) -> Iterator[Finding]:
    yield from (
        N05.finding(OVERLAP_PATH, overlap.sentence, ("placement", overlap.placement))
        for overlap in case.overlaps
    )


_PLACE = ("strategy", "rollingUpdate", "maxUnavailable")
_PATH = ".".join(("spec", *_PLACE))
_SET_QUARTER = Fix(f"Set maxUnavailable to {_QUARTER}.", edits=((_PLACE, _QUARTER),))


def no_unavailability(case: Case) -> Iterator[Finding]:
    if case.strategy and case.strategy.max_unavailable.number == 0:
        yield R01.finding(
            _PATH, NEVER_IN_PLACE, ("maxUnavailable", ""), fix=_SET_QUARTER
        )


def all_at_once(case: Case) -> Iterator[Finding]:
    most = case.strategy.max_unavailable if case.strategy else None
    if most and most.is_percent and most.number == 100:
        message = "All clusters are updated at the same time."
        yield R02.finding(_PATH, message, ("maxUnavailable", ""), fix=_SET_QUARTER)


def least_seconds(strategy: RollingUpdate, *, placed: int, updated: int) -> int:
    """Return how long a rollout of objects whose readiness cannot be observed takes at least."""
    most = strategy.max_unavailable
    at_once = max(
        1, ceil(placed * most.number / 100) if most.is_percent else most.number
    )
    return ceil(updated / at_once) * strategy.unavailable_period_seconds


def slow_rollout(case: Case) -> Iterator[Finding]:
    if not case.strategy or not case.is_timed:
        return
    placed = len(case.decision.picked_names)
    seconds = least_seconds(case.strategy, placed=placed, updated=placed)
    if seconds > _LONG:
        message = (
            f"A rollout to all {counted(placed)} takes at least {seconds / 3600:.1f} h."
        )
        fix = Fix(
            "Set unavailablePeriodSeconds to 60.",
            edits=((("strategy", "rollingUpdate", "unavailablePeriodSeconds"), 60),),
        )
        yield R03.finding(
            "spec.strategy.rollingUpdate", message, ("rollout", ""), fix=fix
        )


def unknown_clusters(case: Case) -> Iterator[Finding]:
    known = dict.fromkeys(case.fleet.names, 1)
    for index, name in enumerate(case.policy.cluster_names):
        if name not in known:
            guess = nearest(name, known)
            message = f"{name} is not in the fleet.{f' Did you mean {guess}?' if guess else ''}"
            edits = ((("policy", "clusterNames", index), guess),)
            is_new = guess is not None and guess not in case.policy.cluster_names
            fix = Fix(f"Name {guess} instead.", edits=edits) if is_new else None
            yield F01.finding(
                f"spec.policy.clusterNames[{index}]",
                message,
                ("cluster", name),
                fix=fix,
            )


def names_together(case: Case) -> Iterator[Finding]:
    if case.policy.placement_type is not PlacementType.PICK_FIXED:
        return
    names = tuple(
        name for name in case.policy.cluster_names if name in case.fleet.positions
    )
    domain = _one_domain(case, names) if len(names) > 1 else None
    if domain:
        message = f"All named clusters are in {domain[0]} {domain[1]}: {some(names)}."
        yield F02.finding("spec.policy.clusterNames", message)


N01 = Rule(
    "N01", Severity.ERROR, Needs.FLEET, "More clusters than candidates", too_many
)
N02 = Rule("N02", Severity.WARNING, Needs.FLEET, "No spare cluster", no_spare)
N04 = Rule(
    "N04",
    Severity.INFO,
    Needs.DECISION,
    "All selected clusters in one domain",
    picks_together,
)
N05 = Rule(
    "N05", Severity.WARNING, Needs.FLEET, "Objects of another placement", common_objects
)
R01 = Rule("R01", Severity.ERROR, Needs.POLICY, "maxUnavailable 0", no_unavailability)
R02 = Rule("R02", Severity.WARNING, Needs.POLICY, "maxUnavailable 100 %", all_at_once)
R03 = Rule("R03", Severity.WARNING, Needs.DECISION, "Long rollout", slow_rollout)
F01 = Rule("F01", Severity.ERROR, Needs.FLEET, "Unknown cluster name", unknown_clusters)
F02 = Rule(
    "F02",
    Severity.INFO,
    Needs.FLEET,
    "All named clusters in one domain",
    names_together,
)
PLACEMENT = (N01, N02, N04, N05, R01, R02, R03, F01, F02)
