"""Every rule on a resource that is applied to the hub."""

from typing import Any

import pytest

from fleetui.apimachinery.errors import InvalidManifest
from fleetui.apimachinery.kinds import KindScope, scope_of
from fleetui.apimachinery.secrets import HubObject
from placements.engine.resource_manifest import LARGEST_OBJECT, parse_hub_object
from tests.documents import Document, changed, errors_in
from tests.hub_objects import hub_object, manifest

DEPLOYMENT = manifest(
    "Deployment",
    "web",
    "shop",
    labels={"app": "web"},
    spec={"replicas": 2, "odd": [None]},
)
RBAC = "rbac.authorization.k8s.io/v1"
CERTIFICATES = "certificates.k8s.io/v1"
ENVELOPE = "placement.kubernetes-fleet.io/v1beta1"


def envelope(data: Document) -> Document:
    """Write an envelope in the namespace shop."""
    return manifest("ResourceEnvelope", "a", "shop", version=ENVELOPE, data=data)


def without(document: Document, *keys: str) -> Document:
    return changed(document, *keys, to=None)


def sized(size: int) -> Document:
    """Write an object that takes so many bytes."""
    document = manifest(
        "Widget", "big", "shop", version="example.com/v1", data={"a": ""}
    )
    empty = parse_hub_object(document).size
    return changed(document, "data", "a", to="x" * (size - empty))


def test_keeps_the_document_as_written() -> None:
    found = parse_hub_object(DEPLOYMENT)

    assert found == HubObject(
        "apps", "v1", "Deployment", "shop", "web", {"app": "web"}, DEPLOYMENT
    )
    assert found.key == ("apps", "Deployment", "shop", "web")
    assert found.size == len(
        '{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"labels":{"app":"web"},"name":"web",'
        '"namespace":"shop"},"spec":{"odd":[null],"replicas":2}}'
    )


@pytest.mark.parametrize(
    ("document", "readable"),
    [
        (DEPLOYMENT, "apps/v1 Deployment shop/web"),
        (manifest("Namespace", "shop"), "v1 Namespace shop"),
        (manifest("Widget", "w", "shop"), "example.com/v1 Widget shop/w"),
    ],
)
def test_is_readable(document: Document, readable: str) -> None:
    assert str(parse_hub_object(document)) == readable


def test_objects_can_be_members_of_sets() -> None:
    assert (
        len(
            {
                hub_object("Namespace", "shop"),
                hub_object("Namespace", "shop", labels={"a": "b"}),
            }
        )
        == 2
    )


ACCEPTED: dict[str, Document] = {
    "null for absent": without(
        manifest("Namespace", "shop", labels={}), "metadata", "labels"
    ),
    "an empty namespace of a cluster-scoped kind": changed(
        manifest("Namespace", "shop"), "metadata", "namespace", to=""
    ),
    "a cluster role with a colon": manifest("ClusterRole", "system:Node"),
    "an API service of the core group": manifest(
        "APIService", "v1.", version="apiregistration.k8s.io/v1"
    ),
    "a role with a colon": manifest("Role", "system:x", "shop"),
    "bindings with a colon": manifest("RoleBinding", "system:x", "shop", version=RBAC),
    "a cluster role binding with a colon": manifest("ClusterRoleBinding", "system:x"),
    "a signing request with a capital": manifest(
        "CertificateSigningRequest", "Me", version=CERTIFICATES
    ),
    "a trust bundle with a colon": manifest(
        "ClusterTrustBundle", "a:b", version=CERTIFICATES
    ),
    "an address with colons": manifest(
        "IPAddress", "2001:db8::1", version="networking.k8s.io/v1"
    ),
    "an unknown kind outside namespaces": manifest("Widget", "w"),
    "an unknown kind inside a namespace": manifest("Widget", "w", "shop"),
    "an envelope with a pod, which does not run on the hub": envelope(
        {"a.yaml": DEPLOYMENT, "b": manifest("Pod", "web", "shop")}
    ),
    "a pod of the hub itself": manifest("Pod", "proxy", "kube-system"),
    "a made-up name that a hub has filled in": changed(
        manifest("Widget", "w-1"), "metadata", "generateName", to="w-"
    ),
    "what a hub adds": changed(
        manifest("Widget", "w"), "metadata", "managedFields", to=[{}]
    ),
    "as large as it may be": sized(LARGEST_OBJECT),
}


