"""A suggested change written into a manifest: that change and nothing else."""

import json
from typing import Any

import pytest

from clusters.fleet import Fleet
from placements.engine.advice.changes import Change, ChangeKind
from placements.engine.advice.search import why_not
from placements.engine.scheduling.cycle import Cycle
from placements.engine.scheduling.scheduler import schedule
from placements.manifests.policy import parse_policy
from placements.models import Decision
from placements.services.decisions.records import DecisionView, decision_of
from placements.services.decisions.why_not import (
    decided_document,
    draft_with,
    with_change,
    with_option,
)
from tests.builders import cluster, fleet, labelled, prefer, spread, taint
from tests.rows import decided, joined, pick_n_spec, placement_document, saved, spec

Document = dict[str, Any]
FLEET = fleet(
    cluster("aa", region="east", tier="edge"),
    cluster("bb", region="east", tier="core"),
    cluster("cc", region="west", tier="edge", taints=[taint("gpu", "true")]),
)
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"


def changes(
    policy: Document, cluster_name: str, members: Fleet = FLEET
) -> list[Change]:
    """List every change that advice tries for one cluster."""
    cycle = Cycle(policy=parse_policy(policy), fleet=members)
    advice = why_not(schedule(cycle), cluster_name)
    return [suggestion.change for suggestion in (*advice.helps, *advice.fails)]


def changed(
    policy: Document, cluster_name: str, kind: ChangeKind, members: Fleet = FLEET
) -> Document:
    """Return the policy of the manifest with the first change of a kind."""
    [change, *_] = [
        one for one in changes(policy, cluster_name, members) if one.kind is kind
    ]
    document = placement_document("web", spec(policy), note="kept")
    after = with_change(document, change)
    assert document["spec"]["policy"] == policy, "the manifest given is not touched"
    assert {**after, "spec": {**after["spec"], "policy": policy}} == document
    assert parse_policy(after["spec"]["policy"]) == change.changed().policy
    result: Document = after["spec"]["policy"]
    return result


def pick_n(number: int, **more: Any) -> Document:
    return {"placementType": "PickN", "numberOfClusters": number, **more}


def test_the_number() -> None:
    assert changed(pick_n(1), "aa", ChangeKind.NUMBER)["numberOfClusters"] in (2, 3)


@pytest.mark.parametrize("kind", [ChangeKind.MAX_SKEW, ChangeKind.WHEN_UNSATISFIABLE])
def test_a_limit(kind: ChangeKind) -> None:
    policy = pick_n(
        2, topologySpreadConstraints=[{"topologyKey": "region", "maxSkew": 1}]
    )
    members = fleet(
        cluster("aa", region="east"),
        cluster("bb", region="east"),
        cluster("cc", region="west", not_eligible="leaving"),
    )
    [after] = changed(policy, "aa", kind, members)["topologySpreadConstraints"]

    if kind is ChangeKind.MAX_SKEW:
        assert after == {"topologyKey": "region", "maxSkew": 2}
    else:
        assert after == {
            "topologyKey": "region",
            "maxSkew": 1,
            "whenUnsatisfiable": "ScheduleAnyway",
        }


def test_a_constraint_dropped() -> None:
    policy = pick_n(1, topologySpreadConstraints=[spread("region"), spread("tier")])

    assert changed(policy, "aa", ChangeKind.DROP_CONSTRAINT)[
        "topologySpreadConstraints"
    ] == [spread("tier")]


def test_a_weight() -> None:
    policy = pick_n(
        1,
        affinity={"clusterAffinity": {PREFERRED: [prefer(20, labelled(tier="core"))]}},
    )
    [term] = changed(policy, "aa", ChangeKind.WEIGHT)["affinity"]["clusterAffinity"][
        PREFERRED
    ]

    assert term["preference"] == {"labelSelector": {"matchLabels": {"tier": "core"}}}
    assert term["weight"] != 20


