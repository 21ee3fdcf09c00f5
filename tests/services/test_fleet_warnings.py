"""Admission warnings: accepted, but perhaps not what was meant."""

from fleetui.apimachinery.errors import ManifestWarning
from placements.engine.checks.examination import fleet_warnings
from placements.engine.scheduling.cycle import Cycle
from placements.engine.scheduling.warnings import decision_warnings
from placements.manifests.policy import PlacementPolicy
from tests.builders import (
    cluster,
    decide,
    expression,
    fleet,
    grouped,
    labelled,
    measured,
    pick_n,
    prefer,
    sorted_by,
    spread,
)

ZONES = fleet(*grouped("zone", a="a1 a2", b="b1"))


def _codes(policy: PlacementPolicy) -> list[tuple[str, str]]:
    return [
        (warning.code, warning.path) for warning in fleet_warnings(Cycle(ZONES, policy))
    ]


def test_a_policy_that_fits_the_fleet_has_none() -> None:
    fitting = pick_n(
        2,
        required=[labelled(zone="a")],
        prefer=[prefer(5, labelled(zone="b"))],
        spread=[spread("zone")],
    )

    assert fleet_warnings(Cycle(ZONES, fitting)) == ()


def test_a_topology_key_that_no_cluster_carries() -> None:
    assert _codes(pick_n(1, spread=[spread("rack")])) == [
        ("unknown-key", "policy.topologySpreadConstraints[0].topologyKey")
    ]


def test_clusters_that_lack_the_key_are_counted_and_named() -> None:
    mixed = fleet(*grouped("zone", a="a1", b="b1"), "c", "d")

    (warning,) = fleet_warnings(Cycle(mixed, pick_n(1, spread=[spread("zone")])))

    assert warning == ManifestWarning(
        "clusters-lack-key",
        "policy.topologySpreadConstraints[0].topologyKey",
        "2 candidates without zone (c, d): not limited by the constraint, and often selected first.",
    )


def test_a_preferred_term_that_matches_nothing() -> None:
    assert _codes(pick_n(1, prefer=[prefer(5, labelled(zone="z"))])) == [
        (
            "matches-nothing",
            "policy.affinity.clusterAffinity.preferredDuringSchedulingIgnoredDuringExecution[0]"
            ".preference.labelSelector",
        )
    ]


def test_labels_and_properties_that_no_cluster_has() -> None:
    unknown = pick_n(
        1,
        required=[expression("disk", "DoesNotExist"), measured("cost", "Lt", "1")],
        prefer=[prefer(5, sorted_by("speed"))],
    )

    assert [code for code, _ in _codes(unknown)] == [
        "unknown-key",
        "unknown-property",
        "unknown-property",
    ]


def test_an_empty_fleet_says_only_that() -> None:
    assert [
        warning.code
        for warning in fleet_warnings(
            Cycle(fleet(), pick_n(1, spread=[spread("zone")]))
        )
    ] == ["empty-fleet"]


def test_malformed_values_are_reported_with_their_effect() -> None:
    versions = fleet(
        cluster("a", properties={"version": "v1"}),
        cluster("b", properties={"version": "v2"}),
    )
    newest = pick_n(1, prefer=[prefer(5, sorted_by("version"))])

    warned, failed = (
        decide(versions, newest),
        decide(versions, newest, semantics="kubefleet"),
    )

    assert decision_warnings(warned) == (
        ManifestWarning(
            "malformed-property",
            "properties.version",
            "no quantity on 2 clusters (a, b): it counts as absent",
        ),
    )
    assert decision_warnings(failed)[0].message.endswith("the cycle fails")
