"""The use cases 1 to 6 of the OCM spread proposal and its two API examples, each with the answer it gives.

The rules are those of `rules/other-schedulers.md#ocm`, which makes the proposal's draft exact. Where a vector
is said to hold in both modes, it is tried in both. Two answers of the draft are open to a switch: it wants
an error where the merged text publishes fewer (UC3a), and it leaves use case 6 out of scope, which these
rules take in.
"""

from typing import Any

import pytest

from clusters.fleet import Fleet
from placements.engine.scheduling.replay import Replay
from placements.engine.scheduling.scheduler import schedule
from placements.explain.vocabulary import policy_sentence
from tests.builders import Document, cluster, fleet, spread
from tests.engine.scheduling.other_cycles import (
    WEIGHTED,
    contenders,
    numbered,
    ocm,
    ocm_cycle,
    pending,
    per_group,
    picks,
    ranking,
    reason_texts,
    zones,
)
from tests.ocm_documents import ocm_document, regional

BOTH_MODES = pytest.mark.parametrize(
    "options", [{}, {"mode": "weighted", "u": 2}], ids=["strict", "u=2"]
)


def even(key: str, **fields: Any) -> Document:
    """Write an Even constraint of the proposal."""
    return {"type": "Even", "topologyKey": key, "topologyKeyType": "Label", **fields}


def affinity(key: str, *rows: tuple[int, str, list[str]]) -> Document:
    """Write an Affinity constraint of the proposal with rows of weight, operator and values."""
    weights = [
        {"weight": weight, "operator": operator, "values": values}
        for weight, operator, values in rows
    ]
    return {
        "type": "Affinity",
        "topologyKey": key,
        "topologyKeyType": "Label",
        "topologyWeights": weights,
    }


def proposal(number: int, *constraints: Document) -> Document:
    """Write a Placement in the proposal's own form."""
    return ocm_document(
        version="v1alpha1", numberOfClusters=number, spreadConstraints=list(constraints)
    )


# Use case 1: failure domains that users define, which not every cluster has


SELF_HOSTED = fleet(
    cluster("p1", provider="aws"), cluster("p2", provider="alibaba"), "s1", "s2"
)
THREE_PROVIDERS = proposal(3, even("provider", maxSkew=1))


@BOTH_MODES
def test_uc1a_clusters_without_the_key_make_a_domain_of_their_own(
    options: Document,
) -> None:
    decision = schedule(ocm_cycle(THREE_PROVIDERS, SELF_HOSTED, **options))

    assert (decision.picked_names, pending(decision)) == (("p1", "p2", "s1"), 0)


def test_uc1a_one_more_of_them_is_dropped_with_the_name_of_that_domain() -> None:
    decision = schedule(
        ocm_cycle(proposal(4, even("provider", maxSkew=1)), SELF_HOSTED)
    )

    assert decision.picked_names == ("p1", "p2", "s1", "s2")
    assert Replay(decision).step(4).spreads[0].before == {
        "(unset)": 1,
        "alibaba": 1,
        "aws": 1,
    }

    decision = schedule(
        ocm_cycle(
            proposal(5, even("provider", maxSkew=1)), fleet(*SELF_HOSTED.clusters, "s3")
        )
    )

    assert reason_texts(decision, "s3") == [
        "Step 5: selecting it would make provider=(unset) 3 vs. minimum 1 (gap 2 > maxSkew 1)"
    ]


@BOTH_MODES
def test_uc1b_clusters_without_the_key_may_be_excluded(options: Document) -> None:
    decision = schedule(
        ocm_cycle(THREE_PROVIDERS, SELF_HOSTED, unsetPolicy="exclude", **options)
    )

    assert (decision.picked_names, pending(decision)) == (("p1", "p2"), 1)
    assert reason_texts(decision, "s1") == [
        "No label provider, which the topology spread requires"
    ]


