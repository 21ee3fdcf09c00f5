"""Documents in by command, and out again: the same, with our status."""

import io
import json
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError

from clusters.models import MemberCluster
from fleetui.apimachinery.yaml import dump_yaml, items_of, load_documents
from placements.models import Placement, Resource
from placements.services.results import stored_document
from tests.commands import call_command
from tests.documents import OURS, SHARED
from tests.rows import all_joined, placement_document, run_due, spec
from tests.services.rollouts.staged import (
    run_document,
    stage,
    staged_spec,
    strategy_document,
)

pytestmark = pytest.mark.django_db

EXAMPLES = SHARED / "examples" / "kubefleet"
PLACEMENT, MEMBER = "ClusterResourcePlacement", "MemberCluster"
NOUNS = {
    PLACEMENT: "placements",
    "ResourcePlacement": "placements",
    MEMBER: "clusters",
    "ClusterResourceOverride": "overrides",
    "ResourceOverride": "overrides",
    "ClusterStagedUpdateStrategy": "strategies",
    "ClusterStagedUpdateRun": "runs",
}
COVERED = sorted(
    path.relative_to(EXAMPLES).as_posix()
    for path in EXAMPLES.rglob("*.yaml")
    if path.name
    not in ("test-crp1.yaml",)  # PickN without a number: refused, as by a hub
    and not {
        "ClusterResourcePlacementEviction",
        "ClusterResourcePlacementDisruptionBudget",
        "ClusterStagedUpdateRun",  # the placements of these runs are in other files
        "ClusterApprovalRequest",
    }
    & {
        line.removeprefix("kind:").strip()
        for line in path.read_text().splitlines()
        if line.startswith("kind:")
    }
)


def documents_in(text: str | bytes) -> list[dict[str, Any]]:
    """Read every document of a text."""
    return [
        item.data for document in load_documents(text) for item in items_of(document)
    ]


def run(*arguments: str) -> tuple[str, str]:
    """Run a command; return what it wrote to both of its outputs."""
    out, err = io.StringIO(), io.StringIO()
    call_command(*arguments, stdout=out, stderr=err)
    return out.getvalue(), err.getvalue()


def exported(kind: str, *options: str) -> list[dict[str, Any]]:
    """Export everything of one kind."""
    return documents_in(run("export", kind, *options)[0])


