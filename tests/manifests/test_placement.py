"""Every rule on a placement document but its policy: selectors, strategy, metadata, kinds."""

from typing import Any

import pytest

from fleetui.apimachinery.model import IntOrPercent, Semantics
from placements.manifests.placement import parse_placement, spec_warnings
from placements.manifests.policy import PlacementPolicy
from placements.manifests.strategy import StrategyType
from tests.documents import (
    NAMESPACE,
    annotated,
    changed,
    errors_in,
    parse_placement_spec,
    placement,
)

Raw = dict[str, Any]

SELECTOR = "spec.resourceSelectors[0]"
STRATEGY = "spec.strategy"
WITH_SELECTORS = "NamespaceWithResourceSelectors"


def selecting(*selectors: Any) -> Raw:
    return placement(resourceSelectors=list(selectors))


def selector(**fields: Any) -> Raw:
    """Write a selector of all namespaces; null takes a field away."""
    found = {"group": "", "version": "v1", "kind": "Namespace", **fields}
    return {key: value for key, value in found.items() if value is not None}


def strategy(**fields: Any) -> Raw:
    return placement(strategy=fields)


def rolling(**fields: Any) -> Raw:
    return strategy(rollingUpdate=fields)


def named(name: Any) -> Raw:
    return changed(placement(), "metadata", "name", to=name)


def warning_codes(document: Raw) -> list[tuple[str, str]]:
    warnings = spec_warnings(parse_placement(document).spec)
    return [(warning.code, warning.path) for warning in warnings]


ACCEPTED = {
    "one namespace": placement(),
    "the other API version": {
        **placement(),
        "apiVersion": "placement.kubernetes-fleet.io/v1",
    },
    "what a hub adds": {
        **changed(
            placement(), "metadata", "managedFields", to=[{"manager": "kubectl"}]
        ),
        "status": {"conditions": [{"type": "anything"}]},
    },
    "a cluster role with capitals": selecting(
        {
            "group": "rbac.authorization.k8s.io",
            "version": "v1",
            "kind": "ClusterRole",
            "name": "secretReader",
        }
    ),
    "a name with a colon": selecting(selector(kind="ClusterRole", name="system:x")),
    "by label": selecting(selector(labelSelector={"matchLabels": {"a": "b"}})),
    "all of a kind": selecting(selector()),
    "an empty name beside labels": selecting(selector(name="", labelSelector={})),
    "a hundred selectors": selecting(*[selector(name=f"n{i}") for i in range(100)]),
    "the namespace alone": selecting(selector(selectionScope="NamespaceOnly")),
    "a namespace with its own selectors": selecting(
        selector(name="work", selectionScope=WITH_SELECTORS),
        selector(group="apps", kind="Deployment", name="web"),
    ),
    "budgets in every form": rolling(
        maxUnavailable="0%", maxSurge=2, unavailablePeriodSeconds=0
    ),
    "all of the clusters": rolling(maxUnavailable=3, maxSurge="100%"),
    "no report to the hub": strategy(reportBackStrategy={"type": "Disabled"}),
    "a mirror of the status": strategy(
        reportBackStrategy={"type": "Mirror", "destination": "OriginalResource"}
    ),
    "a staged placement": strategy(type="External"),
    "every apply option": strategy(
        applyStrategy={
            "type": "ServerSideApply",
            "comparisonOption": "FullComparison",
            "whenToApply": "IfNotDrifted",
            "whenToTakeOver": "Never",
            "allowCoOwnership": True,
            "serverSideApplyConfig": {"force": True},
        }
    ),
    "leaving resources behind": strategy(
        deleteStrategy={"propagationPolicy": "Abandon"}
    ),
    "history at both ends": placement(revisionHistoryLimit=1000),
    "status in the namespace": placement(statusReportingScope="NamespaceAccessible"),
    "kubefleet semantics": annotated(semantics="kubefleet"),
    "spread options": annotated(spread_options='{"mode": "strict"}'),
}


@pytest.mark.nightly
@pytest.mark.parametrize("document", ACCEPTED.values(), ids=ACCEPTED.keys())
def test_takes_and_exports_what_it_took(document: Raw) -> None:
    found = parse_placement(document)

    assert parse_placement(found.to_manifest()) == found


