"""Overrides on manifests: which apply, what they change, what fails one cluster only.

See `rules/lifecycle.md#overrides`.
"""

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clusters.fleet import Cluster
from fleetui.apimachinery.secrets import HubObject
from placements.engine.overrides import (
    Overridden,
    OverrideContent,
    OverrideFailed,
    applicable,
    cluster_version,
    override,
)
from placements.engine.resource_manifest import parse_hub_object
from placements.manifests.override import parse_cluster_override, parse_override
from placements.manifests.strategy import ApplyStrategy
from tests.builders import cluster

Document = dict[str, Any]
ALPHA = "placement.kubernetes-fleet.io/v1"
CANARY = cluster("bravelion", env="canary", region="west")
PROD = cluster("smartfish", env="prod")
EVERYWHERE: Document = {}


def manifest(kind: str, name: str, namespace: str = "", **fields: Any) -> HubObject:
    place = {"namespace": namespace} if namespace else {}
    version = "apps/v1" if kind == "Deployment" else "v1"
    metadata = {"name": name, **place, "annotations": {"by": "us"}}
    return parse_hub_object(
        {"apiVersion": version, "kind": kind, "metadata": metadata, **fields}
    )


SHOP = manifest("Namespace", "shop")
SETTINGS = manifest("ConfigMap", "settings", "shop", data={"a": "b"})
WEB = manifest("Deployment", "web", "shop", spec={"replicas": 2, "args": ["x"]})
OBJECTS = (SHOP, SETTINGS, WEB)


def patch(op: str, path: str, *value: Any) -> Document:
    return {"op": op, "path": path, **({"value": value[0]} if value else {})}


def rule(*patches: Document, on: Document | None = EVERYWHERE) -> Document:
    """Write a rule; without patches it deletes."""
    kind = (
        {"jsonPatchOverrides": list(patches)} if patches else {"overrideType": "Delete"}
    )
    return kind if on is None else {**kind, "clusterSelector": on}


def labelled(**labels: str) -> Document:
    return {"clusterSelectorTerms": [{"labelSelector": {"matchLabels": labels}}]}


def cro(
    *rules: Document,
    name: str = "cro-0",
    kind: str = "Namespace",
    of: str = "shop",
    **spec: Any,
) -> OverrideContent:
    document = {
        "apiVersion": ALPHA,
        "kind": "ClusterResourceOverride",
        "metadata": {"name": "cro"},
        "spec": {
            "clusterResourceSelectors": [
                {"group": "", "version": "v1", "kind": kind, "name": of}
            ],
            "policy": {"overrideRules": list(rules)},
            **spec,
        },
    }
    return OverrideContent(name, parse_cluster_override(document))


def ro(
    *rules: Document,
    name: str = "ro-0",
    namespace: str = "shop",
    of: HubObject = WEB,
    **spec: Any,
) -> OverrideContent:
    selector = {
        "group": of.group,
        "version": of.version,
        "kind": of.kind,
        "name": of.name,
    }
    document = {
        "apiVersion": ALPHA,
        "kind": "ResourceOverride",
        "metadata": {"name": "ro", "namespace": namespace},
        "spec": {
            "resourceSelectors": [selector],
            "policy": {"overrideRules": list(rules)},
            **spec,
        },
    }
    return OverrideContent(name, parse_override(document))


def annotated(value: Any) -> Document:
    return rule(patch("add", "/metadata/annotations/who", value))


def names(*snapshots: OverrideContent, on: Cluster = CANARY) -> list[str]:
    return [
        content.name
        for content in applicable(
            snapshots, placement="web", cluster=on, objects=OBJECTS
        )
    ]


def made(*snapshots: OverrideContent, on: Cluster = CANARY) -> Overridden:
    found = override(
        OBJECTS, applicable(snapshots, placement="web", cluster=on, objects=OBJECTS), on
    )
    assert isinstance(found, Overridden)
    return found


def failed(*snapshots: OverrideContent, on: Cluster = CANARY) -> OverrideFailed:
    found = override(
        OBJECTS, applicable(snapshots, placement="web", cluster=on, objects=OBJECTS), on
    )
    assert isinstance(found, OverrideFailed)
    return found


