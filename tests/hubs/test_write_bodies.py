"""What the body of an edit has: never more than the console owns or the draft changes (13.3)."""

from copy import deepcopy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleetui.apimachinery.yaml import load_documents
from placements.hubs.kinds.kubefleet import STREAMS
from placements.hubs.write_requests import (
    ABSENT,
    OFFERED,
    ForbiddenBodyError,
    NotOfferedError,
    StaleBaseError,
    Verb,
    WriteRequest,
    check_body,
    edit_body,
    find_changes,
    leaf_paths,
    owned_paths,
    set_at,
    value_at,
    without_paths,
)
from tests.hubs.fake_writes import leaves, managed
from tests.hubs.hub_documents import placement
from tests.runtime.processes import ROOT

FORBIDDEN = (
    *(
        "managedFields",
        "creationTimestamp",
        "generation",
        "deletionTimestamp",
        "ownerReferences",
    ),
    *("finalizers", "deletionGracePeriodSeconds", "selfLink", "generateName"),
)


def live_placement(**options: Any) -> dict[str, Any]:
    """Return a placement as the hub has it: with defaults, status, and what only the hub writes."""
    content = placement("web", **options)
    content |= {
        "apiVersion": "placement.kubernetes-fleet.io/v1beta1",
        "kind": "ClusterResourcePlacement",
    }
    content["spec"]["resourceSelectors"][0]["selectionScope"] = "NamespaceWithResources"
    content["spec"] |= {
        "revisionHistoryLimit": 10,
        "statusReportingScope": "ClusterScopeOnly",
    }
    content["metadata"] |= {
        "uid": "u1",
        "resourceVersion": "7",
        "generation": 3,
        "creationTimestamp": "2026-01-01T00:00:00Z",
        "finalizers": ["kubernetes-fleet.io/crp-cleanup"],
        "ownerReferences": [{"name": "x"}],
        "labels": {"team": "shop"},
    }
    content["status"] = {
        "conditions": [{"type": "ClusterResourcePlacementScheduled", "status": "True"}]
    }
    return content


def test_an_edit_sends_the_changed_field_alone_with_its_preconditions() -> None:
    live = live_placement()
    draft = deepcopy(live)
    draft["spec"]["policy"]["numberOfClusters"] = 5

    body = edit_body(live, live, draft, manager="fleetui")

    assert body.content["metadata"] == {
        "name": "web",
        "uid": "u1",
        "resourceVersion": "7",
    }
    assert body.content["spec"] == {"policy": {"numberOfClusters": 5}}
    assert body.foreign == ()


def test_what_a_draft_leaves_to_defaults_is_no_change() -> None:
    live = live_placement()
    live["spec"]["strategy"] = {
        "type": "RollingUpdate",
        "rollingUpdate": {
            "maxUnavailable": "25%",
            "maxSurge": "25%",
            "unavailablePeriodSeconds": 60,
        },
    }

    assert not find_changes(
        live, {**placement("web"), "metadata": {"labels": {"team": "shop"}}}
    )


def test_a_list_is_sent_whole_with_the_entries_of_the_hub() -> None:
    live = live_placement()
    draft = deepcopy(live)
    del draft["spec"]["resourceSelectors"][0]["selectionScope"]
    other = {"group": "apps", "version": "v1", "kind": "Deployment", "name": "x"}
    draft["spec"]["resourceSelectors"].append(other)

    body = edit_body(live, live, draft, manager="fleetui")

    assert body.content["spec"]["resourceSelectors"] == [
        *live["spec"]["resourceSelectors"],
        other,
    ]


def test_a_field_of_another_manager_is_removed_by_a_second_write() -> None:
    live = live_placement()
    ours = {("metadata", "labels", "ours"): "x"}
    live["metadata"]["labels"]["ours"] = "x"
    live["metadata"]["managedFields"] = [
        managed("fleetui", "Apply", ours),
        managed("kubectl", "Update", {("metadata", "labels", "team"): "shop"}),
    ]
    draft = deepcopy(live)
    draft["metadata"]["labels"] = {}
    draft["spec"]["policy"]["numberOfClusters"] = 5

    body = edit_body(live, live, draft, manager="fleetui")

    assert body.foreign == (("metadata", "labels", "team"),)
    assert "labels" not in body.content["metadata"]


def test_a_place_that_both_changed_is_refused_and_another_one_is_not() -> None:
    base = live_placement()
    live = live_placement(clusters=3)
    live["spec"]["revisionHistoryLimit"] = 4
    draft = deepcopy(base)
    draft["spec"]["statusReportingScope"] = "NamespaceAccessible"

    body = edit_body(live, base, draft, manager="fleetui")
    assert body.content["spec"] == {"statusReportingScope": "NamespaceAccessible"}

    draft["spec"]["policy"]["numberOfClusters"] = 5
    with pytest.raises(StaleBaseError) as found:
        edit_body(live, base, draft, manager="fleetui")
    assert found.value.paths == ("spec.policy.numberOfClusters",)