REFUSED: dict[str, tuple[Any, str, str]] = {
    "a list": ([placement()], "", "wrong-type"),
    "nothing": (None, "", "wrong-type"),
    "an old API version": (
        {**placement(), "apiVersion": "placement.kubernetes-fleet.io/v1alpha1"},
        "apiVersion",
        "api-version-not-supported",
    ),
    "a field beside the spec": ({**placement(), "data": {}}, "data", "unknown-field"),
    "no name": (named(None), "metadata.name", "required"),
    "a name too long": (named("a" * 64), "metadata.name", "too-long"),
    "a bad name": (named("My_placement"), "metadata.name", "bad-format"),
    "a namespace": (
        changed(placement(), "metadata", "namespace", to="default"),
        "metadata.namespace",
        "misplaced",
    ),
    "unknown metadata": (
        changed(placement(), "metadata", "owner", to="me"),
        "metadata.owner",
        "unknown-field",
    ),
    "a bad label": (
        changed(placement(), "metadata", "labels", to={"example.com/a": "b c"}),
        'metadata.labels["example.com/a"]',
        "bad-format",
    ),
    "a number in an annotation": (
        changed(placement(), "metadata", "annotations", to={"a": 1}),
        "metadata.annotations.a",
        "wrong-type",
    ),
    "no selectors": (selecting(), "spec.resourceSelectors", "too-few"),
    "selectors left out": (
        placement(resourceSelectors=None),
        "spec.resourceSelectors",
        "required",
    ),
    "too many selectors": (
        selecting(*[selector(name=f"n{i}") for i in range(101)]),
        "spec.resourceSelectors",
        "too-many",
    ),
    "no group": (selecting(selector(group=None)), f"{SELECTOR}.group", "required"),
    "no version": (selecting(selector(version="")), f"{SELECTOR}.version", "required"),
    "no kind": (selecting(selector(kind=None)), f"{SELECTOR}.kind", "required"),
    "a bad group": (
        selecting(selector(group="Apps")),
        f"{SELECTOR}.group",
        "bad-format",
    ),
    "a name with a slash": (
        selecting(selector(name="a/b")),
        f"{SELECTOR}.name",
        "bad-format",
    ),
    "name and labels": (
        selecting(selector(name="a", labelSelector={"matchLabels": {"a": "b"}})),
        f"{SELECTOR}.labelSelector",
        "conflict",
    ),
    "an unknown scope": (
        selecting(selector(selectionScope="Everything")),
        f"{SELECTOR}.selectionScope",
        "not-one-of",
    ),
    "a namespace of the hub": (
        selecting(selector(name="kube-system")),
        f"{SELECTOR}.name",
        "reserved-namespace",
    ),
    "the default namespace": (
        selecting(selector(name="default")),
        f"{SELECTOR}.name",
        "reserved-namespace",
    ),
    "own selectors without a name": (
        selecting(selector(selectionScope=WITH_SELECTORS)),
        f"{SELECTOR}.name",
        "required",
    ),
    "own selectors twice": (
        selecting(
            *[selector(name=name, selectionScope=WITH_SELECTORS) for name in ("a", "b")]
        ),
        "spec.resourceSelectors[1]",
        "conflict",
    ),
    "own selectors beside another namespace": (
        selecting(
            selector(name="a"), selector(name="b", selectionScope=WITH_SELECTORS)
        ),
        SELECTOR,
        "conflict",
    ),
    "status in a namespace that is not selected": (
        {
            **placement(
                statusReportingScope="NamespaceAccessible",
                resourceSelectors=[
                    selector(group="rbac.authorization.k8s.io", kind="ClusterRole")
                ],
            )
        },
        "spec.statusReportingScope",
        "conflict",
    ),
    "status in one of two namespaces": (
        placement(
            statusReportingScope="NamespaceAccessible",
            resourceSelectors=[NAMESPACE, selector(name="other")],
        ),
        "spec.statusReportingScope",
        "conflict",
    ),
    "no history": (
        placement(revisionHistoryLimit=0),
        "spec.revisionHistoryLimit",
        "out-of-range",
    ),
    "too much history": (
        placement(revisionHistoryLimit=1001),
        "spec.revisionHistoryLimit",
        "out-of-range",
    ),
    "an unknown strategy": (
        strategy(type="Recreate"),
        f"{STRATEGY}.type",
        "not-one-of",
    ),
    "more than all": (
        rolling(maxSurge="101%"),
        f"{STRATEGY}.rollingUpdate.maxSurge",
        "bad-format",
    ),
    "fewer than none": (
        rolling(maxSurge=-1),
        f"{STRATEGY}.rollingUpdate.maxSurge",
        "out-of-range",
    ),
    "half a cluster": (
        rolling(maxSurge=0.5),
        f"{STRATEGY}.rollingUpdate.maxSurge",
        "wrong-type",
    ),
    "a budget of true": (
        rolling(maxSurge=True),
        f"{STRATEGY}.rollingUpdate.maxSurge",
        "wrong-type",
    ),
    "both budgets 0": (
        rolling(maxUnavailable=0, maxSurge="0%"),
        f"{STRATEGY}.rollingUpdate",
        "conflict",
    ),
    "a wait below 0": (
        rolling(unavailablePeriodSeconds=-1),
        f"{STRATEGY}.rollingUpdate.unavailablePeriodSeconds",
        "out-of-range",
    ),
    "budgets of a staged placement": (
        strategy(type="External", rollingUpdate={}),
        f"{STRATEGY}.rollingUpdate",
        "conflict",
    ),
    "an unknown apply type": (
        strategy(applyStrategy={"type": "Replace"}),
        f"{STRATEGY}.applyStrategy.type",
        "not-one-of",
    ),
    "server-side details without server side": (
        strategy(applyStrategy={"serverSideApplyConfig": {}}),
        f"{STRATEGY}.applyStrategy.serverSideApplyConfig",
        "conflict",
    ),
    "yes for true": (
        strategy(applyStrategy={"allowCoOwnership": "yes"}),
        f"{STRATEGY}.applyStrategy.allowCoOwnership",
        "wrong-type",
    ),
    "an unknown propagation": (
        strategy(deleteStrategy={"propagationPolicy": "Orphan"}),
        f"{STRATEGY}.deleteStrategy.propagationPolicy",
        "not-one-of",
    ),
    "a mirror of the status without a destination": (
        strategy(reportBackStrategy={"type": "Mirror"}),
        f"{STRATEGY}.reportBackStrategy.destination",
        "required",
    ),
    "an integer as text": (
        strategy(rollingUpdate={"maxUnavailable": "5"}),
        f"{STRATEGY}.rollingUpdate.maxUnavailable",
        "bad-format",
    ),
    "a kind inside namespaces": (
        placement(resourceSelectors=[selector(group="apps", kind="Deployment")]),
        "spec.resourceSelectors[0].kind",
        "namespaced-kind",
    ),
    "unknown semantics": (
        annotated(semantics="mine"),
        'metadata.annotations["fleetui.io/semantics"]',
        "not-one-of",
    ),
    "options that are no JSON": (
        annotated(spread_options="{mode: strict}"),
        'metadata.annotations["fleetui.io/spread-options"]',
        "bad-format",
    ),
    "options that are a list": (
        annotated(spread_options="[]"),
        'metadata.annotations["fleetui.io/spread-options"]',
        "bad-format",
    ),
    "bottomless options": (
        annotated(spread_options='{"a":' * 10_000),
        'metadata.annotations["fleetui.io/spread-options"]',
        "bad-format",
    ),
}


