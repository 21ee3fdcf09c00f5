"""What `ocm` and `kubernetes` decisions keep, explain and advise, where a rule of `fleet` would not do."""

from dataclasses import replace
from typing import Any

import pytest

from clusters.fleet import Fleet, ResourceUsage
from fleetui.apimachinery.model import Semantics
from placements.engine.advice.changes import ChangeKind
from placements.engine.advice.diagnosis import (
    favoured_without_key,
    feasibility_bound,
    pinned_groups,
)
from placements.engine.advice.search import why_not
from placements.engine.scheduling.cycle import Cycle
from placements.engine.scheduling.outcome import Outcome, Outcomes
from placements.engine.scheduling.reason import ReasonCode
from placements.engine.scheduling.record import pack, unpack
from placements.engine.scheduling.replay import Replay
from placements.engine.scheduling.scheduler import schedule
from placements.engine.scheduling.warnings import decision_warnings
from placements.explain.vocabulary import headline, reason_sentence
from placements.manifests.ocm_options import parse_ocm_options
from placements.manifests.policy import parse_policy
from placements.services.simulate.cases import failure_fault
from tests.builders import (
    Document,
    binding,
    cluster,
    fleet,
    labelled,
    prefer,
    spread,
    taint,
)


def _ocm(members: Fleet, plain: Document, *placed: Any, **options: Any) -> Cycle:
    policy = parse_policy({"placementType": "PickN", **plain}, semantics=Semantics.OCM)
    bindings = tuple(binding(one) if isinstance(one, str) else one for one in placed)
    return Cycle(
        members, policy, bindings, Semantics.OCM, parse_ocm_options(options).to_plain()
    )


def _kubernetes(members: Fleet, plain: Document) -> Cycle:
    policy = parse_policy(
        {"placementType": "PickN", **plain}, semantics=Semantics.KUBERNETES
    )
    return Cycle(members, policy, (), Semantics.KUBERNETES)


def _wants(number: int, *spreads: Document) -> Document:
    return {"numberOfClusters": number, "topologySpreadConstraints": list(spreads)}


def _reason_texts(cycle: Cycle, name: str) -> list[str]:
    return [
        reason_sentence(reason) for reason in Outcomes(schedule(cycle)).of(name).reasons
    ]


ZONES = fleet(cluster("a", zone="1"), cluster("b", zone="1"), cluster("c", zone="2"))


# The record


def test_a_decision_on_bindings_with_scores_of_several_levels_is_read_back() -> None:
    cycle = _ocm(ZONES, _wants(2, spread("zone"), spread("zone", hard=False)))
    after = schedule(cycle).bindings_after
    second = schedule(replace(cycle, bindings=after))

    assert any(
        isinstance(placed_binding.topology_spread_score, tuple)
        for placed_binding in after
    )
    assert unpack(pack(second), ZONES).id == second.id


def test_scaling_down_to_none_orders_scores_of_any_shape() -> None:
    placed = [
        binding(name)._replace(topology_spread_score=score, affinity_score=0)
        for name, score in (("a", (0, -1)), ("b", 1), ("c", ()))
    ]

    decision = schedule(_ocm(ZONES, {"numberOfClusters": 0}, *placed))

    assert decision.unscheduled == ("a", "b", "c")


AFFINITY_ROW = {"topologyWeights": [{"weight": 10, "operator": "In", "values": ["z"]}]}


@pytest.mark.parametrize(
    ("wants", "options"),
    [
        ({}, {"affinityTerms": [{"topologyKey": "zone", **AFFINITY_ROW}]}),
        (
            {},
            {
                "affinityTerms": [
                    {"topologyKey": "zone", "topologyKeyType": "Claim", **AFFINITY_ROW}
                ]
            },
        ),
        (
            {
                "topologySpreadConstraints": [
                    {"topologyKey": "zone", "topologyKeyType": "Claim"}
                ]
            },
            {},
        ),
        ({}, {"cpuWeight": 1}),
    ],
    ids=["affinity", "affinity to a claim", "spread by a claim", "allocatable"],
)
def test_the_id_covers_all_that_the_options_read(
    wants: Document, options: Document
) -> None:
    small, large = (ResourceUsage({}, {"cpu": cores}, {}) for cores in ("1", "8"))
    ids = set()
    for rich, poor in ("ab", "ba"):
        members = fleet(
            cluster(rich, zone="z", properties={"zone": "z"}, usage=large),
            cluster(poor, usage=small),
        )
        ids.add(schedule(_ocm(members, {"numberOfClusters": 1, **wants}, **options)).id)

    assert len(ids) == 2


