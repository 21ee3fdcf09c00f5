"""A change of a placement or of the fleet, applied to a cycle as if it were saved.

A change of the number alone keeps the bindings current; any other change of the policy makes a new policy
snapshot, so all bindings become obsolete (`rules/scheduler.md#bindings`). A change of the fleet keeps
them.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

from clusters.fleet import ELIGIBLE
from placements.engine.scheduling.cycle import Cycle
from placements.engine.scheduling.profile import profile_of
from placements.manifests.policy import PlacementPolicy, parse_policy

Edit = Callable[[dict[str, Any]], None]


class ChangeKind(StrEnum):
    """The fixed menu of changes that advice tries, some for some semantics only; combinations are not tried.

    COUNTED is what counts for a constraint, OPTION one of the options of the semantics, PREFERENCE a new
    preferred term and TERM a new required one. PREFER_TERMS makes the required terms preferred ones.
    """

    NUMBER = "number"
    FEWER = "fewer-clusters"
    MAX_SKEW = "max-skew"
    MIN_DOMAINS = "min-domains"
    COUNTED = "counted"
    OPTION = "option"
    WHEN_UNSATISFIABLE = "when-unsatisfiable"
    DROP_CONSTRAINT = "drop-constraint"
    TOLERATION = "toleration"
    PREFER_TERMS = "prefer-terms"
    DROP_TERM = "drop-term"
    DROP_REQUIREMENT = "drop-requirement"
    LABEL = "label"
    WEIGHT = "weight"
    PREFERENCE = "preference"
    TERM = "term"
    REPORT = "report"
    NAME = "name"


_OTHER_CHANGES = {
    ChangeKind.NUMBER,
    ChangeKind.FEWER,
    ChangeKind.LABEL,
    ChangeKind.REPORT,
}
POLICY_CHANGES = frozenset(ChangeKind) - _OTHER_CHANGES


_ACCEPTANCE = (
    ChangeKind.WEIGHT,
    ChangeKind.PREFERENCE,
    ChangeKind.TERM,
    ChangeKind.NAME,
    ChangeKind.TOLERATION,
    ChangeKind.REPORT,
    ChangeKind.NUMBER,
    ChangeKind.PREFER_TERMS,
    ChangeKind.DROP_REQUIREMENT,
    ChangeKind.DROP_TERM,
    ChangeKind.WHEN_UNSATISFIABLE,
    ChangeKind.MAX_SKEW,
    ChangeKind.MIN_DOMAINS,
    ChangeKind.COUNTED,
    ChangeKind.OPTION,
    ChangeKind.DROP_CONSTRAINT,
    ChangeKind.FEWER,
    ChangeKind.LABEL,
)

# The last place of what adds to the fleet or to a policy, and weakens nothing.
WHAT_ADDS = _ACCEPTANCE.index(ChangeKind.NUMBER)


@dataclass(frozen=True)
class Change:
    """One change: its facts, and the cycle that would then run."""

    kind: ChangeKind
    facts: Mapping[str, Any]
    changed: Callable[[], Cycle] = field(repr=False, compare=False)
    edit: Edit | None = field(default=None, repr=False, compare=False)
    option: tuple[str, object] | None = None

    @property
    def acceptance(self) -> int:
        """Return the place among the changes that an operator would accept, 0 for the most acceptable.

        What adds comes first, then what requires less, then what weakens a limit, then what changes a
        cluster. A missing label is more likely to be forgotten than another one is to be wrong.
        """
        kind = self.kind
        if kind is ChangeKind.LABEL and self.facts["today"] is None:
            return WHAT_ADDS
        return _ACCEPTANCE.index(kind)


def with_policy(cycle: Cycle, policy: PlacementPolicy) -> Cycle:
    """Return the cycle that would run after this policy was saved."""
    if policy.without_number() != cycle.policy.without_number():
        cycle = _under_a_new_snapshot(cycle)
    return replace(cycle, policy=policy)


def with_option(cycle: Cycle, name: str, value: object) -> Cycle:
    """Return the cycle that would run after an option was saved, which makes a new policy snapshot too."""
    return replace(_under_a_new_snapshot(cycle), options={**cycle.options, name: value})


def _under_a_new_snapshot(cycle: Cycle) -> Cycle:
    bindings = tuple(binding._replace(is_current=False) for binding in cycle.bindings)
    return replace(cycle, bindings=bindings)


def edited(cycle: Cycle, edit: Edit) -> Cycle:
    """Return the cycle after an edit of the policy's plain form. Raise InvalidManifest if it is invalid."""
    plain = cycle.policy.to_plain()
    edit(plain)
    policy = parse_policy(plain, semantics=cycle.semantics)
    profile_of(cycle).refuse(policy)
    return with_policy(cycle, policy)


def with_label(cycle: Cycle, name: str, key: str, value: str) -> Cycle:
    cluster = cycle.fleet.clusters[cycle.fleet.positions[name]]
    labels = {**cluster.labels, key: value}
    return replace(
        cycle, fleet=cycle.fleet.with_cluster(cluster.with_changes(labels=labels))
    )


def with_eligible(cycle: Cycle, name: str) -> Cycle:
    """Return the cycle in which a cluster reports all that makes it eligible."""
    cluster = cycle.fleet.clusters[cycle.fleet.positions[name]]
    return replace(
        cycle,
        fleet=cycle.fleet.with_cluster(cluster.with_changes(eligibility=ELIGIBLE)),
    )
