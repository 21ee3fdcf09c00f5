"""The score build-up under every set of rules: what a cluster's points come from, and that they add up."""

from dataclasses import replace
from typing import Any

import pytest

from clusters.fleet import ResourceUsage
from fleetui.apimachinery.model import Semantics
from placements.engine.scheduling.cycle import Cycle
from placements.engine.scheduling.decision import Decision
from placements.engine.scheduling.profile import profile_of
from placements.engine.scheduling.record import pack, unpack
from placements.engine.scheduling.scheduler import schedule
from placements.engine.scheduling.spread.base import prefers_missing_key
from placements.explain.charts.scores import build_up_chart
from placements.explain.decision_tables import composition
from placements.manifests.ocm_options import parse_ocm_options
from placements.manifests.policy import parse_policy
from tests.builders import binding, cluster, fleet, labelled, pick_n, prefer
from tests.explain.charts.checking import check_chart

MEMBERS = fleet(
    cluster("a", zone="1", usage=ResourceUsage(allocatable={"cpu": "4"})),
    cluster("b", zone="1", usage=ResourceUsage(allocatable={"cpu": "8"})),
    cluster("c", zone="2", usage=ResourceUsage(allocatable={"cpu": "6"})),
)
ROWS = [
    {
        "topologyKey": "zone",
        "topologyWeights": [
            {"weight": 30, "operator": "In", "values": ["1"]},
            {"weight": -10, "operator": "Exists"},
        ],
    }
]
TERMS = pick_n(1, prefer=[prefer(20, labelled(zone="1"))]).to_plain()


def _weighed(policy: dict[str, Any], **options: Any) -> Decision:
    parsed = parse_policy(policy, semantics=Semantics.OCM)
    plain = parse_ocm_options(options).to_plain()
    return schedule(Cycle(MEMBERS, parsed, (binding("c"),), Semantics.OCM, plain))


def test_rows_are_shown_raw_and_stretched_with_all_else_that_ranks() -> None:
    found = _weighed(
        {"placementType": "PickN", "numberOfClusters": 1},
        affinityTerms=ROWS,
        balance={"a": 4, "b": 2},
        cpuWeight=2,
    )
    chart = build_up_chart(found, "a")

    assert chart is not None
    check_chart(chart)
    assert chart.title == "Preference of a"
    assert chart.rows == (
        ("affinity rows: 20; candidates −10 to 20", 100.0),
        ("Steady: stays where it is placed (weight 100)", 0.0),
        ("Balance: few other placements (weight 1)", -100.0),
        ("allocatable cpu (weight 2)", 0),
        ("preference", 0.0),
    )


def test_terms_stand_in_the_place_of_rows() -> None:
    made = composition(_weighed(TERMS), "c")

    assert list(made.rows) == [
        ("prefer zone=1 (+20)", 0.0),
        ("Steady: stays where it is placed (weight 100)", 100.0),
        ("Balance: few other placements (weight 1)", 100.0),
    ]
    assert made.total == 200.0


@pytest.mark.nightly
@pytest.mark.parametrize("semantics", list(Semantics))
@pytest.mark.parametrize("name", ["a", "b", "c"])
def test_the_parts_add_up_to_what_ranks(semantics: Semantics, name: str) -> None:
    found = schedule(
        replace(_weighed(TERMS).cycle, semantics=semantics, options={}, bindings=())
    )
    made = composition(unpack(pack(found), MEMBERS), name)

    assert found.candidates is not None
    assert sum(points for _, points in made.rows) == pytest.approx(made.total)
    assert made.total == found.candidates.preference[MEMBERS.positions[name]]


def test_a_score_without_weight_is_left_out() -> None:
    made = composition(_weighed(TERMS, steadyWeight=0, balanceWeight=0), "a")

    assert [words for words, _ in made.rows] == ["prefer zone=1 (+20)"]


@pytest.mark.parametrize(
    ("semantics", "expected"),
    [("fleet", False), ("kubefleet", True), ("ocm", False), ("kubernetes", False)],
)
def test_who_prefers_a_cluster_in_no_group_to_those_of_the_only_one(
    semantics: str, expected: bool
) -> None:
    policy = parse_policy(
        {
            "placementType": "PickN",
            "numberOfClusters": 1,
            "topologySpreadConstraints": [{"topologyKey": "zone"}],
        }
    )
    strategy = profile_of(
        Cycle(MEMBERS, policy, semantics=Semantics(semantics))
    ).strategy

    assert (
        prefers_missing_key(strategy, policy.topology_spread_constraints[0]) is expected
    )