def who(found: Overridden) -> list[Any]:
    return [
        hub_object.metadata["annotations"].get("who") for hub_object in found.objects
    ]


def test_s33_a_cluster_override_of_a_namespace_changes_everything_in_it_where_it_matches() -> (
    None
):
    canary = cro(
        rule(
            patch("add", "/metadata/annotations/who", "canary"),
            on=labelled(env="canary"),
        )
    )

    assert who(made(canary)) == ["canary"] * 3
    assert names(canary, on=PROD) == []


def test_s34_a_patch_that_does_not_fit_fails_that_cluster_with_its_place() -> None:
    wrong = ro(rule(patch("add", "/spec/a/b", 1), on=labelled(env="canary")))

    found = failed(wrong)

    assert (found.snapshot, found.path) == (
        "shop/ro-0",
        "spec.policy.overrideRules[0].jsonPatchOverrides[0]",
    )
    assert found.resource == "apps/v1 Deployment shop/web"
    assert who(made(wrong, on=PROD)) == [None] * 3


def test_s34_a_patch_that_leaves_no_manifest_fails_that_cluster() -> None:
    found = failed(ro(rule(patch("add", "/metadata/labels", {"a": 1}))))

    assert found.message.startswith("metadata.labels.a:")


def test_s35_a_rule_that_deletes_leaves_the_object_out_there_only() -> None:
    delete = ro(rule(on=labelled(env="canary")))

    assert made(delete).left_out == (WEB,)
    assert made(delete).objects == (SHOP, SETTINGS)
    assert made(delete, on=PROD).objects == OBJECTS


def test_s35_an_override_of_another_placement_is_ignored() -> None:
    other, ours = (
        cro(annotated("x"), placement={"name": "other"}),
        cro(annotated("x"), placement={"name": "web"}),
    )

    assert names(other) == []
    assert names(ours) == ["cro-0"]


def test_s36_the_override_of_the_namespace_wins() -> None:
    found = made(ro(annotated("ro")), cro(annotated("cro")))

    assert who(found) == ["cro", "cro", "ro"]


def test_s36_variables_are_the_name_and_the_labels_of_the_cluster() -> None:
    value = {
        "${MEMBER-CLUSTER-NAME}": ["in ${MEMBER-CLUSTER-LABEL-KEY-region}, ${OTHER}"]
    }
    found = made(ro(rule(patch("replace", "/spec/args", value))))

    assert found.objects[2].content["spec"]["args"] == {
        "bravelion": ["in west, ${OTHER}"]
    }


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("${MEMBER-CLUSTER-LABEL-KEY-region}", "the cluster has no label region"),
        (
            "${MEMBER-CLUSTER-LABEL-KEY-env",
            "${MEMBER-CLUSTER-LABEL-KEY-… has no closing brace",
        ),
    ],
)
def test_s36_a_variable_that_cannot_be_replaced_fails_that_cluster(
    value: str, message: str
) -> None:
    assert failed(cro(annotated(value)), on=PROD).message == message


def test_s36_an_override_of_placements_in_namespaces_is_not_for_ours() -> None:
    assert (
        names(ro(annotated("x"), placement={"name": "web", "scope": "Namespaced"}))
        == []
    )


def test_only_what_selects_something_that_is_placed_applies() -> None:
    elsewhere = [cro(annotated("x"), of="other"), ro(annotated("x"), namespace="other")]

    assert names(*elsewhere) == []


def test_a_rule_without_a_cluster_selector_is_about_no_cluster() -> None:
    nowhere = {**annotated("x"), "clusterSelector": None}

    assert names(cro(nowhere)) == []


def test_cluster_overrides_come_first_and_each_sort_goes_by_name() -> None:
    several = [
        ro(annotated("x"), name="a-0"),
        cro(annotated("x"), name="z-1"),
        cro(annotated("x"), name="b-10"),
    ]

    assert names(*several) == ["b-10", "z-1", "a-0"]


def test_rules_are_followed_in_their_order_until_one_deletes() -> None:
    assert made(
        ro(annotated("x"), rule(), rule(patch("remove", "/spec/none")))
    ).left_out == (WEB,)