def test_more_levels_than_fit_in_64_bits_weigh_as_ten_do() -> None:
    same = {f"k{level}": "same" for level in range(1, 12)}
    members = fleet(
        *(
            cluster(name, {**same, "k0": value})
            for name, value in zip("abc", "xxy", strict=True)
        )
    )

    for levels in (10, 11, 12):
        spreads = [spread(f"k{level}", hard=False) for level in range(levels)]
        decision = schedule(_ocm(members, _wants(2, *spreads), mode="weighted"))
        assert decision.picked_names == ("a", "c"), levels


def test_sums_of_fractions_tie_whatever_their_order() -> None:
    rows = [{"weight": -100, "operator": "Exists"}]
    members = fleet(cluster("a", {"zone": "z"}), cluster("b", {}))

    decision = schedule(
        _ocm(
            members,
            {"numberOfClusters": 1},
            "a",
            mode="weighted",
            steadyWeight=33.3,
            balance={"b": 1},
            affinityTerms=[{"topologyKey": "zone", "topologyWeights": rows}],
        )
    )

    values = [
        candidate.combined["preference"] for candidate in Replay(decision).candidates(1)
    ]
    assert values == [33.3, 0]  # −100 + (33.3 + 100) has a last bit more


# What it explains


def test_a_cluster_that_a_filter_keeps_from_being_counted_is_not_reported_without_the_key() -> (
    None
):
    members = fleet(
        cluster("a", region="e", env="prod"),
        cluster("b", region="w"),
        cluster("d", env="prod"),
    )
    required = {
        "requiredDuringSchedulingIgnoredDuringExecution": {
            "clusterSelectorTerms": [labelled(env="prod")]
        }
    }
    cycle = _kubernetes(
        members,
        {**_wants(2, spread("region")), "affinity": {"clusterAffinity": required}},
    )

    assert _reason_texts(cycle, "b") == [
        "Does not match required affinity: no label env, required prod"
    ]
    assert _reason_texts(cycle, "d") == [
        "No label region, which the topology spread requires"
    ]


def test_only_the_key_that_is_missing_is_named() -> None:
    members = fleet(cluster("a", region="e", zone="1"), cluster("b", region="w"))

    cycle = _kubernetes(members, _wants(2, spread("region"), spread("zone")))

    assert _reason_texts(cycle, "b") == [
        "No label zone, which the topology spread requires"
    ]
    assert favoured_without_key(schedule(cycle)) == {}
    assert pinned_groups(schedule(cycle)) == ()


def test_a_claim_that_is_missing_is_named() -> None:
    exists = {
        "claimSelector": {
            "matchExpressions": [{"key": "platform", "operator": "Exists"}]
        }
    }
    required = {
        "requiredDuringSchedulingIgnoredDuringExecution": {
            "clusterSelectorTerms": [exists]
        }
    }

    texts = _reason_texts(
        _ocm(
            fleet("a"),
            {"numberOfClusters": 1, "affinity": {"clusterAffinity": required}},
        ),
        "a",
    )

    assert texts == [
        "Does not match required affinity: no claim platform, required any value"
    ]


def test_a_placed_cluster_that_is_not_chosen_again_is_explained_by_what_decided() -> (
    None
):
    members = fleet("a", cluster("b", taints=[taint("k")]))

    outcome = Outcomes(schedule(_ocm(members, {"numberOfClusters": 1}, "b"))).of("b")

    assert outcome.outcome is Outcome.UNSCHEDULED
    assert [reason.code for reason in outcome.reasons] == [
        ReasonCode.CHOSEN_AGAIN,
        ReasonCode.UNTOLERATED_TAINT,
    ]