@BOTH_MODES
def test_uc1_free_clusters_without_the_key_are_outside_the_spread(
    options: Document,
) -> None:
    """Not in the table: `free`, with gap 0 whatever else was picked."""
    decision = schedule(
        ocm_cycle(
            proposal(4, even("provider", maxSkew=1)),
            SELF_HOSTED,
            unsetPolicy="free",
            **options,
        )
    )

    assert decision.picked_names == ("p1", "p2", "s1", "s2")
    assert Replay(decision).step(4).spreads[0].before == {"alibaba": 1, "aws": 1}
    assert Replay(decision).candidate(4, "s2").constraints[0].group is None


@BOTH_MODES
def test_uc1c_a_claim_serves_as_well_as_a_label(options: Document) -> None:
    members = fleet(
        cluster("p1", properties={"provider": "aws"}),
        cluster("p2", properties={"provider": "alibaba"}),
        "s1",
        cluster("s2", provider="a label that is not requested"),
    )
    document = proposal(3, even("provider", maxSkew=1) | {"topologyKeyType": "Claim"})

    decision = schedule(ocm_cycle(document, members, **options))

    assert decision.picked_names == ("p1", "p2", "s1")
    assert (
        decision.cycle.policy.topology_spread_constraints[0].topology_key_type
        == "Claim"
    )
    assert Replay(decision).candidate(1, "p1").constraints[0].group == "aws"


def test_uc1c_the_explanation_says_that_the_domain_is_that_of_a_claim() -> None:
    members = fleet(
        *(cluster(name, properties={"provider": "aws"}) for name in ("p1", "p2", "p3")),
        "s1",
    )
    document = proposal(4, even("provider", maxSkew=1) | {"topologyKeyType": "Claim"})

    decision = schedule(ocm_cycle(document, members))

    assert reason_texts(decision, "p3") == [
        "Step 4: selecting it would make claim provider=aws 3 vs. minimum 1 (gap 2 > maxSkew 1)"
    ]
    assert "at most 1 apart across claim provider (hard)" in policy_sentence(
        decision.cycle.policy
    )


# Use case 2: even spread


@BOTH_MODES
@pytest.mark.parametrize("limit", [{"maxSkew": 1}, {}], ids=["hard", "soft"])
def test_uc2_four_clusters_over_two_zones_are_two_in_each(
    limit: Document, options: Document
) -> None:
    members = zones({"us-east-1a": 3, "us-east-1b": 3})

    decision = schedule(
        ocm_cycle(proposal(4, even("zone", **limit)), members, **options)
    )

    assert decision.picked_names == (
        "us-east-1a-1",
        "us-east-1b-1",
        "us-east-1a-2",
        "us-east-1b-2",
    )
    assert [one.skew_after for one in Replay(decision).step(4).spreads] == [0]


# Use case 3: max skew


THREE_AND_ONE = zones({"us-east-1a": 3, "us-east-1b": 1})


@BOTH_MODES
def test_uc3a_a_limit_of_one_leaves_one_pending_and_says_why(options: Document) -> None:
    decision = schedule(
        ocm_cycle(proposal(4, even("zone", maxSkew=1)), THREE_AND_ONE, **options)
    )

    assert decision.picked_names == ("us-east-1a-1", "us-east-1b-1", "us-east-1a-2")
    assert (pending(decision), decision.is_fulfilled) == (1, False)
    assert reason_texts(decision, "us-east-1a-3") == [
        "Step 4: selecting it would make zone=us-east-1a 3 vs. minimum 1 (gap 2 > maxSkew 1)"
    ]


@BOTH_MODES
def test_uc3a_in_the_draft_it_is_an_error_and_nothing_is_published(
    options: Document,
) -> None:
    """The draft says that the scheduler should report an error; here that is the switch `unsatisfiable`."""
    cycle = ocm_cycle(
        proposal(4, even("zone", maxSkew=1)),
        THREE_AND_ONE,
        unsatisfiable="error",
        **options,
    )

    decision = schedule(cycle)

    assert (decision.is_failed, decision.picked, decision.bindings_after) == (
        True,
        (),
        (),
    )


