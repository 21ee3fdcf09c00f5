"""Which objects on the hub a placement selects, what it warns of, and what it refuses."""

from typing import Any

import pytest

from fleetui.apimachinery.errors import ManifestWarning
from fleetui.apimachinery.secrets import HubObject
from fleetui.apimachinery.yaml import load_documents
from placements.engine.resource_manifest import parse_hub_object
from placements.engine.selection import (
    Selection,
    content_hash,
    is_ever_placed,
    parts,
    select,
)
from placements.manifests.placement import (
    ResourceSelector,
    SelectionScope,
    parse_placement,
)
from tests.documents import OURS, errors_in, placement
from tests.hub_objects import hub_object, manifest

SELECTORS = "spec.resourceSelectors"
WITH_SELECTORS = "NamespaceWithResourceSelectors"
CLUSTER_ROLE = {"group": "rbac.authorization.k8s.io", "kind": "ClusterRole"}
DEPLOYMENT = {"group": "apps", "kind": "Deployment"}
WIDGET = {"group": "example.com", "kind": "Widget"}
CONFIG = {"kind": "ConfigMap"}


def selecting(*selectors: dict[str, Any]) -> tuple[ResourceSelector, ...]:
    """Parse selectors; what they leave out is that of a namespace."""
    usual = {"group": "", "version": "v1", "kind": "Namespace"}
    document = placement(
        resourceSelectors=[{**usual, **selector} for selector in selectors]
    )
    return parse_placement(document).spec.resource_selectors


def labelled(**labels: str) -> dict[str, Any]:
    return {"labelSelector": {"matchLabels": labels}}


def names(selection: Selection) -> list[str]:
    return [str(each).partition(" ")[2] for each in selection.objects]


def warnings(selection: Selection) -> list[tuple[str, str, str]]:
    return [
        (warning.path, warning.code, warning.message) for warning in selection.warnings
    ]


def taken(objects: list[HubObject], *selectors: dict[str, Any]) -> list[str]:
    """Name what the selectors match, without a warning."""
    selection = select(selecting(*selectors), objects)
    assert selection.warnings == ()
    return names(selection)


SHOP = [
    hub_object("Namespace", "shop", labels={"team": "web"}),
    hub_object("Deployment", "web", "shop", labels={"app": "web"}),
    hub_object("Deployment", "load", "shop", labels={"app": "load", "tier": "1"}),
    hub_object("ConfigMap", "index", "shop"),
    hub_object("Widget", "w", "shop"),
]
BANK = [
    hub_object("Namespace", "bank", labels={"team": "money"}),
    hub_object("Deployment", "web", "bank", labels={"app": "web"}),
]
ROLES = [
    hub_object("ClusterRole", "reader", labels={"team": "web"}),
    hub_object("ClusterRole", "writer"),
]
HUB = [*SHOP, *BANK, *ROLES]
IN_SHOP = [
    "Namespace shop",
    "ConfigMap shop/index",
    "Deployment shop/load",
    "Deployment shop/web",
    "Widget shop/w",
]


def test_a_namespace_brings_everything_inside_along() -> None:
    assert taken(HUB, {"name": "shop"}) == IN_SHOP


def test_a_namespace_may_come_alone() -> None:
    assert taken(HUB, {"name": "shop", "selectionScope": "NamespaceOnly"}) == [
        "Namespace shop"
    ]


def test_selectors_add_up() -> None:
    found = taken(HUB, {"name": "bank"}, {**CLUSTER_ROLE, "name": "writer"})

    assert found == ["Namespace bank", "ClusterRole writer", "Deployment bank/web"]


def test_all_of_a_kind() -> None:
    assert taken(HUB, CLUSTER_ROLE) == ["ClusterRole reader", "ClusterRole writer"]


