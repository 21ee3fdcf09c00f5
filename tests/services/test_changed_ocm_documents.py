"""A suggested change written into a Placement of Open Cluster Management, in the document's own words."""

from collections.abc import Iterator
from copy import deepcopy
from typing import Any

import pytest

from clusters.fleet import Fleet
from fleetui.apimachinery.model import Semantics
from placements.engine.advice.changes import Change, ChangeKind
from placements.engine.advice.search import why_not
from placements.engine.scheduling.cycle import Cycle
from placements.engine.scheduling.scheduler import schedule
from placements.manifests.placement import parse_placement
from placements.services.decisions.why_not import with_change
from tests.builders import cluster, fleet, taint
from tests.ocm_documents import ocm_document

Spec = dict[str, Any]
FLEET = fleet(
    cluster("aa", region="east", tier="edge"),
    cluster("bb", region="east", tier="core"),
    cluster("cc", region="west", tier="edge", taints=[taint("gpu", "true")]),
)
NARROW = fleet(
    *(cluster(name, region="east") for name in ("aa", "bb", "dd")),
    cluster("cc", region="west"),
)
"""With a limit of 1, dd is one too many in the east."""


def predicate(**selector: Any) -> Spec:
    return {"requiredClusterSelector": selector}


def requirement(key: str, *values: str) -> Spec:
    return {"key": key, "operator": "In", "values": list(values)}


def tried(document: Spec, name: str, members: Fleet) -> Iterator[Change]:
    """Return every change of the policy that advice tries for one cluster."""
    parsed = parse_placement(document)
    cycle = Cycle(
        policy=parsed.spec.policy,
        fleet=members,
        semantics=Semantics.OCM,
        options=parsed.spread_options,
    )
    advice = why_not(schedule(cycle), name)
    yield from (
        suggestion.change
        for suggestion in (*advice.helps, *advice.fails)
        if suggestion.change.edit
    )


def changed(
    document: Spec, name: str, kind: ChangeKind, members: Fleet = FLEET
) -> Spec:
    """Return the spec with the first change of a kind; nothing else of the document may be another."""
    change = next(one for one in tried(document, name, members) if one.kind is kind)
    before = deepcopy(document)
    after = with_change(document, change)
    assert document == before, "the document given is not touched"
    assert {**after, "spec": before["spec"]} == before
    spec: Spec = after["spec"]
    return spec


def test_the_number() -> None:
    assert changed(ocm_document(numberOfClusters=1), "bb", ChangeKind.NUMBER)[
        "numberOfClusters"
    ] in (2, 3)


ALPHA = {"type": "Even", "topologyKey": "region", "maxSkew": 1}
BETA = {"topologyKey": "region", "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule"}


@pytest.mark.parametrize(
    ("kind", "after"),
    [
        (ChangeKind.MAX_SKEW, {"type": "Even", "topologyKey": "region", "maxSkew": 2}),
        (ChangeKind.WHEN_UNSATISFIABLE, {"type": "Even", "topologyKey": "region"}),
    ],
)
def test_a_limit_of_the_proposal_is_hard_by_being_there(
    kind: ChangeKind, after: Spec
) -> None:
    rows = [{"weight": 1, "operator": "In", "values": ["y"]}]
    prefers = {"type": "Affinity", "topologyKey": "x", "topologyWeights": rows}
    document = ocm_document(
        version="v1alpha1", numberOfClusters=4, spreadConstraints=[prefers, ALPHA]
    )

    assert changed(document, "dd", kind, NARROW)["spreadConstraints"] == [
        prefers,
        after,
    ]


@pytest.mark.parametrize(
    ("kind", "after"),
    [
        (ChangeKind.MAX_SKEW, {**BETA, "maxSkew": 2}),
        (
            ChangeKind.WHEN_UNSATISFIABLE,
            {**BETA, "whenUnsatisfiable": "ScheduleAnyway"},
        ),
    ],
)
def test_the_merged_api_says_hard_or_soft(kind: ChangeKind, after: Spec) -> None:
    document = ocm_document(
        numberOfClusters=4, spreadPolicy={"spreadConstraints": [BETA]}
    )

    assert changed(document, "dd", kind, NARROW)["spreadPolicy"] == {
        "spreadConstraints": [after]
    }


def test_a_soft_constraint_becomes_hard_where_it_stands() -> None:
    soft = [
        {"type": "Even", "topologyKey": key, "order": order}
        for key, order in (("tier", 2), ("region", 1))
    ]
    document = ocm_document(
        version="v1alpha1", numberOfClusters=1, spreadConstraints=soft
    )

    after = changed(document, "cc", ChangeKind.WHEN_UNSATISFIABLE)["spreadConstraints"]

    assert after == [soft[0], {**soft[1], "maxSkew": 1}], (
        "region comes first, by its order"
    )