def test_the_number_that_ranks_is_shown_where_it_is_made_of_several() -> None:
    decision = schedule(_ocm(fleet("a", "b"), {"numberOfClusters": 1}, "b"))

    shown = [
        (candidate.cluster, candidate.combined)
        for candidate in Replay(decision).candidates(1)
    ]
    facts = Outcomes(decision).of("a").reasons[0].facts

    assert shown == [("b", {"preference": 200}), ("a", {"preference": 100})]
    assert (facts["decidedBy"], facts["score"], facts["behindScore"]) == (
        "preference",
        100,
        200,
    )


def test_named_clusters_are_selected_again_as_well() -> None:
    policy = parse_policy(
        {"placementType": "PickFixed", "clusterNames": ["a"]}, semantics=Semantics.OCM
    )
    options = parse_ocm_options(None).to_plain()

    decision = schedule(
        Cycle(fleet("a"), policy, (binding("a"),), Semantics.OCM, options)
    )

    assert (decision.picked_names, decision.kept) == (("a",), ())


# What it advises


def test_bounds_hold_where_one_constraint_decides_who_counts_for_another() -> None:
    nested = fleet(
        *(cluster(f"a{n}", region="A", zone="a") for n in (1, 2, 3)),
        cluster("b1", region="B", zone="b"),
    )
    apart = fleet(
        *(cluster(f"a{n}", x="1", y="1") for n in (1, 2, 3)),
        cluster("b1", x="2", taints=[taint("k")]),
    )
    cycles = [
        _ocm(nested, _wants(5, spread("region", hard=False), spread("zone"))),
        _kubernetes(apart, _wants(5, spread("x"), spread("y"))),
    ]

    assert list(map(feasibility_bound, cycles)) == [None, None]


def test_the_number_that_helps_is_found_where_too_large_a_number_fails() -> None:
    tainted = [cluster(name, taints=[taint("k")]) for name in "cde"]
    decision = schedule(
        _ocm(fleet("a", "b", *tainted), {"numberOfClusters": 1}, unsatisfiable="error")
    )

    numbers = [
        suggestion.change.facts["number"]
        for suggestion in why_not(decision, "b").helps
        if suggestion.change.kind == "number"
    ]

    assert numbers == [2]


def test_a_change_that_makes_the_cycle_fail_is_no_advice_though_all_stays() -> None:
    members = fleet("a", cluster("b", taints=[taint("k")]))
    decision = schedule(
        _ocm(members, {"numberOfClusters": 1}, "b", unsatisfiable="error")
    )

    advice = why_not(decision, "b")

    assert decision.unscheduled == ("b",)
    assert [
        suggestion.change.facts["number"]
        for suggestion in advice.fails
        if suggestion.change.kind == "number"
    ] == [2]


def test_a_limit_is_not_advised_where_the_parser_refuses_it() -> None:
    decision = schedule(
        _ocm(
            ZONES,
            _wants(1, spread("zone", hard=False)),
            domainWeights={"zone": {"1": 2}},
        )
    )

    advice = why_not(decision, "b")

    assert ChangeKind.WHEN_UNSATISFIABLE not in {
        suggestion.change.kind for suggestion in (*advice.helps, *advice.fails)
    }


def test_a_number_that_cannot_be_met_is_not_blamed_on_a_property_that_is_no_quantity() -> (
    None
):
    """Under `ocm` such a property counts as absent (`rules/scheduler.md#unusual-values`)."""
    members = fleet(cluster("a", properties={"cost": "lots"}))
    preferred = [
        prefer(1, {"propertySorter": {"name": "cost", "sortOrder": "Descending"}})
    ]
    affinity = {
        "clusterAffinity": {
            "preferredDuringSchedulingIgnoredDuringExecution": preferred
        }
    }
    cycle = _ocm(
        members, {"numberOfClusters": 2, "affinity": affinity}, unsatisfiable="error"
    )

    decision = schedule(cycle)

    assert decision.is_unsatisfiable
    assert failure_fault(decision, "policy").code == "unsatisfiable"
    assert (
        headline(decision)
        == "No cluster selected: fewer than 2 clusters can be, and all are required"
    )
    assert [warning.message for warning in decision_warnings(decision)] == [
        "no quantity on 1 cluster (a): it counts as absent"
    ]