@pytest.mark.parametrize(
    ("selector", "expected"),
    [
        (labelled(team="web"), IN_SHOP),
        (labelled(team="web", tier="1"), []),
        ({**CLUSTER_ROLE, **labelled(team="web")}, ["ClusterRole reader"]),
        (
            {**CLUSTER_ROLE, "labelSelector": {}},
            ["ClusterRole reader", "ClusterRole writer"],
        ),
    ],
)
def test_by_labels(selector: dict[str, Any], expected: list[str]) -> None:
    assert taken(HUB, selector) == expected


@pytest.mark.parametrize(
    ("operator", "values", "expected"),
    [
        ("In", ["web", "money"], ["reader"]),
        ("NotIn", ["web"], ["writer"]),
        ("NotIn", ["money"], ["reader", "writer"]),
        ("Exists", [], ["reader"]),
        ("DoesNotExist", [], ["writer"]),
    ],
)
def test_by_label_expressions(
    operator: str, values: list[str], expected: list[str]
) -> None:
    requirement = {"key": "team", "operator": operator, "values": values}

    found = taken(
        HUB, {**CLUSTER_ROLE, "labelSelector": {"matchExpressions": [requirement]}}
    )

    assert found == [f"ClusterRole {name}" for name in expected]


def test_labels_and_expressions_must_both_hold() -> None:
    both = {
        "matchLabels": {"team": "web"},
        "matchExpressions": [{"key": "team", "operator": "DoesNotExist"}],
    }

    assert taken(HUB, {**CLUSTER_ROLE, "labelSelector": both}) == []


def test_scenario_2_an_object_leaves_with_its_label() -> None:
    relabelled = hub_object("ClusterRole", "reader", labels={"team": "money"})
    selector = {**CLUSTER_ROLE, **labelled(team="web")}

    assert taken([relabelled], selector) == []
    assert taken(ROLES, selector) == ["ClusterRole reader"]


def test_scenario_3_what_comes_into_a_namespace_comes_along() -> None:
    secret = hub_object("Secret", "new", "shop")
    before, after = (
        select(selecting({"name": "shop"}), hub) for hub in (HUB, [*HUB, secret])
    )

    assert set(after.objects) - set(before.objects) == {secret}
    assert content_hash(before.objects) != content_hash(after.objects)


@pytest.mark.parametrize("scope", SelectionScope)
@pytest.mark.parametrize("hub", [[], [hub_object("Namespace", "fleet-system")]])
def test_scenario_4_a_namespace_of_the_hub_is_refused(
    scope: SelectionScope, hub: list[HubObject]
) -> None:
    by_hand = ResourceSelector.model_construct(
        group="",
        version="v1",
        kind="Namespace",
        name="fleet-system",
        selection_scope=scope,
    )

    assert errors_in(select, (by_hand,), hub) == [
        (f"{SELECTORS}[0].name", "reserved-namespace")
    ]


def test_scenario_5_a_namespace_selected_twice_is_refused() -> None:
    with pytest.raises(ValueError, match="selected by") as raised:
        select(selecting({"name": "shop"}, {"name": "shop"}), HUB)

    assert str(raised.value) == (
        "spec.resourceSelectors[1]: Duplicate value: v1 Namespace shop and 4 more, "
        "also selected by spec.resourceSelectors[0] (allowed: each object selected once)"
    )
    assert taken(HUB, {"name": "shop"}) == IN_SHOP


def test_the_object_named_for_an_overlap_does_not_depend_on_the_order_of_objects() -> (
    None
):
    with pytest.raises(ValueError, match="ClusterRole reader and 1 more"):
        select(selecting(CLUSTER_ROLE, CLUSTER_ROLE), reversed(ROLES))


def test_each_pair_of_selectors_that_overlap_is_named() -> None:
    overlapping = selecting(
        {**CLUSTER_ROLE, "name": "reader"},
        {**CLUSTER_ROLE, "name": "writer"},
        CLUSTER_ROLE,
    )

    assert errors_in(select, overlapping, HUB) == [(f"{SELECTORS}[2]", "duplicate")] * 2