@pytest.mark.parametrize(
    ("document", "path", "code"), REFUSED.values(), ids=REFUSED.keys()
)
def test_refuses(document: Any, path: str, code: str) -> None:
    assert errors_in(parse_placement, document) == [(path, code)]


@pytest.mark.nightly
@pytest.mark.parametrize(
    "kind",
    [
        "ClusterResourceOverride",
        "ResourceOverride",
        "ClusterResourcePlacementEviction",
        "ClusterResourcePlacementDisruptionBudget",
        "ClusterStagedUpdateStrategy",
        "ClusterStagedUpdateRun",
        "StagedUpdateStrategy",
        "StagedUpdateRun",
        "ClusterApprovalRequest",
        "ApprovalRequest",
        "ClusterResourceEnvelope",
        "ResourceEnvelope",
        "MemberCluster",
        "Deployment",
        "\ud800",
    ],
)
def test_another_kind_has_that_one_fault(kind: str) -> None:
    document = {
        "apiVersion": "v1",
        "kind": kind,
        "metadata": {},
        "spec": {"anything": 1},
    }

    assert errors_in(parse_placement, document) == [("kind", "kind-not-supported")]


def test_faults_of_spec_and_policy_come_together() -> None:
    document = placement(
        policy={"placementType": "PickN", "x": 1}, strategy={"type": "External", "y": 1}
    )

    assert errors_in(parse_placement, document) == [
        ("spec.policy.x", "unknown-field"),
        ("spec.policy.numberOfClusters", "required"),
        ("spec.strategy.y", "unknown-field"),
    ]