@pytest.mark.parametrize("document", ACCEPTED.values(), ids=ACCEPTED.keys())
def test_takes(document: Document) -> None:
    assert parse_hub_object(document).content == document


REFUSED: dict[str, tuple[Any, list[tuple[str, str]]]] = {
    "nothing": (None, [("", "wrong-type")]),
    "a list": ([manifest("Namespace", "shop")], [("", "wrong-type")]),
    "an empty object": (
        {},
        [("apiVersion", "required"), ("kind", "required"), ("metadata", "required")],
    ),
    "not plain data": ({**DEPLOYMENT, "spec": {"a": {1}}}, [("spec.a", "wrong-type")]),
    "half a character": (
        {**DEPLOYMENT, "spec": {"a": "\ud800"}},
        [("spec.a", "bad-format")],
    ),
    "no API version": (without(DEPLOYMENT, "apiVersion"), [("apiVersion", "required")]),
    "an empty group": (
        {**DEPLOYMENT, "apiVersion": "/v1"},
        [("apiVersion", "bad-format")],
    ),
    "two slashes": (
        {**DEPLOYMENT, "apiVersion": "a/b/v1"},
        [("apiVersion", "bad-format")],
    ),
    "a bad version": (
        {**DEPLOYMENT, "apiVersion": "apps/1"},
        [("apiVersion", "bad-format")],
    ),
    "a bad kind": ({**DEPLOYMENT, "kind": "De ployment"}, [("kind", "bad-format")]),
    "a list of objects": (
        {"apiVersion": "v1", "kind": "List", "metadata": {"name": "a"}, "items": []},
        [("kind", "kind-not-supported")],
    ),
    "no name": (
        without(DEPLOYMENT, "metadata", "name"),
        [("metadata.name", "required")],
    ),
    "an empty name": (
        changed(DEPLOYMENT, "metadata", "name", to=""),
        [("metadata.name", "required")],
    ),
    "a name with a capital": (
        changed(DEPLOYMENT, "metadata", "name", to="Web"),
        [("metadata.name", "bad-format")],
    ),
    "a name too long": (
        changed(DEPLOYMENT, "metadata", "name", to="a" * 254),
        [("metadata.name", "too-long")],
    ),
    "a made-up name": (
        {**DEPLOYMENT, "metadata": {"generateName": "web-", "namespace": "shop"}},
        [("metadata.generateName", "not-supported"), ("metadata.name", "required")],
    ),
    "a namespace with a dot": (
        manifest("Namespace", "a.b"),
        [("metadata.name", "bad-format")],
    ),
    "a namespace too long": (
        manifest("Namespace", "a" * 64),
        [("metadata.name", "too-long")],
    ),
    "a service with a digit first": (
        manifest("Service", "1a", "shop"),
        [("metadata.name", "bad-format")],
    ),
    "a service with a dot": (
        manifest("Service", "a.b", "shop"),
        [("metadata.name", "bad-format")],
    ),
    "a cluster role with a slash": (
        manifest("ClusterRole", "a/b"),
        [("metadata.name", "bad-format")],
    ),
    "an unknown kind with a capital": (
        manifest("Widget", "W"),
        [("metadata.name", "bad-format")],
    ),
    "a namespaced kind without a namespace": (
        manifest("Deployment", "web"),
        [("metadata.namespace", "required")],
    ),
    "a namespaced kind with an empty one": (
        changed(DEPLOYMENT, "metadata", "namespace", to=""),
        [("metadata.namespace", "required")],
    ),
    "a cluster-scoped kind in a namespace": (
        manifest("ClusterRole", "a", "shop"),
        [("metadata.namespace", "misplaced")],
    ),
    "a bad namespace": (
        manifest("Widget", "w", "a.b"),
        [("metadata.namespace", "bad-format")],
    ),
    "a number as a namespace": (
        changed(DEPLOYMENT, "metadata", "namespace", to=1),
        [("metadata.namespace", "wrong-type")],
    ),
    "a bad label": (
        changed(DEPLOYMENT, "metadata", "labels", to={"a": "b c"}),
        [("metadata.labels.a", "bad-format")],
    ),
    "a number in an annotation": (
        changed(DEPLOYMENT, "metadata", "annotations", to={"a": 1}),
        [("metadata.annotations.a", "wrong-type")],
    ),
    "unknown metadata": (
        changed(DEPLOYMENT, "metadata", "label", to={}),
        [("metadata.label", "unknown-field")],
    ),
    "a pod": (manifest("Pod", "web", "shop"), [("kind", "kind-not-supported")]),
    "a replica set": (
        manifest("ReplicaSet", "web", "default-not"),
        [("kind", "kind-not-supported")],
    ),
    "a placement": (
        manifest(
            "ClusterResourcePlacement", "A", version="placement.kubernetes-fleet.io/v1"
        ),
        [("kind", "kind-not-supported")],
    ),
    "an envelope of nothing": (envelope({}), [("data", "too-few")]),
    "an envelope without data": (
        manifest("ResourceEnvelope", "a", "shop", version=ENVELOPE),
        [("data", "required")],
    ),
    "an envelope with too much": (
        envelope({f"{count}": DEPLOYMENT for count in range(51)}),
        [("data", "too-many")],
    ),
    "an envelope of another version": (
        {
            **envelope({"a": DEPLOYMENT}),
            "apiVersion": "placement.kubernetes-fleet.io/v1",
        },
        [("apiVersion", "api-version-not-supported")],
    ),
    "an envelope with a text": (
        envelope({"a.yaml": "kind: Pod"}),
        [('data["a.yaml"]', "wrong-type")],
    ),
    "an envelope with what is elsewhere": (
        envelope({"a": changed(DEPLOYMENT, "metadata", "namespace", to="bank")}),
        [("data.a.metadata.namespace", "conflict")],
    ),
    "an envelope with what is in no namespace": (
        envelope({"a": manifest("ClusterRole", "a")}),
        [("data.a.metadata.namespace", "conflict")],
    ),
    "an envelope for clusters with what is in a namespace": (
        manifest("ClusterResourceEnvelope", "a", version=ENVELOPE)
        | {"data": {"a": DEPLOYMENT}},
        [("data.a.metadata.namespace", "misplaced")],
    ),
    "an envelope in an envelope": (
        envelope({"a": envelope({"a": DEPLOYMENT})}),
        [("data.a.kind", "kind-not-supported")],
    ),
    "an envelope with a placement": (
        envelope({"a": manifest("ResourcePlacement", "a", "shop", version=ENVELOPE)}),
        [("data.a.kind", "kind-not-supported")],
    ),
    "an envelope with two wrong objects": (
        envelope(
            {
                "a": changed(DEPLOYMENT, "metadata", "name", to="A"),
                "b": {"apiVersion": "v1"},
            }
        ),
        [
            ("data.a.metadata.name", "bad-format"),
            ("data.b.kind", "required"),
            ("data.b.metadata", "required"),
        ],
    ),
    "an unknown kind of Fleet": (
        manifest("Thing", "a", version="cluster.kubernetes-fleet.io/v2"),
        [("kind", "kind-not-supported")],
    ),
    "a byte too much": (sized(LARGEST_OBJECT + 1), [("", "too-large")]),
    "all at once": (
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": "A", "labels": {"a": 1}, "x": 1},
        },
        [
            ("kind", "kind-not-supported"),
            ("metadata.name", "bad-format"),
            ("metadata.labels.a", "wrong-type"),
            ("metadata.x", "unknown-field"),
            ("metadata.namespace", "required"),
        ],
    ),
}