def test_a_toleration() -> None:
    after = changed({"placementType": "PickAll"}, "cc", ChangeKind.TOLERATION)

    assert after["tolerations"] == [
        {"key": "gpu", "operator": "Equal", "value": "true", "effect": "NoSchedule"}
    ]


def test_a_required_term_dropped() -> None:
    terms = {"clusterSelectorTerms": [labelled(tier="core"), labelled(region="north")]}
    policy = {
        "placementType": "PickAll",
        "affinity": {"clusterAffinity": {REQUIRED: terms}},
    }
    after = changed(policy, "aa", ChangeKind.DROP_TERM)

    assert after["affinity"]["clusterAffinity"][REQUIRED] == {
        "clusterSelectorTerms": [labelled(region="north")]
    }


def test_a_requirement_dropped() -> None:
    terms = {"clusterSelectorTerms": [labelled(tier="core", region="east")]}
    policy = {
        "placementType": "PickAll",
        "affinity": {"clusterAffinity": {REQUIRED: terms}},
    }
    [term] = changed(policy, "aa", ChangeKind.DROP_REQUIREMENT)["affinity"][
        "clusterAffinity"
    ][REQUIRED]["clusterSelectorTerms"]

    assert len(term["labelSelector"]["matchLabels"]) == 1


def test_a_name_added() -> None:
    after = changed(
        {"placementType": "PickFixed", "clusterNames": ["aa"]}, "bb", ChangeKind.NAME
    )

    assert after == {"placementType": "PickFixed", "clusterNames": ["aa", "bb"]}


def test_a_policy_left_out_is_written_where_it_changes() -> None:
    [change] = [
        one
        for one in changes({"placementType": "PickAll"}, "cc")
        if one.kind is ChangeKind.TOLERATION
    ]
    after = with_change(placement_document("web", spec()), change)

    assert parse_policy(after["spec"]["policy"]) == change.changed().policy


def test_a_change_of_the_fleet_is_none_of_the_policy() -> None:
    [change, *_] = [
        one
        for one in changes(
            pick_n(1, topologySpreadConstraints=[spread("region")]), "cc"
        )
        if one.kind is ChangeKind.LABEL
    ]

    assert change.edit is None


@pytest.mark.parametrize(
    ("notes", "options"),
    [
        ({}, {"u": 3}),
        (
            {"fleetui.io/spread-options": '{"mode": "weighted"}'},
            {"mode": "weighted", "u": 3},
        ),
    ],
)
def test_an_option_is_noted_beside_the_others(
    notes: dict[str, str], options: Document
) -> None:
    document = placement_document("web", spec(pick_n(1)))
    document["metadata"]["annotations"] = {"fleetui.io/semantics": "ocm", **notes}

    after = with_option(document, "u", 3)

    assert (
        json.loads(after["metadata"]["annotations"].pop("fleetui.io/spread-options"))
        == options
    )
    assert after["metadata"]["annotations"] == {"fleetui.io/semantics": "ocm"}
    assert "u" not in document["metadata"]["annotations"].get(
        "fleetui.io/spread-options", ""
    )


@pytest.mark.django_db
def test_advice_on_other_options_is_no_draft() -> None:
    joined("a", region="east")
    wanted = pick_n_spec(1, topologySpreadConstraints=[spread("region")])
    decided(
        "web", wanted, semantics="ocm", spread_options='{"mode": "weighted", "u": 2}'
    )
    row = Decision.objects.select_related("record", "placement").latest("number")
    change = Change(
        ChangeKind.OPTION, {}, lambda: decision_of(row).cycle, option=("nested", False)
    )
    document = decided_document(DecisionView(row))
    assert document is not None
    assert draft_with(document, change) is not None

    saved("web", wanted, semantics="ocm", spread_options='{"mode": "weighted", "u": 5}')
    row.refresh_from_db()

    assert decided_document(DecisionView(row)) is None
