"""The manifest that prepares a cluster (`rules/kubernetes-driver.md#preparation`)."""

from typing import Any

import pytest

from clusters.preparation import DEFAULT_KINDS, Preparation, preparation_documents
from fleetui.apimachinery.errors import InvalidManifest


def rules_of(name: str, **chosen: Any) -> list[dict[str, Any]]:
    documents = preparation_documents(Preparation(**chosen))
    return next(
        document["rules"]
        for document in documents
        if document["metadata"]["name"] == name and "rules" in document
    )


def verbs_by_kind(**chosen: Any) -> dict[tuple[str, str], set[str]]:
    found: dict[tuple[str, str], set[str]] = {}
    for rule in rules_of("fleetui-placer", **chosen):
        for resource in rule["resources"]:
            found.setdefault((rule["apiGroups"][0], resource), set()).update(
                rule["verbs"]
            )
    return found


EVERY_CHOICE = {
    "cluster_roles": True,
    "definitions": True,
    "groups": ("example.com",),
    "recover": True,
}


def test_the_account_and_its_inventory() -> None:
    documents = preparation_documents(Preparation())

    assert [
        (document["kind"], document["metadata"]["name"]) for document in documents
    ] == [
        ("Namespace", "fleetui-system"),
        ("ServiceAccount", "fleetui"),
        ("Role", "fleetui"),
        ("RoleBinding", "fleetui"),
        ("ClusterRole", "fleetui-observer"),
        ("ClusterRoleBinding", "fleetui-observer"),
        ("ClusterRole", "fleetui-placer"),
        ("ClusterRoleBinding", "fleetui-placer"),
    ]
    assert documents[2]["rules"] == [
        {
            "apiGroups": [""],
            "resources": ["configmaps"],
            "verbs": ["get", "list", "create", "patch", "delete"],
        },
        {
            "apiGroups": [""],
            "resources": ["serviceaccounts/token"],
            "verbs": ["create"],
            "resourceNames": ["fleetui"],
        },
    ]


def test_pods_are_optional() -> None:
    nodes, pods = (
        {"apiGroups": [""], "resources": [one], "verbs": ["list"]}
        for one in ("nodes", "pods")
    )

    assert rules_of("fleetui-observer") == [nodes, pods]
    assert rules_of("fleetui-observer", pods=False) == [nodes]


def test_the_default_kinds() -> None:
    wanted = {(group, kind) for group, kinds in DEFAULT_KINDS.items() for kind in kinds}

    assert verbs_by_kind() == {
        key: {"get", "create", "patch", "delete"} for key in wanted
    }


def test_each_choice_adds_its_kinds() -> None:
    added = (
        verbs_by_kind(**{**EVERY_CHOICE, "recover": False}).keys()
        - verbs_by_kind().keys()
    )

    rbac = "rbac.authorization.k8s.io"
    assert added == {
        (rbac, "clusterroles"),
        (rbac, "clusterrolebindings"),
        ("apiextensions.k8s.io", "customresourcedefinitions"),
        ("example.com", "*"),
    }


@pytest.mark.parametrize("everything", [False, True])
def test_what_is_never_granted(everything: bool) -> None:
    verbs = verbs_by_kind(**EVERY_CHOICE, everything=everything)

    granted = set().union(*verbs.values())
    assert not granted & {"impersonate", "watch", "update", "*", "deletecollection"}
    assert "list" not in verbs.get(("", "secrets"), set()) | verbs.get(
        ("*", "*"), set()
    ) | verbs.get(("", "*"), set())
    assert "list" in verbs[("", "configmaps")]


def test_everything_is_as_much_as_an_administrator() -> None:
    assert verbs_by_kind(everything=True) == {
        ("*", "*"): {"get", "create", "patch", "delete", "bind", "escalate"}
    }


@pytest.mark.parametrize("group", ["", "*", "No", "a b", "-x"])
def test_a_bad_group_has_its_path(group: str) -> None:
    with pytest.raises(InvalidManifest) as error:
        preparation_documents(Preparation(groups=("example.com", group)))
    assert [
        (field_error.path, field_error.code) for field_error in error.value.errors
    ] == [("groups[1]", "bad-format")]