def test_a_spec_alone_says_where_it_belongs() -> None:
    assert errors_in(parse_placement_spec, {}, path="placement.spec") == [
        ("placement.spec.resourceSelectors", "required")
    ]


def test_defaults_are_filled_in() -> None:
    spec = parse_placement(placement()).spec

    assert spec == parse_placement_spec(
        {
            "resourceSelectors": [
                {**NAMESPACE, "selectionScope": "NamespaceWithResources"}
            ],
            "policy": {"placementType": "PickAll"},
            "strategy": {
                "type": "RollingUpdate",
                "rollingUpdate": {
                    "maxUnavailable": "25%",
                    "maxSurge": "25%",
                    "unavailablePeriodSeconds": 60,
                },
                "applyStrategy": {
                    "type": "ClientSideApply",
                    "comparisonOption": "PartialComparison",
                    "whenToApply": "Always",
                    "whenToTakeOver": "Always",
                    "allowCoOwnership": False,
                },
                "deleteStrategy": {"propagationPolicy": "Delete"},
            },
            "revisionHistoryLimit": 10,
            "statusReportingScope": "ClusterScopeOnly",
        }
    )
    assert spec.policy == PlacementPolicy()


def test_a_staged_placement_has_no_budgets() -> None:
    found = parse_placement(strategy(type="External")).spec.strategy

    assert (found.type, found.rolling_update) == (StrategyType.EXTERNAL, None)


def test_server_side_apply_has_its_details() -> None:
    found = parse_placement(
        strategy(applyStrategy={"type": "ServerSideApply"})
    ).spec.strategy

    assert found.to_plain()["applyStrategy"]["serverSideApplyConfig"] == {
        "force": False
    }


@pytest.mark.parametrize(
    ("amount", "total", "meant"),
    [
        (IntOrPercent(25, is_percent=True), 10, 3),
        (IntOrPercent(0, is_percent=True), 10, 0),
        (IntOrPercent(7), 3, 7),
    ],
)
def test_percentages_round_up(amount: IntOrPercent, total: int, meant: int) -> None:
    assert amount.of(total) == meant


def test_the_export_keeps_version_labels_and_annotations() -> None:
    document = annotated(semantics="kubefleet", spread_options='{"u": 2}')
    document["metadata"]["labels"] = {"team": "web"}

    found = parse_placement(document)

    manifest = found.to_manifest()
    assert manifest["apiVersion"] == "placement.kubernetes-fleet.io/v1beta1"
    assert manifest["metadata"] == document["metadata"]
    assert (found.semantics, found.spread_options) == (Semantics.KUBEFLEET, {"u": 2})


@pytest.mark.parametrize(
    ("document", "warnings"),
    [
        (placement(), []),
        (
            rolling(maxUnavailable=0),
            [("zero-max-unavailable", f"{STRATEGY}.rollingUpdate.maxUnavailable")],
        ),
        (
            rolling(maxSurge="0%"),
            [("zero-max-surge", f"{STRATEGY}.rollingUpdate.maxSurge")],
        ),
        (
            strategy(applyStrategy={"type": "ReportDiff"}),
            [("not-acted-on-yet", f"{STRATEGY}.applyStrategy")],
        ),
        (strategy(applyStrategy={"whenToApply": "Always"}), []),
        (strategy(reportBackStrategy={"type": "Disabled"}), []),
        (
            strategy(
                reportBackStrategy={"type": "Mirror", "destination": "OriginalResource"}
            ),
            [("not-acted-on-yet", f"{STRATEGY}.reportBackStrategy")],
        ),
        (
            placement(statusReportingScope="NamespaceAccessible"),
            [("not-acted-on-yet", "spec.statusReportingScope")],
        ),
        (
            placement(policy={"placementType": "PickFixed"}),
            [("no-cluster-names", "spec.policy.clusterNames")],
        ),
    ],
)
def test_warns_about_what_was_accepted_all_the_same(
    document: Raw, warnings: list[tuple[str, str]]
) -> None:
    assert warning_codes(document) == warnings