@BOTH_MODES
@pytest.mark.parametrize("limit", [{"maxSkew": 2}, {}], ids=["UC3b", "UC3c"])
def test_uc3_a_limit_of_two_or_none_takes_all_four(
    limit: Document, options: Document
) -> None:
    decision = schedule(
        ocm_cycle(proposal(4, even("zone", **limit)), THREE_AND_ONE, **options)
    )

    assert decision.picked_names == (
        "us-east-1a-1",
        "us-east-1b-1",
        "us-east-1a-2",
        "us-east-1a-3",
    )
    assert (per_group(decision, "zone"), pending(decision)) == (
        {"us-east-1a": 3, "us-east-1b": 1},
        0,
    )
    assert Replay(decision).step(4).spreads[0].skew_after == 2


# Use case 4: affinity and anti-affinity


def _vendors(*, aws: int) -> Fleet:
    hosted = numbered(
        {"us-east-1a": ({"provider": "aws"}, aws), "dc": ({"provider": "onprem"}, 2)}
    )
    alibaba = (
        cluster(name, provider="alibaba")
        for name in ("cn-hangzhou-e-1", "cn-shenzhen-a-1")
    )
    return fleet(*hosted, *alibaba)


ALL_ALIBABA = ["cn-hangzhou-e-1", "cn-shenzhen-a-1"]
ALL_AWS = ["us-east-1a-1", "us-east-1a-2", "us-east-1a-3"]


@BOTH_MODES
@pytest.mark.parametrize(
    ("aws", "number", "expected"),
    [
        pytest.param(3, 3, ALL_AWS, id="UC4a"),
        pytest.param(3, 4, [*ALL_AWS, "cn-hangzhou-e-1"], id="UC4b"),
        pytest.param(3, 5, [*ALL_AWS, *ALL_ALIBABA], id="UC4c"),
        pytest.param(1, 4, ["us-east-1a-1", *ALL_ALIBABA, "dc-1"], id="UC4d"),
    ],
)
def test_uc4_aws_first_then_others_and_the_own_premises_last(
    aws: int, number: int, expected: list[str], options: Document
) -> None:
    rows = affinity("provider", (20, "In", ["aws"]), (-20, "In", ["onprem"]))

    decision = schedule(ocm_cycle(proposal(number, rows), _vendors(aws=aws), **options))

    assert list(decision.picked_names) == expected
    scores = {
        name: candidate.affinity_score
        for name, candidate in contenders(decision).items()
    }
    assert (scores["us-east-1a-1"], scores["cn-hangzhou-e-1"], scores["dc-1"]) == (
        100,
        0,
        -100,
    )


# Use case 5: joint spread


TWO_REGIONS = fleet(
    *numbered(
        {
            "us-east-1a": ({"region": "us-east", "zone": "us-east-1a"}, 4),
            "us-east-1b": ({"region": "us-east", "zone": "us-east-1b"}, 4),
            "us-west-1a": ({"region": "us-west", "zone": "us-west-1a"}, 4),
        }
    )
)
FIRST_1A_THEN_1B = affinity(
    "zone", (20, "In", ["us-east-1a"]), (10, "In", ["us-east-1b"])
)
TWO_OF_EACH = ["us-east-1a-1", "us-west-1a-1", "us-east-1a-2", "us-west-1a-2"]


@pytest.mark.parametrize(
    "options",
    [{}, {"mode": "weighted"}, {"mode": "weighted", "u": 1}],
    ids=["UC5a-strict", "UC5a-u=2", "UC5b-u=1-ties-and-higher-even-wins"],
)
def test_uc5_two_of_the_preferred_zone_and_two_of_the_other_region(
    options: Document,
) -> None:
    decision = schedule(
        ocm_cycle(proposal(4, even("region"), FIRST_1A_THEN_1B), TWO_REGIONS, **options)
    )

    assert list(decision.picked_names) == TWO_OF_EACH
    assert per_group(decision, "region") == {"us-east": 2, "us-west": 2}