KEYS = st.sampled_from(
    ["policy", "strategy", "a.b/c", "resourceSelectors", "tolerations", "x"]
)
VALUES = st.recursive(
    st.integers(0, 3) | st.sampled_from(["", "25%", "RollingUpdate"]) | st.booleans(),
    lambda inner: (
        st.lists(inner, max_size=2) | st.dictionaries(KEYS, inner, max_size=3)
    ),
    max_leaves=8,
)
SPECS = st.dictionaries(KEYS, VALUES, max_size=4)
LABELS = st.dictionaries(
    st.sampled_from(["a", "b", "example.com/c"]), st.sampled_from(["1", "2"])
)


def outside(**metadata: Any) -> dict[str, Any]:
    return {
        **dict.fromkeys(FORBIDDEN, "x"),
        "name": "web",
        "uid": "u1",
        "resourceVersion": "7",
        **metadata,
    }


@given(SPECS, SPECS, LABELS, LABELS, st.data())
def test_a_body_has_nothing_that_is_neither_owned_nor_changed(
    spec: dict[str, Any],
    wanted: dict[str, Any],
    labels: Any,
    other_labels: Any,
    data: st.DataObject,
) -> None:
    live: dict[str, Any] = {
        "apiVersion": "v1",
        "kind": "K",
        "spec": spec,
        "status": {"x": 1},
        "metadata": outside(labels=labels),
    }
    owned = {
        path
        for path in leaves(live)
        if path[0] != "status" and data.draw(st.booleans())
    }
    live["metadata"]["managedFields"] = [managed("fleetui", "Apply", owned)]
    draft = {
        "spec": wanted,
        "status": {"x": 2},
        "metadata": outside(labels=other_labels, uid="u2"),
    }

    body = edit_body(live, live, draft, manager="fleetui")

    check_body(body.content)
    assert not set(FORBIDDEN) & set(body.content["metadata"])
    assert set(body.content) <= {"apiVersion", "kind", "metadata", "spec"}
    assert (
        body.content["metadata"]["uid"],
        body.content["metadata"]["resourceVersion"],
    ) == ("u1", "7")
    ours = owned_paths(live, "fleetui")
    for path in leaf_paths(body.content):
        starts = [path[:end] for end in range(1, len(path) + 1)]
        is_changed = any(start in body.changes.values for start in starts)
        assert is_changed or any(start in ours for start in starts), path
        if is_changed:
            continue
        assert value_at(body.content, path) == value_at(live, path)


@given(SPECS, SPECS)
def test_the_changes_lead_from_the_base_to_the_draft_apart_from_defaults(
    spec: dict[str, Any], wanted: dict[str, Any]
) -> None:
    base, draft = {"spec": spec}, {"spec": wanted}
    changes = find_changes(base, draft)

    result = without_paths(base, changes.removed)
    for path, value in changes.values.items():
        set_at(result, path, value)

    assert not find_changes(result, draft).values
    assert not find_changes(base, base)
    for path in changes.removed:
        assert value_at(draft, path) in (ABSENT, None)


def granted(name: str) -> set[tuple[str, str]]:
    """Return the resources and verbs that a manifest grants besides reading."""
    documents = load_documents((ROOT / "docs" / "hubs" / f"{name}.yaml").read_text())
    rules = [
        rule
        for document in documents
        if document.data["kind"] == "ClusterRole"
        for rule in document.data["rules"]
    ]
    return {
        (resource, verb)
        for rule in rules
        if "kubernetes-fleet.io" in rule["apiGroups"][0]
        for resource in rule["resources"]
        for verb in rule["verbs"]
        if verb not in ("get", "list", "watch")
    }


def test_the_manifests_grant_what_is_offered_and_nothing_else() -> None:
    permission = {"apply": "patch", "approve": "patch"}
    needed = {
        (
            f"{plural}/status" if verb == "approve" else plural,
            permission.get(verb, verb),
        )
        for plural, verbs in OFFERED.items()
        for verb in verbs
    }
    approving = {one for one in needed if one[0].endswith("/status")}

    assert needed - approving <= granted("operator")
    assert approving == granted("approver")
    assert needed <= granted("impersonate")
    resources = {resource for resource, _ in granted("operator") | granted("approver")}
    assert resources == {resource for resource, _ in needed}
    assert granted("viewer") == set()


@pytest.mark.parametrize("key", FORBIDDEN)
def test_metadata_of_the_hub_is_never_sent(key: str) -> None:
    with pytest.raises(ForbiddenBodyError, match=key):
        check_body({"metadata": {"name": "x", key: "y"}})


def test_what_is_not_in_the_catalogue_makes_no_request() -> None:
    never = 0
    for kind in STREAMS:
        for verb in Verb:
            for part in ("", "status"):
                is_offered = (
                    not part and str(verb) in OFFERED.get(kind.plural, ())
                ) or (
                    kind.plural.endswith("approvalrequests")
                    and part
                    and verb is Verb.APPLY
                )
                try:
                    WriteRequest(
                        verb,
                        kind,
                        "v1beta1",
                        "x",
                        {},
                        "",
                        part,
                        uid="u",
                        resource_version="1",
                    )
                except NotOfferedError:
                    never += 1
                    assert not is_offered
                else:
                    assert is_offered, (kind.kind, verb, part)
    assert never > 100
    with pytest.raises(ForbiddenBodyError, match="status"):
        WriteRequest(
            Verb.CREATE,
            next(
                iter(
                    stream
                    for stream in STREAMS
                    if stream.plural == "clusterresourceplacements"
                )
            ),
            "v1beta1",
            "x",
            {"status": {}},
        )
