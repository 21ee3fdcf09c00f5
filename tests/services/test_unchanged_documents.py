"""Unchanged documents cause no write and hold no lock; truncated files and large files are reported."""

from pathlib import Path
from typing import Any

import pytest
from django.conf import settings
from django.core.management import CommandError
from django.db import connection
from django.test.utils import CaptureQueriesContext

from clusters.importing import read_members
from clusters.models import MemberCluster
from fleetui.apimachinery.errors import InvalidManifest
from fleetui.apimachinery.yaml import (
    LARGEST_UPLOAD,
    dump_yaml,
    items_of,
    load_documents,
)
from placements.services.simulate.request import (
    read_bindings,
    read_fleet,
    read_placement,
)
from tests.rows import config_map, member_document, namespace
from tests.services.test_apply_and_export import exported, run

pytestmark = pytest.mark.django_db
HEARTBEAT = "2026-01-01T10:{minute:02}:00Z"


def reported(name: str, *, minute: int = 0) -> dict[str, Any]:
    """Return a cluster as a hub exports it."""
    agent = {
        "type": "MemberAgent",
        "conditions": [
            {"type": "Joined", "status": "True"},
            {"type": "Healthy", "status": "True"},
        ],
        "lastReceivedHeartbeat": HEARTBEAT.format(minute=minute),
    }
    return {**member_document(name), "status": {"agentStatus": [agent]}}


def file_of(folder: Path, *documents: dict[str, Any]) -> str:
    path = folder / "file.yaml"
    path.write_text("---\n".join(map(dump_yaml, documents)))
    return str(path)


def results_of(*arguments: str) -> set[str]:
    return {line.rpartition(" ")[2] for line in run(*arguments)[0].splitlines()}


def statements_of(*arguments: str) -> list[str]:
    with CaptureQueriesContext(connection) as queries:
        assert results_of(*arguments) == {"unchanged"}
    return [query["sql"] for query in queries.captured_queries]


@pytest.mark.django_db(transaction=True)
def test_unchanged_documents_open_no_transaction(tmp_path: Path) -> None:
    clusters = [reported(f"c{number}") for number in range(20)]
    path = file_of(tmp_path, namespace("shop"), config_map("settings"), *clusters)
    run("apply", "-f", path)

    statements = statements_of("apply", "-f", path)

    assert [
        statement for statement in statements if not statement.startswith("SELECT")
    ] == []
    assert [statement for statement in statements if "FOR UPDATE" in statement] == []


@pytest.mark.django_db(transaction=True)
def test_importing_unchanged_clusters_opens_no_transaction(tmp_path: Path) -> None:
    path = file_of(tmp_path, *(reported(f"c{number}") for number in range(20)))
    run("import_clusters", path)

    with CaptureQueriesContext(connection) as queries:
        run("import_clusters", path)

    assert [
        query["sql"]
        for query in queries.captured_queries
        if not query["sql"].startswith("SELECT")
    ] == []


def test_one_changed_cluster_of_many_is_judged_as_of_the_whole_file(
    tmp_path: Path,
) -> None:
    clusters = [reported("late", minute=0), reported("fresh", minute=30)]
    run("apply", "-f", file_of(tmp_path, *clusters))
    clusters[0]["metadata"]["labels"] = {"env": "prod"}

    run("apply", "-f", file_of(tmp_path, *clusters))

    rows = {
        row.name: (row.revision, row.verdict) for row in MemberCluster.objects.all()
    }
    assert rows == {"late": (2, "staleHeartbeat"), "fresh": (1, "")}


def test_an_export_of_imported_clusters_is_unchanged_also_one_by_one(
    tmp_path: Path,
) -> None:
    run(
        "import_clusters",
        file_of(tmp_path, reported("late", minute=0), reported("fresh", minute=30)),
    )

    for names in ((), ("late",), ("fresh",)):
        (tmp_path / "export").write_text(run("export", "clusters", *names)[0])
        assert results_of("apply", "-f", str(tmp_path / "export")) == {"unchanged"}
    late = next(
        document
        for document in exported("clusters")
        if document["metadata"]["name"] == "late"
    )
    assert late["status"]["agentStatus"][0][
        "lastReceivedHeartbeat"
    ] == HEARTBEAT.format(minute=0)


@pytest.mark.parametrize(
    "text",
    [
        "apiVersion: v1\nitems:\n- apiVersion: v1\n  kind: Namespace\n  metadata:\n    name: a\n",
        dump_yaml(
            {
                "apiVersion": "v1",
                "items": [],
                "kind": "List",
                "metadata": {"continue": "abc"},
            }
        ),
        dump_yaml(
            {
                "apiVersion": "v1",
                "items": [],
                "kind": "NamespaceList",
                "metadata": {"remainingItemCount": 7},
            }
        ),
    ],
)
def test_a_truncated_list_is_reported(text: str, tmp_path: Path) -> None:
    path = tmp_path / "list.yaml"
    path.write_text(text)

    with pytest.raises(CommandError, match="The List is truncated") as refused:
        run("apply", "-f", str(path))
    with pytest.raises(CommandError, match="The List is truncated"):
        run("import_clusters", str(path))

    assert refused.value.returncode == 2


@pytest.mark.parametrize(
    "text", ['{"kind": "List", "items": [{"kind": "A"', "kind: List\nitems: [{a: 1},"]
)
def test_a_text_that_ends_too_early_is_reported(text: str) -> None:
    with pytest.raises(InvalidManifest, match="may be truncated"):
        load_documents(text)


def test_an_object_with_items_is_no_truncated_list() -> None:
    [document] = load_documents("apiVersion: v1\nitems: []\nspec: {}\n")

    assert items_of(document) == [document]


def test_every_entry_point_has_the_same_limit() -> None:
    large = b"#" * (LARGEST_UPLOAD + 1)

    readers = (
        load_documents,
        lambda text: read_members(text, name="x.yaml"),
        read_fleet,
        read_placement,
    )
    for read in (*readers, lambda text: read_bindings(text, placement=None)):
        with pytest.raises(InvalidManifest, match="must be at most 64 MiB"):
            read(large)
    assert settings.DATA_UPLOAD_MAX_MEMORY_SIZE >= LARGEST_UPLOAD
