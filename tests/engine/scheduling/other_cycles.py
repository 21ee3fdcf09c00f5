"""Cycles under `ocm` and `kubernetes`, written short, and their strategies on counts that a test gives.

ocm(zones(a=3, b=3), 4, [spread("zone")], "a-1", u=0.5)           a cycle of `ocm`, options by keyword
kubernetes(zones(a=2, b=1), 3, [spread("zone")], "a-1")           one of `kubernetes`
ocm_cycle(document, members)                                      one of an OCM Placement document
crowded({"n1": 2, "n2": 0}, cycle)                                a round with several pods on a node
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from clusters.columns import ABSENT
from clusters.fleet import Cluster, Fleet
from fleetui.apimachinery.model import Semantics
from placements.engine.scheduling.candidates import candidates_of
from placements.engine.scheduling.cycle import Cycle
from placements.engine.scheduling.decision import Decision
from placements.engine.scheduling.outcome import Outcomes
from placements.engine.scheduling.profile import profile_of
from placements.engine.scheduling.replay import Candidate, Replay
from placements.engine.scheduling.round import RoundEvaluation
from placements.engine.scheduling.scheduler import schedule
from placements.engine.scheduling.spread.base import RoundState
from placements.explain.vocabulary import reason_sentence
from placements.manifests.binding import PlacedBinding
from placements.manifests.ocm_options import parse_ocm_options
from placements.manifests.ocm_placement import parse_ocm_placement
from placements.manifests.policy import PlacementPolicy, parse_policy
from tests.builders import Document, binding, cluster, fleet

WEIGHTED: Document = {"mode": "weighted"}


def zones(
    sizes: Mapping[str, int] | None = None, *, key: str = "zone", **more: int
) -> Fleet:
    """Make groups of so many clusters, named group-number."""
    return fleet(
        *numbered(
            {
                group: ({key: group}, size)
                for group, size in {**(sizes or {}), **more}.items()
            }
        )
    )


def numbered(groups: Mapping[str, tuple[Mapping[str, str], int]]) -> list[Cluster]:
    """Make clusters named name-number, so many with these labels of each name."""
    return [
        cluster(f"{name}-{number}", labels)
        for name, (labels, size) in groups.items()
        for number in range(1, size + 1)
    ]


def ocm(
    members: Fleet,
    number: int,
    spreads: Sequence[Document],
    *placed: str | PlacedBinding,
    preferred: Sequence[Document] = (),
    **options: Any,
) -> Cycle:
    """Make a cycle of `ocm`; the rest are its options, named as in the manifest."""
    policy = _policy(Semantics.OCM, number, spreads, preferred)
    return Cycle(
        members,
        policy,
        _bindings(placed),
        Semantics.OCM,
        parse_ocm_options(options).to_plain(),
    )


def kubernetes(
    members: Fleet,
    number: int,
    spreads: Sequence[Document],
    *placed: str | PlacedBinding,
    preferred: Sequence[Document] = (),
    required: Sequence[Document] = (),
) -> Cycle:
    """Make a cycle of `kubernetes`."""
    policy = _policy(Semantics.KUBERNETES, number, spreads, preferred, required)
    return Cycle(members, policy, _bindings(placed), Semantics.KUBERNETES)


def ocm_cycle(document: object, members: Fleet, *placed: str, **options: Any) -> Cycle:
    """Make the cycle of an OCM Placement document."""
    parsed = parse_ocm_placement(document, options=options)
    return Cycle(
        members,
        parsed.policy,
        _bindings(placed),
        Semantics.OCM,
        parsed.options.to_plain(),
    )


def picks(cycle: Cycle) -> list[str]:
    """Return who is picked, in order."""
    return list(schedule(cycle).picked_names)


def pending(decision: Decision) -> int:
    """Count how many clusters are wanted and not found."""
    wanted = decision.cycle.policy.number_of_clusters or 0
    return wanted - len(decision.kept) - len(decision.picked)


def per_group(decision: Decision, key: str) -> dict[str, int]:
    """Count what is placed after the cycle by the value of a label, all values that occur named."""
    clusters = {one.name: one.labels.get(key) for one in decision.cycle.fleet.clusters}
    placed = [
        clusters[placed_binding.cluster]
        for placed_binding in decision.bindings_after
        if placed_binding.is_active
    ]
    return {
        value: placed.count(value)
        for value in sorted(filter(None, set(clusters.values())))
    }


def reason_texts(decision: Decision, name: str) -> list[str]:
    """Return the reasons of one cluster in the words of the screen."""
    return [reason_sentence(reason) for reason in Outcomes(decision).of(name).reasons]


def contenders(decision: Decision, number: int = 1) -> dict[str, Candidate]:
    """Return who could be picked in a round, best first, by name."""
    return {
        candidate.cluster: candidate
        for candidate in Replay(decision).candidates(number)
        if candidate.rank
    }


def ranking(
    decision: Decision, number: int = 1, column: str = "preference"
) -> dict[str, float]:
    """Return a rank column of all who could be picked in a round."""
    return {
        name: candidate.combined[column]
        for name, candidate in contenders(decision, number).items()
    }


def crowded(
    pods: Mapping[str, int], cycle: Cycle, *, infeasible: Iterable[str] = ()
) -> RoundEvaluation:
    """Evaluate a round of a cycle with so many pods on each node, which no placement could put there."""
    candidates = candidates_of(cycle)
    on_node = np.array(
        [pods.get(name, 0) for name in cycle.fleet.names], dtype=np.int64
    )
    counts = []
    for groups in candidates.groups:
        counted = groups.codes != ABSENT
        sums = np.bincount(
            groups.codes[counted], on_node[counted], minlength=len(groups)
        )
        counts.append(sums.astype(np.int64))
    left = candidates.passes & ~np.isin(cycle.fleet.names, list(infeasible))
    state = RoundState(candidates.constraints, candidates.groups, tuple(counts), left)
    return RoundEvaluation(profile_of(cycle).strategy, state)


def allowed(evaluation: RoundEvaluation, cycle: Cycle) -> list[str]:
    """Name the nodes that one more pod may go to."""
    return [
        name
        for name, open_ in zip(cycle.fleet.names, evaluation.contends, strict=True)
        if open_
    ]


def scores(evaluation: RoundEvaluation, cycle: Cycle) -> dict[str, float]:
    """Return the spread score of the nodes that one more pod may go to."""
    by_name = dict(zip(cycle.fleet.names, evaluation.spread[0].tolist(), strict=True))
    return {name: by_name[name] for name in allowed(evaluation, cycle)}


def _policy(
    semantics: Semantics,
    number: int,
    spreads: Sequence[Document],
    preferred: Sequence[Document],
    required: Sequence[Document] = (),
) -> PlacementPolicy:
    plain: Document = {
        "placementType": "PickN",
        "numberOfClusters": number,
        "topologySpreadConstraints": list(spreads),
    }
    affinity: Document = {}
    if preferred:
        affinity["preferredDuringSchedulingIgnoredDuringExecution"] = list(preferred)
    if required:
        terms = {"clusterSelectorTerms": list(required)}
        affinity["requiredDuringSchedulingIgnoredDuringExecution"] = terms
    if affinity:
        plain["affinity"] = {"clusterAffinity": affinity}
    return parse_policy(plain, semantics=semantics)


def _bindings(placed: Sequence[str | PlacedBinding]) -> tuple[PlacedBinding, ...]:
    return tuple(binding(one) if isinstance(one, str) else one for one in placed)
