"""A policy as one English sentence."""

from typing import Any
from unittest.mock import Mock

import pytest

from fleetui.apimachinery.model import Semantics
from placements.engine.advice.changes import Change, ChangeKind
from placements.engine.advice.search import Suggestion
from placements.explain.advice import plausible
from placements.explain.vocabulary import policy_sentence
from placements.manifests.policy import PlacementPolicy, parse_policy
from tests.builders import (
    expression,
    labelled,
    measured,
    pick_all,
    pick_fixed,
    pick_n,
    policy,
    prefer,
    sorted_by,
    spread,
    tolerate,
)

CRITICAL, CANARY = (
    prefer(20, labelled(system="critical")),
    prefer(-10, labelled(env="canary")),
)
GPU = {**labelled(region="east"), **measured("example.com/gpus", "Ge", "4")}


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        (
            pick_n(
                5,
                spread=[spread("region"), spread("env", 2, hard=False)],
                prefer=[CRITICAL, CANARY],
            ),
            "Select 5 clusters; at most 1 apart across region (hard) and 2 across env (soft);"
            " prefer system=critical (+20), avoid env=canary (−10).",
        ),
        (PlacementPolicy(), "Select all clusters."),
        (pick_n(1), "Select 1 cluster."),
        (pick_n(0), "Select 0 clusters."),
        (pick_fixed("a"), "Select by name: a."),
        (pick_fixed("a", "b", "c"), "Select by name: a, b and c."),
        (pick_fixed(*"abcdefgh"), "Select by name: a, b, c, d, e and 3 more."),
        (pick_fixed(), "PickFixed with no cluster names."),
        (
            pick_n(2, required=[GPU]),
            "Select 2 clusters where region=east and example.com/gpus ≥ 4.",
        ),
        (
            pick_all(
                required=[labelled(tier="edge"), expression("zone", "In", "a", "b")]
            ),
            "Select all clusters where tier=edge, or zone is a or b.",
        ),
        (
            pick_n(
                2,
                tolerations=[
                    tolerate(key="gpu", value="true"),
                    tolerate(operator="Exists", key="old"),
                ],
            ),
            "Select 2 clusters; tolerate gpu=true and any old.",
        ),
        (
            pick_all(tolerations=[tolerate(operator="Exists")]),
            "Select all clusters; tolerate every taint.",
        ),
        (pick_n(3, prefer=[prefer(0, labelled(a="b"))]), "Select 3 clusters."),
        (
            pick_n(
                3,
                prefer=[
                    prefer(5, sorted_by("cost", "Ascending")),
                    prefer(-5, sorted_by("cpu")),
                ],
            ),
            "Select 3 clusters; prefer less cost (+5), avoid more cpu (−5).",
        ),
    ],
)
def test_says_what_a_policy_wants(given: PlacementPolicy, sentence: str) -> None:
    assert policy_sentence(given) == sentence


@pytest.mark.parametrize(
    ("operator", "values", "words"),
    [
        ("In", ["a"], "zone=a"),
        ("In", ["a", "b"], "zone is a or b"),
        ("NotIn", ["a"], "zone≠a"),
        ("NotIn", ["a", "b"], "zone is neither a nor b"),
        ("Exists", [], "zone is set"),
        ("DoesNotExist", [], "zone is not set"),
    ],
)
def test_says_each_requirement_on_a_label(
    operator: str, values: list[str], words: str
) -> None:
    term = expression("zone", operator, *values)

    assert (
        policy_sentence(pick_all(required=[term]))
        == f"Select all clusters where {words}."
    )


def test_says_how_many_groups_a_constraint_wants() -> None:
    constraint: dict[str, Any] = {**spread("zone"), "minDomains": 3}
    fields = {
        "placementType": "PickN",
        "numberOfClusters": 3,
        "topologySpreadConstraints": [constraint],
    }

    given = parse_policy(fields, semantics=Semantics.KUBERNETES)

    assert (
        policy_sentence(given)
        == "Select 3 clusters; at most 1 apart across zone (hard, at least 3 domains)."
    )


