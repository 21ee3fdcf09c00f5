"""The impact of a change of the fleet on placements: scheduled in memory, nothing is written.

impact_of([changed])                              labels, taints, a cordon, new clusters
impact_of(lost=["nimblefox"])                     clusters that leave
impact_of(lost=names, variant=LossVariant.CORDON) clusters that are drained
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter
from threading import Lock
from typing import Any

from django.db.models import Q, QuerySet

from clusters.filters import ClusterFilter, clusters_matching
from clusters.fleet import Cluster
from clusters.models import FleetChange, MemberCluster
from clusters.queries import current_fleet
from fleetui.apimachinery.errors import (
    FieldError,
    raise_errors,
)
from fleetui.apimachinery.words import first_names
from fleetui.hub_scope import LatestByHub
from placements.engine.loss import (
    ChangedFleet,
    EvaluatedPlacement,
    LossVariant,
    PlacementImpact,
    PlacementLoss,
    decided_loss,
    loss,
)
from placements.engine.scheduling.cycle import Cycle
from placements.engine.scheduling.decision import Decision
from placements.explain.loss import loss_message
from placements.explain.vocabulary import NAMES_SHOWN
from placements.models import Placement
from placements.services.fleet_events import (
    affected_by_change,
    keeps_others,
    losing_a_cluster,
    reading_labels,
)
from placements.services.snapshots import cycles_of

MOST_EVALUATED = 200
MOST_IN_ANALYSIS = 2_000
_OPENING = attrgetter("taints", "eligibility.kind", "properties", "usage")
"""What concerns all placements; which properties a policy reads is not known here."""
_RANKS = {impact: rank for rank, impact in enumerate(PlacementImpact)}


@dataclass(frozen=True, slots=True)
class Impact:
    """The placements that would change, those that get worse first.

    `evaluated` is the number of evaluated placements, `not_evaluated` the number beyond the limit.
    """

    rows: tuple[PlacementLoss, ...]
    evaluated: int
    not_evaluated: int = 0

    @classmethod
    def of(
        cls, rows: Iterable[PlacementLoss], *, evaluated: int, not_evaluated: int
    ) -> "Impact":
        """Order the rows, with their messages."""
        rows = list(rows)
        joining = {name for row in rows for name in row.joins}
        silent = set[str]()
        if joining:
            away = MemberCluster.objects.filter(unanswered_since__isnull=False)
            silent = joining.intersection(away.values_list("name", flat=True))
        worst_first = sorted(
            (row.with_message(_message(row, silent)) for row in rows),
            key=lambda row: (
                _RANKS[row.impact],
                not row.exceeded_limits,
                row.placement,
            ),
        )
        return cls(tuple(worst_first), evaluated, not_evaluated)

    @property
    def counts(self) -> dict[PlacementImpact, int]:
        counts = Counter(row.impact for row in self.rows)
        return {impact: counts[impact] for impact in PlacementImpact if counts[impact]}

    @property
    def needs_typed_name(self) -> bool:
        return PlacementImpact.STUCK in self.counts


def _message(row: PlacementLoss, silent: Collection[str]) -> str:
    """Return what becomes of a placement; `silent` clusters do not answer, and are still eligible."""
    words = [row.message or loss_message(row)]
    if late := sorted(set(silent).intersection(row.joins)):
        names = first_names(late, NAMES_SHOWN)
        words += [
            f"Does not answer now, a candidate until its heartbeat is lost: {names}."
        ]
    return " ".join(words)


def facts_of(placement: Placement, cycle: Cycle) -> EvaluatedPlacement:
    return EvaluatedPlacement(
        cycle,
        placement.is_fulfilled,
        placement.full_name,
        objects=placement.selected_count or 0,
    )


def evaluable(
    placements: Collection[Placement], change: ChangedFleet
) -> Iterator[tuple[Placement, EvaluatedPlacement, ChangedFleet]]:
    """Yield each placement with what a change is to it.

    To a placement that keeps all other clusters it is one of the changed clusters alone, of which the
    bindings are read: it may have thousands of others.
    """
    is_moving = FleetChange.objects.exists()
    kept = [
        placement.pk
        for placement in placements
        if not is_moving and keeps_others(placement)
    ]
    part = change.part
    where = ~Q(placement__in=kept) | Q(cluster_name__in=part.names)
    for placement, cycle in cycles_of(placements, change.before, where=where):
        facts = facts_of(placement, cycle)
        if placement.pk in kept:
            facts = replace(
                facts,
                cycle=replace(cycle, fleet=part.before),
                elsewhere=placement.placed_count - len(facts.placed),
            )
            yield placement, facts, part
        else:
            yield placement, facts, change


def valid_placements() -> QuerySet[Placement]:
    return Placement.objects.filter(deleting_since=None, selection_faults=[])


def impact_of(
    changed: Iterable[Cluster] = (),
    *,
    lost: Collection[str] = (),
    variant: LossVariant = LossVariant.LEAVE,
) -> Impact:
    """Return the impact of clusters that change, join or are lost, on at most 200 placements by name."""
    before = current_fleet().fleet
    at = before.positions
    changes = {
        cluster.name: cluster
        for cluster in changed
        if cluster.name not in at or before.clusters[at[cluster.name]] != cluster
    }
    change = ChangedFleet(before, tuple(changes.values()), frozenset(lost), variant)
    pairs = [
        (before.clusters[at[name]], new) for name, new in changes.items() if name in at
    ]
    keys = {
        key for old, new in pairs for key, _ in old.labels.items() ^ new.labels.items()
    }
    opens = (
        (bool(lost) and variant is not LossVariant.DOWN)
        or len(pairs) < len(changes)
        or any(_OPENING(old) != _OPENING(new) for old, new in pairs)
    )
    affected = affected_by_change(
        opens=opens, label_keys=keys, property_names=frozenset()
    )
    # A label moves clusters between domains, also of placements that no fleet change reschedules.
    return impact_on(
        {*affected, *losing_a_cluster(lost), *reading_labels(keys)}, change
    )


def impact_on(
    placements: Collection[int], change: ChangedFleet, *, named: Collection[str] = ()
) -> Impact:
    """Return what a change of the fleet does to these placements; at most 200 are evaluated, by name.

    Those in `named` are included although nothing would change.
    """
    valid = valid_placements().filter(pk__in=sorted(placements)).order_by("name")
    evaluated, not_evaluated = first_of(valid, most=MOST_EVALUATED)
    rows = (loss(facts, part) for _, facts, part in evaluable(evaluated, change))
    return Impact.of(
        [row for row in rows if row.is_affected or row.placement in named],
        evaluated=len(evaluated),
        not_evaluated=not_evaluated,
    )


# By placement: what was evaluated, and the variants by which it is affected.
_Worse = dict[int, tuple[EvaluatedPlacement, dict[LossVariant, PlacementLoss]]]


def losses(clusters: Collection[str]) -> dict[LossVariant, Impact]:
    """Return what the loss of clusters does, in each variant, on at most 2,000 placements by name.

    Their decisions are those on the whole fleet.
    """
    return _losses(clusters, {})[0]


def _losses(
    clusters: Collection[str], known: _Worse
) -> tuple[dict[LossVariant, Impact], _Worse]:
    """Return the same and what it is made of; what is `known` of these clusters is not evaluated again."""
    fleet = current_fleet().fleet
    changes = [
        ChangedFleet(fleet, lost=frozenset(clusters), variant=variant)
        for variant in LossVariant
    ]
    losing = losing_a_cluster(clusters)
    may_change = Q(reschedules_on_fleet_change=True) | Q(pk__in=losing)
    placements = valid_placements().filter(may_change).order_by("name")
    evaluated, not_evaluated = first_of(placements, most=MOST_IN_ANALYSIS)
    worse: _Worse = {}
    for placement, cycle in cycles_of(evaluated, fleet):
        facts = facts_of(placement, cycle)
        before, rows = known.get(placement.pk, (None, {}))
        if before != facts:
            every = {change.variant: loss(facts, change) for change in changes}
            rows = {
                variant: row.with_message(loss_message(row))
                for variant, row in every.items()
                if row.is_affected
            }
        worse[placement.pk] = facts, rows
    impacts = {
        variant: Impact.of(
            [rows[variant] for _, rows in worse.values() if variant in rows],
            evaluated=len(evaluated),
            not_evaluated=not_evaluated,
        )
        for variant in LossVariant
    }
    return impacts, worse


_lock = Lock()
_latest: LatestByHub[tuple[object, str, dict[LossVariant, Impact], _Worse]] = (
    LatestByHub()
)
_LARGEST_KEPT = 10_000
"""Of a larger fleet nothing is kept: the decisions hold all bindings."""


def losses_at(version: str, clusters: Collection[str]) -> dict[LossVariant, Impact]:
    """Return the same; this process keeps the latest result while the `version` of the hub is the same.

    A page shows it by variant, by impact and by placement. At another version of the hub, which moves with
    everything that a worker writes, only placements with other inputs are evaluated again.
    """
    fleet = current_fleet().fleet
    key = (fleet, frozenset(clusters))
    kept = _latest.get()
    known = kept[3] if kept is not None and kept[0] == key else {}
    if kept is None or kept[:2] != (key, version):
        kept = key, version, *_losses(clusters, known)
        if len(fleet) <= _LARGEST_KEPT:
            with _lock:
                _latest.put(kept)
    return kept[2]


def first_of(rows: QuerySet[Any], *, most: int) -> tuple[list[Any], int]:
    """Return the first of these rows, and the number of the others."""
    first = list(rows[:most])
    others = rows.count() - most if len(first) == most else 0
    return first, others


def impact_of_decision(placement: Placement, decision: Decision) -> PlacementLoss:
    return decided_loss(facts_of(placement, decision.cycle), [decision])


def chosen_clusters(names: Collection[str], labels: Sequence[str]) -> tuple[str, ...]:
    """Return the clusters with these names and those with all of these labels (`key:value` or `key`).

    Raise InvalidManifest for an unknown name, labels that no cluster has, and an empty choice.
    """
    known = current_fleet().fleet.positions if names else ()
    errors = [
        FieldError(
            f"clusters[{at}]",
            "unknown-cluster",
            f"Invalid value: {name[:63]!r}: cluster not found",
        )
        for at, name in enumerate(names)
        if name not in known
    ]
    rows = clusters_matching(ClusterFilter(labels=tuple(labels)))
    labelled = set(rows.values_list("name", flat=True)) if labels else set()
    if labels and not labelled:
        errors.append(
            FieldError(
                "labels",
                "unsatisfiable",
                "No cluster has " + ", ".join(labels)[:200].replace(":", "="),
            )
        )
    if not names and not labels:
        allowed = "names, or labels such as region=east"
        errors.append(FieldError("clusters", "required", "Required value", allowed))
    raise_errors(errors)
    return tuple(sorted({*names, *labelled}))