def test_scenario_6_a_missing_namespace_is_nothing_with_a_warning() -> None:
    selection = select(selecting({"name": "gone"}), HUB)

    assert selection == Selection(
        (),
        (
            ManifestWarning(
                "not-on-the-hub",
                f"{SELECTORS}[0].name",
                'Namespace "gone" is not on the hub',
            ),
        ),
    )
    assert [part.objects for part in parts(selection.objects)] == [()]


def test_scenario_6_a_second_selector_makes_other_content() -> None:
    first = select(selecting({"name": "gone"}), HUB)
    second = select(selecting({"name": "gone"}, {"name": "bank"}), HUB)

    assert names(second) == ["Namespace bank", "Deployment bank/web"]
    assert content_hash(first.objects) != content_hash(second.objects)


def test_scenario_7_large_selections_are_stored_in_parts() -> None:
    secrets = [
        hub_object("Secret", f"s{index}", "shop", data={"a": "x" * 600_000})
        for index in range(2)
    ]

    selection = select(selecting({"name": "shop"}), [*SHOP, *secrets])

    assert [len(part.objects) for part in parts(selection.objects)] == [2, 5]


OWN = {"name": "shop", "selectionScope": WITH_SELECTORS}


@pytest.mark.parametrize(
    ("others", "expected"),
    [
        ([], ["Namespace shop"]),
        (
            [DEPLOYMENT],
            ["Namespace shop", "Deployment shop/load", "Deployment shop/web"],
        ),
        ([{**DEPLOYMENT, "name": "web"}], ["Namespace shop", "Deployment shop/web"]),
        (
            [{**DEPLOYMENT, **labelled(tier="1")}],
            ["Namespace shop", "Deployment shop/load"],
        ),
        ([WIDGET, CONFIG], ["Namespace shop", "ConfigMap shop/index", "Widget shop/w"]),
        (
            [{**CLUSTER_ROLE, "name": "reader"}, CONFIG],
            ["Namespace shop", "ConfigMap shop/index", "ClusterRole reader"],
        ),
    ],
)
def test_scenario_9_a_namespace_with_selectors_of_its_own(
    others: list[dict[str, Any]], expected: list[str]
) -> None:
    assert taken(HUB, *others, OWN) == expected


def test_scenario_9_a_missing_cluster_role_is_left_out_with_a_warning() -> None:
    selection = select(selecting(OWN, {**CLUSTER_ROLE, "name": "gone"}), HUB)

    assert names(selection) == ["Namespace shop"]
    assert warnings(selection) == [
        (
            f"{SELECTORS}[1].name",
            "not-on-the-hub",
            'ClusterRole "gone" is not on the hub',
        )
    ]


@pytest.mark.parametrize(
    "hub",
    [BANK, [hub_object("Namespace", "shop", deletionTimestamp="2026-08-20T12:00:00Z")]],
)
def test_scenario_9_a_missing_namespace_with_selectors_is_refused(
    hub: list[HubObject],
) -> None:
    assert errors_in(select, selecting(DEPLOYMENT, OWN), hub) == [
        (f"{SELECTORS}[1].name", "not-on-the-hub")
    ]


def test_namespaces_of_the_hub_that_match_are_left_out_with_one_warning() -> None:
    reserved = [
        hub_object("Namespace", name)
        for name in ("kube-system", "default", "fleet-system")
    ]

    selection = select(
        selecting({}), [*BANK, *reserved, hub_object("ConfigMap", "a", "kube-system")]
    )

    assert names(selection) == ["Namespace bank", "Deployment bank/web"]
    message = "skips reserved namespaces: default, fleet-system, kube-system"
    assert warnings(selection) == [(f"{SELECTORS}[0]", "reserved-namespace", message)]


