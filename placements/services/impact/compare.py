"""The rows of a comparison: what a hub does now, and what a fresh schedule would do."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import cached_property

from clusters.fleet import Fleet
from placements.engine.checks.examination import RULES, Examination
from placements.engine.checks.file import ChecksFile
from placements.engine.checks.findings import OF_FLEET, Finding
from placements.engine.checks.placement import least_seconds
from placements.engine.checks.predicates import (
    AssertionFacts,
    AssertionResult,
    assertions_about,
    evaluate_assertions,
)
from placements.engine.loss import (
    CLUSTER,
    EvaluatedPlacement,
    LossVariant,
    PlacementIndex,
    domains_of,
    skew_of,
)
from placements.engine.scheduling.cycle import Cycle
from placements.engine.scheduling.decision import Decision
from placements.engine.scheduling.scheduler import schedule
from placements.manifests.assertions import Assertion
from placements.manifests.binding import PlacedBinding
from placements.manifests.placement import ClusterResourcePlacement
from placements.services.checks import (
    examine_one,
    fleet_examination,
    has_timed_objects,
    introduced,
)
from placements.services.impact.sources import DiffSide, SourceNote, WrittenPlacement
from placements.services.simulate.translate import placement_input


@dataclass(frozen=True)
class DiffRow:
    """What happens to one placement; `base` or `head` is None for one that is added or removed.

    `now` starts from what is placed, `fresh` from nothing: their difference is pending drift. `findings` of
    the checks are those that the base does not have; `not_checked` are rules that were checked there alone.
    `waits` are the timed waits of the stages of a staged update run.
    """

    name: str
    base: WrittenPlacement | None
    head: WrittenPlacement | None
    before: Decision | None
    now: Decision | None
    fresh: Decision | None
    findings: tuple[Finding, ...] = ()
    not_checked: tuple[str, ...] = ()
    waits: timedelta = timedelta()

    @property
    def where(self) -> WrittenPlacement:
        placement = self.head or self.base
        if placement is None:
            raise ValueError("a row has at least one side")
        return placement

    @property
    def change(self) -> str:
        if self.base is None or self.head is None:
            return "added" if self.base is None else "removed"
        return "fleet only" if self.base.manifest == self.head.manifest else "edited"

    @cached_property
    def placed_before(self) -> frozenset[str]:
        return self.before.placed_after if self.before else frozenset()

    @cached_property
    def placed_now(self) -> frozenset[str]:
        return self.now.placed_after if self.now else frozenset()

    @cached_property
    def placed_fresh(self) -> frozenset[str]:
        return self.fresh.placed_after if self.fresh else frozenset()

    @property
    def joins(self) -> list[str]:
        return sorted(self.placed_now - self.placed_before)

    @property
    def leaves(self) -> list[str]:
        return sorted(self.placed_before - self.placed_now)

    @property
    def fresh_joins(self) -> list[str]:
        return sorted(self.placed_fresh - self.placed_now)

    @property
    def fresh_leaves(self) -> list[str]:
        return sorted(self.placed_now - self.placed_fresh)

    @property
    def becomes_unfulfilled(self) -> bool:
        was = self.before is None or self.before.is_fulfilled
        return self.now is not None and was and not self.now.is_fulfilled

    @property
    def becomes_fulfilled(self) -> bool:
        was = self.before is not None and not self.before.is_fulfilled
        return was and self.now is not None and self.now.is_fulfilled

    @property
    def has_changes(self) -> bool:
        changes = (
            self.joins
            or self.leaves
            or self.fresh_joins
            or self.fresh_leaves
            or self.findings
        )
        return bool(
            changes
            or self.becomes_unfulfilled
            or self.becomes_fulfilled
            or self.change != "fleet only"
        )

    @property
    def rollout_seconds(self) -> int:
        """Return how long the clusters that change take at least."""
        changing = len(self.joins) + len(self.leaves)
        if self.head is None or not changing:
            return 0
        strategy, seconds = self.head.manifest.spec.strategy.rolling_update, 0
        if strategy and has_timed_objects(self.head.manifest):
            seconds = least_seconds(
                strategy, placed=len(self.placed_now), updated=changing
            )
        return seconds + int(self.waits.total_seconds())

    @property
    def skews(self) -> list[tuple[str, int | None, int | None]]:
        keys = {
            constraint.topology_key: None
            for decision in (self.before, self.now)
            if decision
            for constraint in decision.cycle.policy.topology_spread_constraints
        }
        return [(key, _skew(self.before, key), _skew(self.now, key)) for key in keys]

    def examined(self, hygiene: Sequence[Sequence[Finding]]) -> "DiffRow":
        """Return the row with what checks find in the head, not in the base; runs are limited by number."""
        if self.head is None or self.now is None:
            return self
        examination = examine_one(
            self.head.manifest, self.now.cycle, hygiene[-1], clock=float
        )
        was = Examination(())
        if self.base is not None and self.before is not None:
            was = examine_one(
                self.base.manifest, self.before.cycle, hygiene[0], clock=float
            )
        findings = introduced(was.findings, examination.findings)
        new = (
            finding for finding in findings if RULES[finding.rule].needs not in OF_FLEET
        )
        missing = tuple(
            rule for rule in examination.not_checked if rule not in was.not_checked
        )
        return replace(self, findings=tuple(new), not_checked=missing)


def _skew(decision: Decision | None, key: str) -> int | None:
    if decision is None:
        return None
    return skew_of(decision.cycle.fleet, key, None, decision.placed_after)


@dataclass(frozen=True)
class RevisionImpact:
    """All rows by name, with the number of bindings before, and what is new about the labels of the fleet."""

    rows: tuple[DiffRow, ...]
    base: DiffSide
    head: DiffSide
    fleet_findings: tuple[Finding, ...] = ()

    @cached_property
    def notes(self) -> list[SourceNote]:
        """Return what was not read: in the head, and in the base alone."""
        known = {(note.file, note.message) for note in self.head.notes}
        return [
            *self.head.notes,
            *(
                note
                for note in self.base.notes
                if (note.file, note.message) not in known
            ),
        ]

    @cached_property
    def changed(self) -> list[DiffRow]:
        return [row for row in self.rows if row.has_changes]

    @cached_property
    def bindings_before(self) -> int:
        return sum(len(row.placed_before) for row in self.rows)

    @cached_property
    def leaves(self) -> int:
        return sum(len(row.leaves) for row in self.rows)

    @cached_property
    def decisions(self) -> tuple[dict[str, Decision], dict[str, Decision]]:
        """Return the decisions of both sides by name; a renamed placement has both names in the base."""
        before = {
            row.base.manifest.full_name: row.before
            for row in self.rows
            if row.base and row.before
        }
        renamed = {row.name: row.before for row in self.rows if row.before}
        return {**renamed, **before}, {
            row.name: row.now for row in self.rows if row.now
        }

    def assertion_results(
        self, row: DiffRow, items: Sequence[Assertion], *, of_base: bool
    ) -> list[AssertionResult]:
        """Evaluate assertions on one side; history and the resilience report are computed from the files."""
        decisions = self.decisions[0 if of_base else 1]
        decision = row.before if of_base else row.now
        if decision is None:
            return []
        names = {
            str(item.value) for item in items if item.predicate in ("together", "apart")
        }
        others = {
            name: decisions[name].placed_after if name in decisions else None
            for name in names
        }
        survived = _survived(decision, items)
        return evaluate_assertions(items, decision, AssertionFacts(others, survived))


def assertions_of(
    placement: WrittenPlacement, file: ChecksFile
) -> tuple[Assertion, ...]:
    manifest = placement.manifest
    metadata = manifest.metadata
    return assertions_about(
        manifest.full_name, metadata.labels, metadata.annotations, file.assertions
    )


def _survived(decision: Decision, items: Sequence[Assertion]) -> dict[str, bool]:
    """Return for each level that assertions name whether the placement survives all of its losses."""
    values = [item.value for item in items if item.predicate == "survives"]
    levels = {
        level
        for value in values
        for level in ([value] if isinstance(value, str) else value)
    }
    if not levels:
        return {}
    fleet = decision.cycle.fleet
    facts = EvaluatedPlacement(
        replace(decision.cycle, bindings=decision.bindings_after), decision.is_fulfilled
    )
    keys = sorted(levels - {CLUSTER})
    index = PlacementIndex({0: facts})
    survives = dict.fromkeys(levels, True)
    for domain in domains_of(fleet, keys, has_clusters=CLUSTER in levels):
        for _, counts in index.counts(fleet, domain.clusters, LossVariant):
            survives[domain.level] &= not any(count.is_bad for count in counts.values())
    return survives


def compare(
    base: DiffSide,
    head: DiffSide,
    *,
    fleet: Fleet | None = None,
    bindings: Mapping[str, tuple[PlacedBinding, ...]] | None = None,
    renames: Mapping[str, str] | None = None,
) -> RevisionImpact:
    """Decide every placement of both sides.

    With `fleet` both sides use it instead of their own. The base is decided from `bindings`, by the full name
    of the placement, or from nothing; a placement without any change is not decided again.
    """
    fleets = (fleet, fleet) if fleet is not None else (base.fleet(), head.fleet())
    renamed = dict(renames or {})
    pairs: dict[
        tuple[str, str], tuple[WrittenPlacement | None, WrittenPlacement | None]
    ] = {
        (renamed.get(name, name), kind): (placement, None)
        for (kind, name), placement in base.placements.items()
    }
    for (kind, name), placement in head.placements.items():
        pairs[name, kind] = (pairs.get((name, kind), (None, None))[0], placement)
    is_same_fleet = fleet is not None or base.members == head.members
    hygiene = [
        fleet_examination(one).findings for one in fleets[: 1 if is_same_fleet else 2]
    ]
    rows = []
    for (name, _), (old, new) in sorted(pairs.items(), key=lambda pair: pair[0]):
        before = now = fresh = None
        if old is not None:
            base_bindings = (bindings or {}).get(old.manifest.full_name, ())
            before = schedule(_cycle(old.manifest, fleets[0], base_bindings))
        if (
            new is not None
            and old is not None
            and is_same_fleet
            and old.manifest == new.manifest
        ):
            rows.append(DiffRow(name, old, new, before, before, before))
            continue
        if new is not None:
            placed = before.bindings_after if before else ()
            # The policy snapshot stays where at most the number of clusters differs.
            policies = [
                (
                    placement.manifest.spec.policy.without_number(),
                    placement.manifest.semantics,
                    placement.manifest.spread_options,
                )
                for placement in (old or new, new)
            ]
            is_current = policies[0] == policies[1]
            kept = tuple(
                binding._replace(is_current=is_current)
                for binding in placed
                if binding.is_active
            )
            now = schedule(_cycle(new.manifest, fleets[1], kept))
            fresh = schedule(_cycle(new.manifest, fleets[1], ()))
        row = DiffRow(
            name, old, new, before, now, fresh, waits=head.waits.get(name, timedelta())
        )
        rows.append(row.examined(hygiene))
    if fleet is not None:
        head = replace(head, member_files={})
    return RevisionImpact(tuple(rows), base, head, introduced(hygiene[0], hygiene[-1]))


def _cycle(
    manifest: ClusterResourcePlacement,
    fleet: Fleet,
    bindings: tuple[PlacedBinding, ...],
) -> Cycle:
    return replace(
        placement_input(manifest).cycle(fleet, bindings),
        namespace=manifest.resource_namespace,
    )