def _sorted(documents: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(documents, key=lambda one: (one["kind"], one["metadata"]["name"]))


@pytest.fixture
def nginx() -> Path:
    """Return the example of a web server."""
    return OURS / "nginx.yaml"


@pytest.mark.nightly
@pytest.mark.parametrize(
    "name",
    [
        "placement-spread.yaml",
        "placement-staged.yaml",
        "members.yaml",
        "overrides.yaml",
    ],
)
def test_our_documents_come_back_as_they_were(name: str) -> None:
    assert_comes_back(OURS / name)


@pytest.mark.nightly
def test_a_placement_and_what_it_selects_come_back_as_they_were(nginx: Path) -> None:
    assert_comes_back(nginx)


@pytest.mark.servers_only
@pytest.mark.servers
@pytest.mark.skipif(not EXAMPLES.exists(), reason="needs ../shared")
@pytest.mark.parametrize("name", COVERED)
def test_the_examples_of_kubefleet_come_back_as_they_were(name: str) -> None:
    if (EXAMPLES / name).parent.name == "nginx":
        run("apply", "-f", str(EXAMPLES / "nginx" / "namespace.yaml"))
    assert_comes_back(EXAMPLES / name, also=EXAMPLES / "nginx" / "namespace.yaml")


def assert_comes_back(path: Path, also: Path | None = None) -> None:
    """Apply a file, decide, and compare what is exported with what was applied."""
    all_joined("kind-1", "kind-2")
    written = documents_in(path.read_bytes())

    run("apply", "-f", str(path))
    run_due()

    names = {document["metadata"]["name"] for document in written}
    for kind, noun in NOUNS.items():
        ours = _sorted(
            [
                stored_document(document)
                for document in written
                if document["kind"] == kind
            ]
        )
        there = [
            document
            for document in exported(noun, "--no-status")
            if document["kind"] == kind and document["metadata"]["name"] in names
        ]
        assert _sorted(there) == ours
    rest = [document for document in written if document["kind"] not in NOUNS]
    there = [
        document
        for document in exported("resources", "--no-status")
        if document in rest or also is None
    ]
    assert _sorted(there) == _sorted(rest)


def test_covers_most_of_the_examples() -> None:
    assert not EXAMPLES.exists() or len(COVERED) >= 15


def test_applying_an_export_changes_nothing(nginx: Path, tmp_path: Path) -> None:
    run("apply", "-f", str(OURS / "members.yaml"), "-f", str(nginx))
    run_due()
    nouns = ("clusters", "placements", "resources", "overrides")
    for noun in nouns:
        (tmp_path / noun).write_text(run("export", noun)[0])

    out, _ = run(
        "apply", *(part for noun in nouns for part in ("-f", str(tmp_path / noun)))
    )

    assert {line.rpartition(" ")[2] for line in out.splitlines()} == {"unchanged"}


def test_an_export_has_our_status(nginx: Path) -> None:
    all_joined("a", "b")
    run("apply", "-f", str(nginx))
    run_due()

    status = exported("placements")[0]["status"]

    assert [one["clusterName"] for one in status["placementStatuses"]] == ["a", "b"]
    assert status["conditions"][0]["reason"] == "SchedulingPolicyFulfilled"
    assert status["selectedResources"][0]["kind"] == "Namespace"


def test_an_export_can_be_json() -> None:
    all_joined("a")

    listed = json.loads(run("export", "clusters", "-o", "json")[0])

    assert [item["metadata"]["name"] for item in listed["items"]] == ["a"]


def test_a_strategy_and_its_run_come_back_and_change_nothing(tmp_path: Path) -> None:
    all_joined("a")
    file = tmp_path / "staged.yaml"
    documents = [
        run_document("one", state="Initialize"),
        strategy_document(stage("prod")),
        placement_document("web", staged_spec()),
    ]
    file.write_text("---\n".join(map(dump_yaml, documents)))
    run("apply", "-f", str(file))

    assert exported("runs", "--no-status") == documents[:1]
    assert exported("strategies", "--no-status") == documents[1:2]
    (tmp_path / "again").write_text(
        "---\n".join(run("export", noun)[0] for noun in ("strategies", "runs"))
    )
    out, _ = run("apply", "-f", str(tmp_path / "again"))
    assert {line.rpartition(" ")[2] for line in out.splitlines()} == {"unchanged"}


def test_a_run_of_nothing_is_refused_with_its_line(tmp_path: Path) -> None:
    file = tmp_path / "run.yaml"
    file.write_text(dump_yaml(run_document("one")))

    with pytest.raises(
        CommandError,
        match=r"spec.placementName \(line 6\): no placement is named .web.",
    ):
        run("apply", "-f", str(file))


def test_exporting_what_is_not_there_is_reported() -> None:
    with pytest.raises(CommandError, match="no placement is named 'ghost'"):
        run("export", "placements", "ghost")


def test_every_fault_of_every_document_is_reported_and_nothing_is_applied(
    tmp_path: Path,
) -> None:
    file = tmp_path / "mixed.yaml"
    file.write_text(
        "apiVersion: v1\nkind: Namespace\nmetadata:\n  name: shop\n---\n"
        "apiVersion: placement.kubernetes-fleet.io/v1\nkind: ClusterResourcePlacement\n"
        "metadata:\n  name: web\n"
        "spec:\n  resourceSelectors:\n  - {group: '', version: v1, kind: Namespace, name: shop}\n"
        "  policy:\n    placementType: PickN\n---\n"
        "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: x\n"
    )

    with pytest.raises(CommandError) as caught:
        run("apply", "-f", str(file))

    lines = str(caught.value).splitlines()
    assert len(lines) == 2
    assert "metadata.namespace (line 18): ConfigMap x" in lines[0]
    assert (
        "spec.policy.numberOfClusters (line 13): ClusterResourcePlacement web"
        in lines[1]
    )
    assert not Resource.objects.exists()
    assert not Placement.objects.exists()


def test_importing_clusters_says_what_it_did_and_twice_does_nothing_twice(
    tmp_path: Path,
) -> None:
    file = tmp_path / "fleet.csv"
    file.write_text("name,label:region,taints\na,east,\nb,west,gpu=yes:NoSchedule\n")

    first, second = (
        run("import_clusters", str(file))[0],
        run("import_clusters", str(file))[0],
    )

    assert first.splitlines() == ["a: joined", "b: joined", "2 joined"]
    assert second.splitlines() == ["a: unchanged", "b: unchanged", "2 unchanged"]
    assert MemberCluster.objects.get(name="b").taints.count() == 1


def test_a_faulty_import_changes_nothing(tmp_path: Path) -> None:
    file = tmp_path / "fleet.csv"
    file.write_text("name,label:region\na,east\nB!,west\n")

    with pytest.raises(CommandError, match="line 3"):
        run("import_clusters", str(file))

    assert not MemberCluster.objects.exists()


def test_an_unreadable_file_is_reported() -> None:
    with pytest.raises(CommandError, match="cannot read file"):
        run("apply", "-f", "/nowhere.yaml")


def test_a_document_twice_in_one_request_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "twice.json"
    document = placement_document("web", spec())
    file.write_text(
        json.dumps({"apiVersion": "v1", "kind": "List", "items": [document, document]})
    )

    with pytest.raises(CommandError, match="Duplicate value"):
        run("apply", "-f", str(file))


def test_a_file_with_nothing_in_it_is_reported(tmp_path: Path) -> None:
    empty = tmp_path / "empty.yaml"
    empty.write_text("# nothing yet\n")

    with pytest.raises(
        CommandError, match=r"empty\.yaml: the body is empty"
    ) as refused:
        run("apply", "-f", str(empty))

    assert refused.value.returncode == 2