@pytest.mark.parametrize(
    "wrong",
    [
        patch("remove", "/spec/none"),
        patch("replace", "/spec/none", 1),
        patch("add", "/spec/args/7", 1),
        patch("add", "/spec/args/x", 1),
        patch("add", "/spec/args/0x", 1),
        patch("remove", "/spec/args/-"),
        patch("add", "/spec/replicas/a", 1),
        patch("replace", "/metadata/annotations/by/0", "x"),
        patch("remove", "/metadata/annotations/by/0"),
    ],
)
def test_whatever_does_not_fit_is_an_answer(wrong: Document) -> None:
    assert failed(ro(rule(wrong))).message


ANYTHING = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-9, 9)
    | st.sampled_from(["x", "${MEMBER-CLUSTER-NAME}", "${M"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from("abc"), inner, max_size=3)
    ),
    max_leaves=6,
)
PATHS = st.sampled_from(
    [
        "/spec",
        "/spec/args",
        "/spec/args/-",
        "/spec/args/0",
        "/spec/a",
        "/spec/a/b",
        "/metadata/labels",
        "/x",
    ]
)
PATCHES = st.builds(
    patch,
    st.sampled_from(["add", "replace"]),
    PATHS,
    ANYTHING.filter(lambda it: it is not None),
) | (st.builds(patch, st.just("remove"), PATHS))


@given(st.lists(PATCHES, min_size=1, max_size=6))
def test_overriding_is_repeatable_and_leaves_its_inputs_alone(
    patches: list[Document],
) -> None:
    snapshots = [cro(rule(*patches)), ro(rule(*patches))]
    before = copy.deepcopy([hub_object.content for hub_object in OBJECTS])
    manifests = [snapshot.override.to_manifest() for snapshot in snapshots]
    plain = copy.deepcopy(manifests)

    first, second = (override(OBJECTS, snapshots, CANARY) for _ in range(2))

    assert first == second
    if isinstance(first, Overridden) and isinstance(second, Overridden):
        assert [hub_object.content for hub_object in first.objects] == [
            hub_object.content for hub_object in second.objects
        ]
    assert [hub_object.content for hub_object in OBJECTS] == before
    assert [snapshot.override.to_manifest() for snapshot in snapshots] == plain


def test_a_version_depends_on_the_resources_and_the_overrides() -> None:
    usual = ApplyStrategy()
    versions = [
        cluster_version("r0", (), usual),
        cluster_version("r1", (), usual),
        cluster_version("r0", (cro(annotated("x")),), usual),
        cluster_version("r0", (cro(annotated("y")),), usual),
        cluster_version("r0", (cro(annotated("x"), name="cro-1"),), usual),
    ]

    assert len(set(versions)) == len(versions)
    assert versions[0] == cluster_version("r0", [], ApplyStrategy())


@pytest.mark.parametrize(
    "fields",
    [
        {"type": "ServerSideApply", "serverSideApplyConfig": {"force": True}},
        {"type": "ReportDiff"},
        {"comparisonOption": "FullComparison"},
        {"whenToApply": "IfNotDrifted"},
        {"whenToTakeOver": "Never"},
        {"allowCoOwnership": True},
    ],
    ids=lambda fields: next(iter(fields.values())),
)
def test_apply_strategy_that_no_driver_acts_on_leaves_the_version(
    fields: dict[str, Any],
) -> None:
    strategy = ApplyStrategy.model_validate(fields, context={"semantics": "fleet"})

    assert cluster_version("r0", (), strategy) == cluster_version(
        "r0", (), ApplyStrategy()
    )


@pytest.mark.parametrize(
    "path", ["/stringData/password/a", "/data/users/ana", "/nothing/here"]
)
def test_a_patch_that_does_not_fit_never_shows_what_a_secret_holds(path: str) -> None:
    secret = manifest("Secret", "api-key", "shop", data={"password": "aHVzaA=="})
    shop = cro(rule(patch("replace", path, "x")))

    failed = override((secret,), (shop,), CANARY)

    assert isinstance(failed, OverrideFailed)
    assert "not found" in failed.message
    assert "aHVzaA" not in failed.message