def test_uc5b_half_a_u_leaves_the_other_region_empty_against_the_draft() -> None:
    cycle = ocm_cycle(
        proposal(4, even("region"), FIRST_1A_THEN_1B),
        TWO_REGIONS,
        mode="weighted",
        u=0.5,
    )

    decision = schedule(cycle)

    assert list(decision.picked_names) == [
        f"us-east-1a-{number}" for number in range(1, 5)
    ]
    assert reason_texts(decision, "us-west-1a-1") == [
        "Rank 2 in step 4; lost to us-east-1a-4 on u \N{MULTIPLICATION SIGN} spread + preference (50 vs. 150)"
    ]


def test_uc5b_at_u_1_the_finals_of_both_regions_tie() -> None:
    decision = schedule(
        ocm_cycle(
            proposal(4, even("region"), FIRST_1A_THEN_1B), TWO_REGIONS, **WEIGHTED, u=1
        )
    )

    finals, evens = (ranking(decision, 2, "final"), contenders(decision, 2))
    assert finals["us-east-1a-2"] == finals["us-west-1a-1"]
    assert (
        evens["us-west-1a-1"].rank,
        evens["us-west-1a-1"].topology_spread_score,
    ) == (1, 100)
    assert evens["us-east-1a-2"].decided_by == "topology"


@pytest.mark.parametrize(
    "options", [{}, *({"mode": "weighted", "u": u} for u in (0, 0.5, 1, 2))], ids=str
)
def test_uc5c_a_hard_limit_on_regions_needs_no_u(options: Document) -> None:
    constraints = even("region", maxSkew=1), FIRST_1A_THEN_1B

    assert (
        picks(ocm_cycle(proposal(4, *constraints), TWO_REGIONS, **options))
        == TWO_OF_EACH
    )


@BOTH_MODES
def test_uc5d_regions_first_then_the_zones_in_each(options: Document) -> None:
    constraints = even("zone", order=2), even("region", order=1)

    decision = schedule(ocm_cycle(proposal(4, *constraints), TWO_REGIONS, **options))

    assert per_group(decision, "zone") == {
        "us-east-1a": 1,
        "us-east-1b": 1,
        "us-west-1a": 2,
    }


@BOTH_MODES
def test_uc5e_zones_alone_fill_one_region_with_three(options: Document) -> None:
    decision = schedule(ocm_cycle(proposal(4, even("zone")), TWO_REGIONS, **options))

    assert per_group(decision, "zone") == {
        "us-east-1a": 2,
        "us-east-1b": 1,
        "us-west-1a": 1,
    }
    assert per_group(decision, "region") == {"us-east": 3, "us-west": 1}


# Use case 6: spread with a ratio


TWO_TO_ONE = {"domainWeights": {"region": {"east": 2}}}


def _initials(members: Fleet, number: int, options: Document) -> str:
    return "".join(
        name[0]
        for name in picks(
            ocm_cycle(proposal(number, even("region")), members, **options)
        )
    )


@BOTH_MODES
@pytest.mark.parametrize(
    ("number", "order"),
    [
        pytest.param(6, "eweewe", id="UC6a"),
        *(
            pytest.param(number, "eweew"[:number], id=f"UC6c-{number}")
            for number in (5, 4, 3, 2, 1)
        ),
    ],
)
def test_uc6_two_clusters_in_the_east_for_one_in_the_west(
    number: int, order: str, options: Document
) -> None:
    members = zones(key="region", east=9, west=9)

    assert _initials(members, number, {**TWO_TO_ONE, **options}) == order


@BOTH_MODES
def test_uc6b_an_empty_region_leaves_its_share_to_the_other(options: Document) -> None:
    assert sorted(
        _initials(zones(key="region", east=9, west=1), 6, {**TWO_TO_ONE, **options})
    ) == [*"eeeeew"]


def test_uc6_the_ratio_is_reported_as_places_behind_the_region_whose_turn_it_is() -> (
    None
):
    decision = schedule(
        ocm_cycle(
            proposal(4, even("region")),
            zones(key="region", east=9, west=9),
            **TWO_TO_ONE,
        )
    )

    assert reason_texts(decision, "west-2") == [
        "Rank 8 in step 4; lost to east-3 on the gap (-1 vs. 0)"
    ]


# The API examples