def test_says_that_a_term_wants_nothing() -> None:
    empty = policy(
        placementType="PickN",
        numberOfClusters=1,
        affinity={
            "clusterAffinity": {
                "preferredDuringSchedulingIgnoredDuringExecution": [
                    {"weight": 3, "preference": {}}
                ]
            }
        },
    )

    assert (
        policy_sentence(empty) == "Select 1 cluster; prefer every cluster alike (+3)."
    )


SPREAD = pick_n(4, spread=[spread("provider", 2), spread("zone", hard=False)])


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (
            {},
            "at most 2 above the emptiest provider (hard), and within it evenly across zone (soft)",
        ),
        (
            {"nested": False, "unsetPolicy": "exclude", "unsatisfiable": "error"},
            "at most 2 above the emptiest provider (hard) and evenly across zone (soft);"
            " clusters without a key are excluded; all or none",
        ),
        (
            {
                "mode": "weighted",
                "u": 0.5,
                "domainWeights": {"zone": {"a": 2}},
                "steadyWeight": 300,
            },
            "at most 2 above the emptiest provider (hard), and within it across zone by weight (a 2, others"
            " 1); spread weighted against preference, u = 0.5; weights: Steady 3",
        ),
    ],
)
def test_a_spread_of_ocm_is_reported_level_by_level(
    options: dict[str, object], words: str
) -> None:
    assert (
        policy_sentence(SPREAD, Semantics.OCM, options)
        == f"Select 4 clusters; {words}."
    )


def test_affinity_rows_of_ocm_are_reported_as_what_is_preferred() -> None:
    rows = [
        {"weight": 20, "operator": "In", "values": ["a", "b"]},
        {"weight": -5, "operator": "NotIn", "values": ["c"]},
    ]
    options = {"affinityTerms": [{"topologyKey": "region", "topologyWeights": rows}]}

    said = policy_sentence(pick_n(1), Semantics.OCM, options)

    assert (
        said == "Select 1 cluster; prefer region is a or b (+20), avoid region≠c (−5)."
    )


def test_a_spread_of_kubernetes_is_reported_by_what_it_is_compared_with() -> None:
    hard = {
        **spread("zone"),
        "minDomains": 3,
        "nodeTaintsPolicy": "Honor",
        "nodeAffinityPolicy": "Ignore",
    }
    raw = {
        **SPREAD.to_plain(),
        "topologySpreadConstraints": [hard, spread("node", hard=False)],
    }
    policy = parse_policy(raw, semantics=Semantics.KUBERNETES)

    assert policy_sentence(policy, Semantics.KUBERNETES) == (
        "Select 4 clusters; at most 1 above the smallest domain of zone (hard, minimum 0 below 3 domains,"
        " domains outside the affinity count too, domains behind a taint do not count);"
        " evenly across node (soft)."
    )


def test_one_group_is_reported_as_one() -> None:
    raw = {
        **pick_n(4).to_plain(),
        "topologySpreadConstraints": [{**spread("zone"), "minDomains": 1}],
    }
    policy = parse_policy(raw, semantics=Semantics.KUBERNETES)

    assert "domains" not in policy_sentence(policy, Semantics.KUBERNETES)


def test_rows_take_the_place_of_the_preferred_terms() -> None:
    rows = [
        {"weight": 20, "operator": "In", "values": ["a"]},
        {"weight": 0, "operator": "Exists"},
    ]
    options = {"affinityTerms": [{"topologyKey": "region", "topologyWeights": rows}]}
    policy = pick_n(1, prefer=[prefer(30, labelled(tier="edge"))])

    assert (
        policy_sentence(policy, Semantics.OCM, options)
        == "Select 1 cluster; prefer region=a (+20)."
    )


def test_advice_leaves_implausible_numbers_out_and_keeps_its_order() -> None:
    def suggestion(moved: int, today: int, weight: int) -> Suggestion:
        change = Change(
            ChangeKind.WEIGHT, {"term": 0, "today": today, "weight": weight}, Mock()
        )
        return Suggestion(change, helps=True, gains=("a",) * moved, losses=())

    found = [
        suggestion(3, 20, 30),
        suggestion(1, 20, -1),
        suggestion(1, 2, 21),
        suggestion(2, 20, 0),
    ]
    kept = plausible([*found, *(suggestion(4, 5, 6 + at) for at in range(9))])

    assert [one.change.facts["weight"] for one in kept] == [30, 0, *range(6, 15)]