@pytest.mark.parametrize(("document", "errors"), REFUSED.values(), ids=REFUSED.keys())
def test_refuses(document: Any, errors: list[tuple[str, str]]) -> None:
    assert errors_in(parse_hub_object, document) == errors


@pytest.mark.parametrize(
    ("size", "is_refused"), [(1024 * 1024, False), (1024 * 1024 + 1, True)]
)
def test_the_values_of_a_config_map_have_a_mebibyte_at_most(
    size: int, is_refused: bool
) -> None:
    document = manifest("ConfigMap", "large", "shop") | {
        "data": {"a": "x" * (size - 3), "b": "yyy"}
    }

    if not is_refused:
        assert parse_hub_object(document).name == "large"
        return
    with pytest.raises(InvalidManifest) as caught:
        parse_hub_object(document)
    (error,) = caught.value.errors
    assert (error.path, error.code, error.allowed) == (
        "data",
        "too-large",
        "at most 1 MiB (1048576 bytes) in one object",
    )


def test_says_how_large_an_object_is_beside_its_other_faults() -> None:
    document = changed(sized(2 * 1024 * 1024), "metadata", "name", to="Big")

    with pytest.raises(InvalidManifest) as raised:
        parse_hub_object(document)

    assert [str(error) for error in raised.value.errors] == [
        "Too large: 2.00 MiB as compact JSON (2097152 bytes) (allowed: at most 1.5 MiB (1572864 bytes))",
        'metadata.name: Invalid value: "Big": must be a DNS name (allowed: at most 253 lower-case letters, '
        'digits, "-" and ".", starting and ending with a letter or digit)',
    ]


