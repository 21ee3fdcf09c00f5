"""The namespace filter: a namespaced placement needs its namespace (`rules/live-hub.md#objects-of-a-hub`)."""

from clusters.fleet import Cluster, Fleet, SeenNamespaces
from fleetui.apimachinery.model import Semantics
from placements.engine.scheduling.cycle import Cycle
from placements.engine.scheduling.decision import fleet_digest
from placements.engine.scheduling.filters.namespace_affinity import NamespaceFilter
from placements.engine.scheduling.outcome import Outcomes
from placements.engine.scheduling.reason import ReasonCode
from placements.engine.scheduling.record import (
    difference,
    pack,
    pack_fleet,
    unpack,
    unpack_fleet,
)
from placements.engine.scheduling.scheduler import schedule
from placements.explain.hub_status import hub_status
from placements.manifests.policy import PlacementPolicy
from tests.builders import cluster, fleet, labelled, pick_all, pick_n, taint


def seeing(name: str, *names: str, tainted: bool = False, **labels: str) -> Cluster:
    one = cluster(name, labels, taints=[taint("gpu")] if tainted else [])
    return one.with_changes(namespaces=SeenNamespaces(frozenset(names)))


FLEET = fleet(
    cluster("blind").with_changes(namespaces=SeenNamespaces()),
    seeing("empty"),
    seeing("full", "shop", "web"),
    "silent",
    seeing("tainted", "web", tainted=True),
)


def cycle(
    policy: PlacementPolicy, namespace: str = "shop", one: Fleet = FLEET
) -> Cycle:
    return Cycle(one, policy, semantics=Semantics.KUBEFLEET, namespace=namespace)


def test_passes_with_the_namespace_or_without_collection() -> None:
    assert NamespaceFilter().passes(cycle(pick_all())).tolist() == [
        False,
        False,
        True,
        True,
        False,
    ]


def test_the_status_has_the_words_of_a_hub_and_the_taint_comes_after() -> None:
    status = hub_status(schedule(cycle(pick_n(3))))

    assert status
    assert {
        decision["cluster"]: decision["reason"]
        for decision in status.decisions
        if not decision["selected"]
    } == {
        "blind": "ClusterUnschedulable, cluster has no namespace information available",
        "empty": "ClusterUnschedulable, target namespace does not exist on cluster",
        "tainted": "ClusterUnschedulable, target namespace does not exist on cluster",
    }


def test_the_filters_before_it_decide_first() -> None:
    one = fleet(seeing("a", env="test"), seeing("b", tainted=True, env="prod"))
    outcome = Outcomes(
        schedule(cycle(pick_n(1, required=[labelled(env="prod")]), one=one))
    )

    codes = [[reason.code for reason in outcome.of(name).reasons] for name in "ab"]
    assert codes == [
        [ReasonCode.REQUIRED_AFFINITY, ReasonCode.NAMESPACE_MISSING],
        [ReasonCode.NAMESPACE_MISSING, ReasonCode.UNTOLERATED_TAINT],
    ]


def test_it_does_not_apply_to_cluster_scoped_placements() -> None:
    decision = schedule(cycle(pick_all(), namespace=""))

    assert decision.picked_names == ("blind", "empty", "full", "silent")
    plain = Fleet(one.with_changes(namespaces=None) for one in FLEET)
    assert decision.id == schedule(cycle(pick_all(), namespace="", one=plain)).id


def test_the_namespace_is_part_of_the_identity_and_of_the_record() -> None:
    decision = schedule(cycle(pick_all()))

    assert (
        len(
            {
                decision.id,
                *(schedule(cycle(pick_all(), each)).id for each in ("", "web")),
            }
        )
        == 3
    )
    assert fleet_digest(cycle(pick_all())) != fleet_digest(cycle(pick_all(), "web"))
    stored = unpack(pack(decision), unpack_fleet(pack_fleet(FLEET)))
    assert difference(stored, decision) == ""
    assert [one.namespaces for one in stored.cycle.fleet] == [
        one.namespaces for one in FLEET
    ]
