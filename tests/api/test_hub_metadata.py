"""What a hub sets in metadata: shown in documents that are read, not stored, and checked in a PUT."""

import json
import re
from io import StringIO
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from rest_framework.test import APIClient

from clusters.models import MemberCluster
from fleetui.apimachinery.yaml import Document, load_documents
from placements.models import Placement, Resource
from placements.services.apply import apply_documents
from tests.commands import call_command
from tests.rows import (
    NOW,
    config_map,
    decided,
    member_document,
    namespace,
    pick_n_spec,
    placement_document,
)
from tests.services.rollouts.test_evictions import budget

pytestmark = pytest.mark.django_db

OVERRIDE = {
    "apiVersion": "placement.kubernetes-fleet.io/v1beta1",
    "kind": "ClusterResourceOverride",
    "metadata": {"name": "replicas"},
    "spec": {
        "clusterResourceSelectors": [
            {"group": "", "version": "v1", "kind": "Namespace", "name": "shop"}
        ],
        "policy": {
            "overrideRules": [
                {
                    "jsonPatchOverrides": [
                        {"op": "add", "path": "/metadata/labels", "value": {"a": "b"}}
                    ]
                }
            ]
        },
    },
}
STRATEGY = {
    "apiVersion": "placement.kubernetes-fleet.io/v1beta1",
    "kind": "ClusterStagedUpdateStrategy",
    "metadata": {"name": "careful"},
    "spec": {"stages": [{"name": "all", "labelSelector": {}}]},
}


@pytest.fixture
def documents() -> list[dict[str, Any]]:
    """Apply one document of each kind."""
    each = [
        namespace("shop"),
        config_map("settings"),
        member_document("a", {"region": "east"}),
        placement_document("web", pick_n_spec(1)),
        OVERRIDE,
        budget(maxUnavailable=1),
        STRATEGY,
    ]
    apply_documents([Document(document, 1) for document in each], by=None, now=NOW)
    return each


def exported(*kinds: str) -> list[dict[str, Any]]:
    found = []
    for kind in kinds:
        out = StringIO()
        call_command("export", kind, stdout=out)
        found += [document.data for document in load_documents(out.getvalue())]
    return found


KINDS = ("resources", "clusters", "overrides", "placements", "budgets", "strategies")


@pytest.mark.nightly
@pytest.mark.usefixtures("documents")
def test_documents_that_are_read_have_the_metadata_of_their_object() -> None:
    before = exported(*KINDS)

    for document in before:
        metadata = document["metadata"]
        assert metadata["generation"] == 1, document
        assert metadata["resourceVersion"].startswith("1")
        assert metadata["creationTimestamp"] == f"{NOW:%Y-%m-%dT%H:%M:%SZ}"
    assert len({document["metadata"]["uid"] for document in before}) == len(before) == 7
    assert [document["metadata"]["uid"] for document in exported(*KINDS)] == [
        document["metadata"]["uid"] for document in before
    ]


@pytest.mark.usefixtures("documents")
def test_what_was_exported_is_unchanged_and_only_read() -> None:
    before = [Document(document, 1) for document in exported(*KINDS)]

    with CaptureQueriesContext(connection) as queries:
        results = apply_documents(before, by=None, now=NOW)

    assert {result.did for result in results} == {"unchanged"}
    statements = [query["sql"] for query in queries.captured_queries]
    assert [
        statement
        for statement in statements
        if not re.match(r"(DECLARE .* CURSOR FOR )?SELECT ", statement)
    ] == []
    assert [statement for statement in statements if "FOR UPDATE" in statement] == []
    for row in (MemberCluster.objects.get(), Placement.objects.get()):
        assert row.revision == 1
        assert set(row.document["metadata"]).isdisjoint(
            {"uid", "resourceVersion", "generation"}
        )
    assert "uid" not in Resource.objects.get(name="settings").content["metadata"]


def test_an_old_version_is_a_conflict_of_a_put_and_ignored_by_apply(
    api: APIClient,
) -> None:
    decided("web", pick_n_spec(1))
    address = "/api/v1/placements/web"
    read = json.loads(api.get(address).content)
    read["spec"]["revisionHistoryLimit"] = 5

    def put(document: dict[str, Any]) -> Any:
        return api.put(address, json.dumps(document), content_type="application/json")

    assert put(read).status_code == 200
    refused = put({**read, "spec": {**read["spec"], "revisionHistoryLimit": 6}})
    assert refused.status_code == 409
    problem = json.loads(refused.content)
    assert problem["type"].endswith("stale-edit")
    assert [(fault["path"], fault["code"]) for fault in problem["faults"]] == [
        ("metadata.resourceVersion", "conflict")
    ]
    assert problem["revision"] == 2
    read["metadata"]["resourceVersion"] = "x"
    malformed = json.loads(put(read).content)
    assert [fault["path"] for fault in malformed["faults"]] == [
        "metadata.resourceVersion"
    ]

    read["metadata"]["resourceVersion"] = "1-abc"
    read["spec"]["revisionHistoryLimit"] = 7
    [applied] = apply_documents([Document(read, 1)], by=None, now=NOW)
    assert applied.did == "changed"
    assert [warning for warning in applied.warnings if "metadata" in warning.path] == []


def test_the_version_is_the_entity_tag(api: APIClient) -> None:
    decided("web", pick_n_spec(1))

    answer = api.get("/api/v1/placements/web")

    version = json.loads(answer.content)["metadata"]["resourceVersion"]
    assert answer.headers["ETag"] == f'"{version}"'