def test_a_custom_kind_is_refused_once_the_hub_shows_that_it_lives_in_namespaces() -> (
    None
):
    assert taken([hub_object("Widget", "w")], WIDGET) == ["Widget w"]
    assert errors_in(select, selecting(WIDGET), SHOP) == [
        (f"{SELECTORS}[0].kind", "namespaced-kind")
    ]


def test_a_built_in_kind_of_namespaces_is_refused_on_an_empty_hub_too() -> None:
    _, alone = selecting(OWN, DEPLOYMENT)

    assert errors_in(select, (alone,), []) == [
        (f"{SELECTORS}[0].kind", "namespaced-kind")
    ]


@pytest.mark.parametrize(
    ("group", "kinds"),
    [
        ("", "Pod Node Event"),
        ("events.k8s.io", "Event"),
        ("coordination.k8s.io", "Lease"),
        ("metrics.k8s.io", "PodMetrics NodeMetrics"),
        ("cluster.kubernetes-fleet.io", "MemberCluster InternalMemberCluster"),
        ("placement.kubernetes-fleet.io", "ClusterResourcePlacement Work"),
        (
            "networking.fleet.azure.com",
            "ServiceImport TrafficManagerProfile TrafficManagerBackend",
        ),
    ],
)
def test_these_kinds_are_never_placed(group: str, kinds: str) -> None:
    assert [kind for kind in kinds.split() if is_ever_placed(group, kind)] == []


@pytest.mark.parametrize(
    ("group", "kind"),
    [
        ("", "Secret"),
        ("apps", "ReplicaSet"),
        ("networking.fleet.azure.com", "ServiceExport"),
    ],
)
def test_other_kinds_may_be_placed(group: str, kind: str) -> None:
    assert is_ever_placed(group, kind)


def test_a_kind_that_is_never_placed_selects_nothing_and_says_so() -> None:
    selection = select(selecting({"kind": "Node"}), [hub_object("Node", "n")])

    assert names(selection) == []
    assert warnings(selection) == [
        (
            f"{SELECTORS}[0].kind",
            "never-placed",
            "selects nothing: objects of kind Node are never placed",
        )
    ]


def test_kinds_that_are_never_placed_stay_behind_when_their_namespace_goes() -> None:
    events = [
        hub_object("Event", "e", "bank"),
        hub_object("Lease", "l", "bank"),
        hub_object("Event", "f", "bank"),
    ]

    selection = select(selecting({"name": "bank"}), [*BANK, *events])

    assert names(selection) == ["Namespace bank", "Deployment bank/web"]
    message = "skips kinds that are never placed: Event, Lease"
    assert warnings(selection) == [(f"{SELECTORS}[0]", "never-placed", message)]


OWNED: dict[str, Any] = {"ownerReferences": [{"kind": "StatefulSet", "name": "db"}]}
LEFT_OUT = {
    "it is being deleted": hub_object(
        "Secret", "a", "bank", deletionTimestamp="2026-08-20T12:00:00Z"
    ),
    "its owner creates it": hub_object("ControllerRevision", "a", "bank", **OWNED),
    "every cluster creates its own": hub_object(
        "ConfigMap", "kube-root-ca.crt", "bank"
    ),
    "its service creates it": hub_object("Endpoints", "web", "bank"),
    "its manager creates it": hub_object(
        "EndpointSlice",
        "a",
        "bank",
        labels={"endpointslice.kubernetes.io/managed-by": "x"},
    ),
    "it is a service account token of the hub": hub_object(
        "Secret", "b", "bank", type="kubernetes.io/service-account-token"
    ),
}
SERVICE = hub_object("Service", "web", "bank")
ALONE = {"name": "bank", "selectionScope": WITH_SELECTORS}