@pytest.mark.parametrize(
    ("document", "sentence"),
    [
        (
            manifest("Deployment", "web"),
            "metadata.namespace: Required value: Deployment is namespaced, and no namespace is assumed "
            "(allowed: the name of a namespace)",
        ),
        (
            manifest("Namespace", "web", "shop"),
            "metadata.namespace: Forbidden: not allowed on this kind, which is cluster-scoped",
        ),
        (
            manifest("MemberCluster", "web", version="cluster.kubernetes-fleet.io/v1"),
            "kind: Unsupported kind MemberCluster: a member cluster is not a resource that can be placed "
            "(allowed: resources)",
        ),
        (
            manifest(
                "ResourceOverride",
                "o",
                "shop",
                version="placement.kubernetes-fleet.io/v1beta1",
            ),
            "kind: Unsupported kind ResourceOverride: an override is not a resource that can be placed "
            "(allowed: resources)",
        ),
    ],
)
def test_says_what_is_wrong_and_what_is_allowed(
    document: Document, sentence: str
) -> None:
    with pytest.raises(InvalidManifest) as raised:
        parse_hub_object(document)

    assert str(raised.value) == sentence


@pytest.mark.parametrize(
    "kind",
    [
        "rbac.authorization.k8s.io/ClusterRole",
        "rbac.authorization.k8s.io/ClusterRoleBinding",
        "apiextensions.k8s.io/CustomResourceDefinition",
        "storage.k8s.io/StorageClass",
        "storage.k8s.io/CSIDriver",
        "storage.k8s.io/CSINode",
        "storage.k8s.io/VolumeAttachment",
        "scheduling.k8s.io/PriorityClass",
        "networking.k8s.io/IngressClass",
        "apiregistration.k8s.io/APIService",
        "admissionregistration.k8s.io/MutatingWebhookConfiguration",
        "admissionregistration.k8s.io/ValidatingWebhookConfiguration",
        "node.k8s.io/RuntimeClass",
        "certificates.k8s.io/CertificateSigningRequest",
        "/Namespace",
        "/Node",
        "/PersistentVolume",
    ],
)
def test_knows_what_lives_outside_namespaces(kind: str) -> None:
    group, _, name = kind.partition("/")

    assert scope_of(group, name) is KindScope.CLUSTER


def test_a_role_and_a_cluster_role_differ_in_scope() -> None:
    scopes = [
        scope_of("rbac.authorization.k8s.io", kind)
        for kind in ("Role", "ClusterRole", "Rule")
    ]

    assert scopes == [KindScope.NAMESPACED, KindScope.CLUSTER, None]
