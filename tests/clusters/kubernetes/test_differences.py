"""Cleaning, differences and managed field sets (`rules/kubernetes-driver.md#comparison`)."""

from typing import Any

import pytest

from clusters.drivers.base import FieldDiff
from clusters.drivers.kubernetes.targets import (
    LONGEST_VALUE,
    MOST_DIFFERENCES,
    clean,
    find_differences,
    generation_of,
    managed_fields_digest,
)
from fleetui.apimachinery.yaml import load_documents

AS_STORED = """
apiVersion: v1
kind: ConfigMap
metadata:
  creationTimestamp: "2026-11-20T12:00:00Z"
  deletionGracePeriodSeconds: 30
  deletionTimestamp: "2026-11-21T12:00:00Z"
  finalizers: [example.com/wait]
  generateName: settings-
  generation: 3
  managedFields: [{manager: kubectl, operation: Apply, fieldsV1: {"f:data": {}}}]
  name: settings-x7k2p
  namespace: shop
  ownerReferences: [{apiVersion: v1, kind: ConfigMap, name: parent, uid: e1a5}]
  resourceVersion: "4711"
  selfLink: /api/v1/namespaces/shop/configmaps/settings-x7k2p
  uid: 9c0f
data: {a: "1"}
status: {phase: Active}
"""
"""An object with all metadata that an API server or a controller writes."""


def test_what_servers_write_is_cleaned_away() -> None:
    ours = {
        "applyset.kubernetes.io/part-of": "1",
        "fleetui.io/owner": "1",
        "app.k8s.io/x": "1",
    }
    [document] = load_documents(AS_STORED)
    live = document.data
    live["metadata"] |= {"labels": {**ours, "app": "web"}, "annotations": ours}

    assert clean(live) == {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"labels": {"app": "web"}},
        "data": {"a": "1"},
    }
    assert live["status"] == {"phase": "Active"}


@pytest.mark.parametrize(
    "metadata", [{}, {"labels": None}, {"annotations": {}, "name": "a"}]
)
def test_empty_metadata_is_no_metadata(metadata: dict[str, Any]) -> None:
    assert clean({"kind": "A", "metadata": metadata}) == {"kind": "A"}


@pytest.mark.parametrize(
    "path", [("spec", "template"), ("spec", "jobTemplate", "spec", "template")]
)
def test_the_timestamp_of_a_pod_template_is_cleaned_away(path: tuple[str, ...]) -> None:
    def at(template: dict[str, Any]) -> dict[str, Any]:
        for key in reversed(path):
            template = {key: template}
        return template

    live = at(
        {"metadata": {"creationTimestamp": None, "labels": {"a": "1"}}, "spec": {}}
    )

    assert clean(live) == at({"metadata": {"labels": {"a": "1"}}, "spec": {}})
    assert clean(at({"metadata": {"creationTimestamp": None}, "spec": {}})) == at(
        {"spec": {}}
    )
    assert live == at(
        {"metadata": {"creationTimestamp": None, "labels": {"a": "1"}}, "spec": {}}
    )


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("member", "hub", "expected"),
    [
        ({}, {}, []),
        ({"a": 1}, {"a": 1.0}, []),
        ({"a": 1}, {"a": 2}, [("/a", "1", "2")]),
        ({"a": True}, {"a": 1}, [("/a", "true", "1")]),
        ({"a": None}, {}, [("/a", "null", "")]),
        ({}, {"a": {"b": [1]}}, [("/a", "", '{"b":[1]}')]),
        ({"a": {"b": 1, "c": 2}}, {"a": {"b": 1}}, [("/a/c", "2", "")]),
        ({"a": [1, 2]}, {"a": [1]}, [("/a", "[1,2]", "[1]")]),
        (
            {"a": [{"b": 1}, {"b": 2}]},
            {"a": [{"b": 1}, {"b": 3}]},
            [("/a/1/b", "2", "3")],
        ),
        ({"a/b": {"~": 1}}, {"a/b": {"~": 2}}, [("/a~1b/~0", "1", "2")]),
        ({"a": {"b": 1}}, {"a": [1]}, [("/a", '{"b":1}', "[1]")]),
        ({"a": "ü"}, {"a": "u"}, [("/a", '"ü"', '"u"')]),
    ],
)
def test_differences_have_paths_and_values(
    member: dict[str, Any], hub: dict[str, Any], expected: list[tuple[str, str, str]]
) -> None:
    assert list(find_differences(member, hub).fields) == [
        FieldDiff(*one) for one in expected
    ]