EXAMPLE_1 = proposal(
    10,
    even("provider", maxSkew=2),
    affinity(
        "region",
        (20, "In", ["us-east-1", "cn-hangzhou"]),
        (10, "In", ["us-west-1"]),
        (20, "NotIn", ["cn-shenzhen"]),
    ),
)
FOUR_OF_EACH = fleet(
    *(
        cluster(*one)
        for one in regional(
            {"us-east-1": 4, "us-west-1": 4, "cn-hangzhou": 4, "cn-shenzhen": 4}
        )
    )
)


@pytest.mark.parametrize(
    "options",
    [{}, {**WEIGHTED, "u": 1}, {**WEIGHTED, "u": 2}],
    ids=["strict", "u=1", "u=2"],
)
def test_ex1_the_disliked_region_is_used_once_to_keep_the_providers_even(
    options: Document,
) -> None:
    decision = schedule(ocm_cycle(EXAMPLE_1, FOUR_OF_EACH, **options))

    expected = {"us-east-1": 4, "cn-hangzhou": 4, "us-west-1": 1, "cn-shenzhen": 1}
    assert per_group(decision, "region") == expected
    assert per_group(decision, "provider") == {"aws": 5, "alibaba": 5}
    scores = {
        name: candidate.affinity_score
        for name, candidate in contenders(decision).items()
    }
    regions = "us-east-1", "us-west-1", "cn-hangzhou", "cn-shenzhen"
    assert [scores[f"{region}-1"] for region in regions] == [100, 50, 100, -100]


EXAMPLE_2 = proposal(10, even("region", order=2), even("provider", maxSkew=2, order=1))


def _two_providers(*, alibaba: int) -> Fleet:
    east, west = (
        {"provider": "aws", "region": "us-east"},
        {"provider": "aws", "region": "us-west"},
    )
    chinese = (f"cn-{name}" for name in ("hangzhou", "shenzhen"))
    return fleet(
        *numbered(
            {"us-east-1a": (east, 3), "us-east-1b": (east, 3), "us-west-1a": (west, 6)}
        ),
        *numbered(
            {
                name: ({"provider": "alibaba", "region": name}, alibaba)
                for name in chinese
            }
        ),
    )


@BOTH_MODES
def test_ex2_providers_first_then_the_regions_in_each(options: Document) -> None:
    decision = schedule(ocm_cycle(EXAMPLE_2, _two_providers(alibaba=4), **options))

    assert per_group(decision, "provider") == {"aws": 5, "alibaba": 5}
    expected = {"us-east": 3, "us-west": 2, "cn-hangzhou": 3, "cn-shenzhen": 2}
    assert per_group(decision, "region") == expected


@BOTH_MODES
def test_ex2b_a_provider_that_is_used_up_holds_the_other_back(
    options: Document,
) -> None:
    decision = schedule(ocm_cycle(EXAMPLE_2, _two_providers(alibaba=1), **options))

    assert per_group(decision, "region") == {
        "us-east": 2,
        "us-west": 2,
        "cn-hangzhou": 1,
        "cn-shenzhen": 1,
    }
    assert (len(decision.picked), pending(decision)) == (6, 4)
    assert reason_texts(decision, "us-west-1a-3") == [
        "Step 7: selecting it would make provider=aws 5 vs. minimum 2 (gap 3 > maxSkew 2)"
    ]
    limits = [
        (one.topology_key, one.max_skew, one.forbids)
        for one in Replay(decision).step(7).spreads
    ]
    assert limits == [("provider", 2, 8), ("region", 1, 0)]


# Use case 5 in the words of a policy, and claims as well as labels


def test_uc5a_a_policy_with_affinity_terms_says_the_same_as_the_document() -> None:
    rows = FIRST_1A_THEN_1B["topologyWeights"]
    options: Document = {
        "affinityTerms": [{"topologyKey": "zone", "topologyWeights": rows}]
    }

    assert (
        picks(
            ocm(TWO_REGIONS, 4, [spread("region", hard=False)], **options, **WEIGHTED)
        )
        == TWO_OF_EACH
    )