@pytest.mark.parametrize(
    "document",
    [
        ocm_document(version="v1alpha1", numberOfClusters=4, spreadConstraints=[ALPHA]),
        ocm_document(numberOfClusters=4, spreadPolicy={"spreadConstraints": [BETA]}),
    ],
    ids=["proposal", "merged"],
)
def test_the_last_constraint_goes_with_what_held_it(document: Spec) -> None:
    assert changed(document, "dd", ChangeKind.DROP_CONSTRAINT, NARROW) == {
        "numberOfClusters": 4
    }


def test_one_of_two_constraints_goes() -> None:
    two = [{**ALPHA, "order": 1}, {**ALPHA, "topologyKey": "tier", "order": 2}]
    document = ocm_document(
        version="v1alpha1", numberOfClusters=1, spreadConstraints=two
    )

    assert (
        changed(document, "cc", ChangeKind.DROP_CONSTRAINT)["spreadConstraints"]
        == two[1:]
    )


def test_a_toleration_joins_those_that_are_there() -> None:
    tolerated = {"key": "spot", "operator": "Exists", "effect": "NoSelect"}

    assert changed(ocm_document(tolerations=[tolerated]), "cc", ChangeKind.TOLERATION)[
        "tolerations"
    ] == [
        tolerated,
        {"key": "gpu", "operator": "Equal", "value": "true", "effect": "NoSchedule"},
    ]


def test_a_predicate_goes_and_an_empty_entry_stays() -> None:
    north, west = (
        predicate(labelSelector={"matchLabels": {"region": region}})
        for region in ("north", "west")
    )
    document = ocm_document(predicates=[None, north, west])

    assert changed(document, "aa", ChangeKind.DROP_TERM)["predicates"] == [None, west]


def test_the_last_predicate_goes_with_its_list() -> None:
    document = ocm_document(
        predicates=[predicate(labelSelector={"matchLabels": {"region": "west"}})]
    )

    assert "predicates" not in changed(document, "aa", ChangeKind.DROP_TERM)


def test_one_requirement_of_a_predicate_goes_claims_included() -> None:
    labels, claims = (
        {"matchLabels": {"tier": "edge"}},
        {"matchExpressions": [requirement("region", "west")]},
    )
    document = ocm_document(
        predicates=[predicate(labelSelector=labels, claimSelector=claims)]
    )
    of = [
        change
        for change in tried(document, "bb", FLEET)
        if change.kind is ChangeKind.DROP_REQUIREMENT
    ]

    left = [
        with_change(document, change)["spec"]["predicates"][0][
            "requiredClusterSelector"
        ]
        for change in of
    ]

    assert [change.facts["requirement"] for change in of] == ["tier", "region"]
    assert [one["labelSelector"].get("matchLabels", {}) for one in left] == [
        {},
        {"tier": "edge"},
    ]
    assert [one["claimSelector"].get("matchExpressions", []) for one in left] == [
        [requirement("region", "west")],
        [],
    ]


def test_every_change_that_advice_tries_is_expressed_by_the_document() -> None:
    labels = {
        "matchLabels": {"tier": "edge"},
        "matchExpressions": [requirement("region", "west", "east")],
    }
    document = ocm_document(
        version="v1alpha1",
        numberOfClusters=1,
        predicates=[
            predicate(labelSelector=labels),
            predicate(labelSelector={"matchLabels": {"tier": "core"}}),
        ],
        spreadConstraints=[
            {**ALPHA, "order": 3},
            {"type": "Even", "topologyKey": "tier", "order": 1},
        ],
    )
    changes = [
        change for name in ("aa", "bb", "cc") for change in tried(document, name, FLEET)
    ]

    for change in changes:
        wanted, changed = (
            change.changed().policy,
            parse_placement(with_change(document, change)).spec.policy,
        )
        limits = [
            (limit.topology_key, limit.when_unsatisfiable)
            for limit in wanted.topology_spread_constraints
        ]
        assert changed.model_copy(
            update={"topology_spread_constraints": ()}
        ) == wanted.model_copy(update={"topology_spread_constraints": ()})
        assert limits == [
            (constraint.topology_key, constraint.when_unsatisfiable)
            for constraint in changed.topology_spread_constraints
        ]
    assert len({change.kind for change in changes}) >= 6