def test_differences_are_limited_in_number_and_length() -> None:
    many = find_differences(
        {}, {str(number): "x" * 5_000 for number in range(MOST_DIFFERENCES + 1)}
    )

    assert (len(many.fields), many.is_truncated) == (MOST_DIFFERENCES, True)
    assert {len(field.in_hub) for field in many.fields} == {LONGEST_VALUE}
    assert not find_differences({}, {"a": 1}).is_truncated


REDACTED = "(redacted for security reasons)"


@pytest.mark.parametrize(
    ("member", "hub", "expected"),
    [
        ({"data": {"a": "x"}}, {"data": {"a": "y"}}, ("/data/a", REDACTED, REDACTED)),
        ({}, {"stringData": {"a": "y"}}, ("/stringData", "", REDACTED)),
        ({"type": "a"}, {"type": "b"}, ("/type", '"a"', '"b"')),
        ({"Data": {"a": "x"}}, {"Data": {"a": "y"}}, ("/Data/a", REDACTED, REDACTED)),
    ],
)
def test_values_of_a_secret_are_redacted(
    member: dict[str, Any], hub: dict[str, Any], expected: tuple[str, str, str]
) -> None:
    secret = {"apiVersion": "v1", "kind": "Secret"}
    other = {"apiVersion": "example.com/v1", "kind": "Secret"}

    assert find_differences({**secret, **member}, {**secret, **hub}).fields == (
        FieldDiff(*expected),
    )
    assert find_differences({**other, **member}, {**other, **hub}).fields == (
        FieldDiff(*expected),
    )


def managed(*entries: dict[str, Any]) -> dict[str, Any]:
    return {"metadata": {"managedFields": list(entries)}}


OURS = {
    "manager": "fleetui",
    "operation": "Apply",
    "apiVersion": "v1",
    "fieldsV1": {"f:data": {"f:a": {}}},
}


def test_the_field_digest_covers_our_applies_and_nothing_else() -> None:
    digest = managed_fields_digest(managed(OURS))
    others = (
        {**OURS, "manager": "kubectl"},
        {**OURS, "operation": "Update"},
        {**OURS, "subresource": "status"},
    )

    assert len(digest) == 16
    assert (
        managed_fields_digest(
            managed(*others, {**OURS, "time": "2026-01-01T00:00:00Z"})
        )
        == digest
    )
    assert (
        managed_fields_digest(managed({**OURS, "fieldsV1": {"f:data": {"f:b": {}}}}))
        != digest
    )
    assert managed_fields_digest(managed(*others)) == ""
    assert managed_fields_digest({"metadata": {"managedFields": None}}) == ""
    second = {**OURS, "apiVersion": "v2", "fieldsV1": {"f:x": {}}}
    assert managed_fields_digest(managed(OURS, second)) == managed_fields_digest(
        managed(second, OURS)
    )


@pytest.mark.parametrize(
    ("metadata", "expected"),
    [
        ({"generation": 3, "resourceVersion": "77"}, "3"),
        ({"resourceVersion": "77"}, "77"),
        ({"generation": 0, "resourceVersion": "77"}, "77"),
        ({}, ""),
    ],
)
def test_kinds_without_a_generation_have_their_resource_version(
    metadata: dict[str, Any], expected: str
) -> None:
    assert generation_of({"metadata": metadata}) == expected