@pytest.mark.parametrize(("reason", "each"), LEFT_OUT.items(), ids=LEFT_OUT.keys())
def test_what_clusters_or_controllers_make_is_left_out(
    reason: str, each: HubObject
) -> None:
    sort = {"group": each.group, "kind": each.kind}
    hub = [*BANK, SERVICE, each]

    named = select(selecting(ALONE, {**sort, "name": each.name}), hub)

    assert taken(hub, {"name": "bank"}) == [
        "Namespace bank",
        "Service bank/web",
        "Deployment bank/web",
    ]
    assert taken(hub, ALONE, sort) == ["Namespace bank"]
    assert names(named) == ["Namespace bank"]
    assert warnings(named) == [
        (f"{SELECTORS}[1].name", "never-placed", f"skips {each}: {reason}")
    ]


@pytest.mark.parametrize(
    "each",
    [
        hub_object("ControllerRevision", "a", "bank"),
        hub_object("ConfigMap", "other", "bank"),
        hub_object("Endpoints", "other", "bank"),
        hub_object("EndpointSlice", "a", "bank"),
        hub_object("Secret", "a", "bank", type="Opaque"),
        hub_object("ServiceAccount", "runner", "bank"),
        hub_object("ConfigMap", "owned", "bank", **OWNED),
    ],
    ids=str,
)
def test_what_a_user_wrote_goes_along(each: HubObject) -> None:
    assert each in select(selecting({"name": "bank"}), [*BANK, SERVICE, each]).objects


def test_the_service_account_of_every_namespace_is_left_out() -> None:
    hub = [*BANK, hub_object("ServiceAccount", "default", "bank")]

    assert taken(hub, {"name": "bank"}) == ["Namespace bank", "Deployment bank/web"]


def test_a_replica_set_goes_along_only_without_an_owner() -> None:
    owned = HubObject.of(manifest("ReplicaSet", "owned", "bank", **OWNED))
    alone = HubObject.of(manifest("ReplicaSet", "alone", "bank"))

    found = taken([*BANK, owned, alone], {"name": "bank"})

    assert found == ["Namespace bank", "ReplicaSet bank/alone", "Deployment bank/web"]


def test_objects_in_another_version_are_left_out_with_a_warning() -> None:
    old = hub_object("ClusterRole", "old", version="rbac.authorization.k8s.io/v1beta1")

    selection = select(selecting(CLUSTER_ROLE), [*ROLES, old])

    assert names(selection) == ["ClusterRole reader", "ClusterRole writer"]
    version = "rbac.authorization.k8s.io/v1beta1"
    message = (
        f"skips 1 matching objects of kind ClusterRole: on the hub in version {version}"
    )
    assert warnings(selection) == [
        (f"{SELECTORS}[0].version", "other-version", message)
    ]


def test_all_faults_come_at_once() -> None:
    selectors = (*selecting(WIDGET, {"name": "shop"}, labelled(team="web")),)

    assert errors_in(select, selectors, HUB) == [
        (f"{SELECTORS}[0].kind", "namespaced-kind"),
        (f"{SELECTORS}[2]", "duplicate"),
    ]


def test_the_nginx_example_of_kubefleet_goes_as_a_whole() -> None:
    *resources, _, crp = load_documents((OURS / "nginx.yaml").read_bytes())
    hub = [parse_hub_object(document.data) for document in resources]

    selection = select(parse_placement(crp.data).spec.resource_selectors, [*HUB, *hub])

    assert names(selection) == [
        "Namespace test-afd",
        "ConfigMap test-afd/index",
        "Service test-afd/internal-app",
        "Deployment test-afd/test-nginx",
    ]
    assert selection.warnings == ()


def test_the_custom_resource_definition_of_the_other_examples_is_found() -> None:
    name = "testresources.test.kubernetes-fleet.io"
    selector = {
        "group": "apiextensions.k8s.io",
        "kind": "CustomResourceDefinition",
        "name": name,
    }

    assert taken([*HUB, hub_object("CustomResourceDefinition", name)], selector) == [
        f"CustomResourceDefinition {name}"
    ]
