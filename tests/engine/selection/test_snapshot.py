"""What is stored of a selection: in which order, without what, in which parts, under which hash."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleetui.apimachinery.secrets import HubObject, sanitise, sanitised
from placements.engine.selection import (
    PART_LIMIT,
    SnapshotPart,
    content_hash,
    ordered,
    parts,
)
from tests.documents import Document
from tests.hub_objects import hub_object, manifest

Raw = dict[str, Any]


def names(objects: tuple[HubObject, ...]) -> list[str]:
    return [str(each) for each in objects]


def secret(name: str, size: int) -> HubObject:
    """Return a secret that takes about so many bytes."""
    return hub_object("Secret", name, "shop", data={"a": "x" * size})


def test_scenario_8_mixed_kinds_stand_in_the_order_of_the_ranking() -> None:
    mixed = [
        hub_object("Widget", "w", "shop"),
        hub_object("Ingress", "in", "shop"),
        hub_object("Deployment", "web", "shop"),
        hub_object("Service", "web", "shop"),
        hub_object("ConfigMap", "c", "shop"),
        hub_object("Secret", "s", "shop"),
        hub_object("Role", "r", "shop"),
        hub_object("ClusterRole", "cr"),
        hub_object("CustomResourceDefinition", "widgets.example.com"),
        hub_object("Namespace", "shop"),
    ]

    kinds = [each.kind for each in ordered(mixed)]

    assert kinds == [
        "Namespace",
        "Secret",
        "ConfigMap",
        "CustomResourceDefinition",
        "ClusterRole",
        "Role",
        "Service",
        "Deployment",
        "Ingress",
        "Widget",
    ]


def test_ties_go_by_version_then_by_namespace_and_name_as_one_text() -> None:
    objects = [
        hub_object("Service", "x", "a"),
        hub_object("Service", "x", "a-b"),
        hub_object("Service", "web", "z", version="serving.knative.dev/v1"),
        hub_object("Gadget", "b", version="b.example.com/v1"),
        hub_object("Widget", "a", version="a.example.com/v1"),
        hub_object("Gadget", "c", version="a.example.com/v1"),
    ]

    assert names(ordered(objects)) == [
        "serving.knative.dev/v1 Service z/web",
        "v1 Service a-b/x",
        "v1 Service a/x",
        "a.example.com/v1 Gadget c",
        "a.example.com/v1 Widget a",
        "b.example.com/v1 Gadget b",
    ]


METADATA: Raw = {
    "name": "web",
    "namespace": "shop",
    "labels": {"a": "b"},
    "finalizers": ["example.com/keep"],
}
FROM_A_HUB: Raw = {
    "creationTimestamp": "2026-08-20T12:00:00Z",
    "deletionGracePeriodSeconds": 0,
    "deletionTimestamp": "2026-08-20T12:00:00Z",
    "generation": 3,
    "managedFields": [{}],
    "ownerReferences": [{}],
    "resourceVersion": "7",
    "selfLink": "/x",
    "uid": "u",
}
DEPLOYMENT = manifest("Deployment", "web", "shop", spec={"replicas": 1})
KUBECTL: Raw = {
    "kubectl.kubernetes.io/last-applied-configuration": "{}",
    "deployment.kubernetes.io/revision": "4",
}


def service(**spec: Any) -> Document:
    return manifest("Service", "web", "shop", spec=spec)


def job(**spec: Any) -> Document:
    return manifest("Job", "load", "shop", spec=spec)


def controlled(**labels: str) -> Raw:
    """Write the spec of a job whose pods have these labels."""
    return {
        "selector": {"matchLabels": dict(labels)},
        "template": {"metadata": {"labels": dict(labels)}},
    }


UIDS = {"controller-uid": "u", "batch.kubernetes.io/controller-uid": "u"}

SANITISED: dict[str, tuple[Document, Document]] = {
    "what a hub writes": (
        {
            **DEPLOYMENT,
            "metadata": {**METADATA, **FROM_A_HUB},
            "status": {"replicas": 1},
        },
        {**DEPLOYMENT, "metadata": METADATA},
    ),
    "annotations of tools": (
        manifest("Widget", "w", annotations={**KUBECTL, "team": "web"}),
        manifest("Widget", "w", annotations={"team": "web"}),
    ),
    "the only annotations": (
        manifest("Widget", "w", annotations=dict(KUBECTL)),
        manifest("Widget", "w"),
    ),
    "a status further in": (manifest("Widget", "w", spec={"status": 1}),) * 2,
    "a service": (
        service(
            clusterIP="10.0.0.1",
            clusterIPs=["10.0.0.1"],
            healthCheckNodePort=31000,
            ports=[{"port": 80, "nodePort": 30080}],
        ),
        service(ports=[{"port": 80}]),
    ),
    "a headless service": (service(clusterIP="None", clusterIPs=["None"]),) * 2,
    "a headless service by its list alone": (service(clusterIPs=["None"]),) * 2,
    "a service of another group": (
        manifest(
            "Service",
            "web",
            "shop",
            version="serving.knative.dev/v1",
            spec={"clusterIP": "10.0.0.1"},
        ),
    )
    * 2,
    "a job": (
        job(**controlled(**UIDS, app="load")),
        job(**controlled(app="load")),
    ),
    "a job with the time of its template": (
        job(template={"metadata": {"creationTimestamp": None}}),
        job(template={"metadata": {}}),
    ),
    "a job with a selector of its own": (
        job(manualSelector=True, **controlled(**UIDS)),
    )
    * 2,
    "a job without a spec": (manifest("Job", "load", "shop", spec=None),) * 2,
    "odd shapes": (manifest("Service", "web", "shop", spec={"ports": [1, None]}),) * 2,
}


@pytest.mark.parametrize(("before", "after"), SANITISED.values(), ids=SANITISED.keys())
def test_takes_away_what_the_hub_manages_and_no_more(
    before: Document, after: Document
) -> None:
    copy = sanitise(before)

    assert copy == after


def test_sanitising_leaves_the_document_alone() -> None:
    before = service(clusterIP="10.0.0.1", ports=[{"port": 80, "nodePort": 30080}])
    each = hub_object("Service", "web", "shop", spec=before["spec"])

    sanitised(each)

    assert each.content == before


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3) | st.just("None"),
    lambda inner: (
        st.lists(inner, max_size=2)
        | st.dictionaries(
            st.sampled_from(
                [
                    *(
                        "metadata",
                        "annotations",
                        "labels",
                        "spec",
                        "status",
                        "ports",
                        "nodePort",
                        "clusterIP",
                    ),
                    *(
                        "clusterIPs",
                        "selector",
                        "matchLabels",
                        "template",
                        "uid",
                        *UIDS,
                        *KUBECTL,
                    ),
                ]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=15,
)


@given(st.sampled_from(["Service", "Job", "Widget"]), JSON, JSON, JSON)
def test_sanitising_twice_is_sanitising_once(
    kind: str, spec: Any, labels: Any, annotations: Any
) -> None:
    document = manifest(
        kind, "a", "shop", spec=spec, labels=labels, annotations=annotations
    )

    once = sanitise(document)

    assert sanitise(once) == once


def test_scenario_7_a_megabyte_of_secrets_makes_two_parts() -> None:
    secrets = [secret(f"s{index}", 100 * 1024) for index in range(11)]

    found = parts(secrets)

    assert [(part.index, len(part.objects)) for part in found] == [(0, 7), (1, 4)]


def test_a_large_object_gets_a_part_of_its_own() -> None:
    small, large = secret("a", 10), secret("b", PART_LIMIT)

    assert parts([small, large, small]) == (
        SnapshotPart(0, (small,)),
        SnapshotPart(1, (large,)),
        SnapshotPart(2, (small,)),
    )


def test_a_part_may_be_filled_to_the_last_byte() -> None:
    pair = [secret("a", 10), secret("b", 10)]
    size = sum(each.size for each in pair)

    assert [len(parts(pair, limit=limit)) for limit in (size, size - 1)] == [1, 2]


def test_nothing_is_one_empty_part() -> None:
    assert parts([]) == (SnapshotPart(0, ()),)


@given(st.lists(st.integers(0, 120), max_size=30), st.integers(100, 400))
def test_parts_hold_all_objects_in_order_and_no_more_than_the_limit(
    sizes: list[int], limit: int
) -> None:
    objects = tuple(secret(f"s{index}", size) for index, size in enumerate(sizes))

    found = parts(objects, limit=limit)

    assert tuple(each for part in found for each in part.objects) == objects
    assert [part.index for part in found] == list(range(len(found)))
    assert all(part.size <= limit or len(part.objects) == 1 for part in found)
    assert len(found) == 1 or all(part.objects for part in found)


def test_the_hash_is_that_of_the_canonical_list() -> None:
    assert (
        content_hash([])
        == "4f53cda18c2baa0c0354bb5f9a3ecbe5ed12ab4d8e11ba873c2f11161202b945"
    )


@pytest.mark.parametrize(
    ("other", "is_same"),
    [
        ([manifest("Widget", "a", spec={"y": 1, "x": 2})], True),
        ([manifest("Widget", "a", spec={"x": 2, "y": 2})], False),
        ([manifest("Widget", "a", spec={"x": "2", "y": 1})], False),
        ([manifest("Widget", "a", spec={"x": 2, "y": 1})] * 2, False),
    ],
)
def test_the_hash_goes_by_content_alone(other: list[Document], is_same: bool) -> None:
    plain = content_hash([hub_object("Widget", "a", spec={"x": 2, "y": 1})])

    assert (
        content_hash(HubObject.of(document) for document in other) == plain
    ) is is_same
