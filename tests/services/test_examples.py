"""Whole files of manifests: some of our own, and those that KubeFleet ships, where they are available."""

from datetime import UTC, datetime
from pathlib import Path

import pytest

from clusters.fleet import EligibilityKind
from clusters.manifest import parse_member
from fleetui.apimachinery.errors import InvalidManifest
from fleetui.apimachinery.yaml import (
    Document,
    attach_lines,
    dump_yaml,
    items_of,
    load_documents,
)
from placements.manifests.placement import parse_placement, spec_warnings
from placements.services.apply import apply_documents
from placements.services.fleet.forms import read_documents
from placements.services.simulate.request import read_bindings, read_placement
from tests.documents import OURS, PARSERS, SHARED
from tests.services.simulate_runs import simulate

KUBEFLEET = SHARED / "examples" / "kubefleet"
LOADS = "loads"
MEMBER = "loads as a member"
NO_KIND = "kind: kind-not-supported"
NO_NUMBER = "spec.policy.numberOfClusters: required"


def documents_of(path: Path) -> list[Document]:
    return [
        item
        for document in load_documents(path.read_bytes())
        for item in items_of(document)
    ]


def verdicts(path: Path) -> list[str]:
    """Return for each document of a file that it loads, with its warnings, or why it does not."""
    return [verdict(document) for document in documents_of(path)]


def verdict(document: Document) -> str:
    try:
        parse = PARSERS.get(document.data["kind"])
        if parse:
            parse(document.data)
            return MEMBER if parse is parse_member else LOADS
        placement = parse_placement(document.data)
    except InvalidManifest as errors:
        return ", ".join(f"{error.path}: {error.code}" for error in errors.errors)
    return " ".join(
        [LOADS, *(warning.code for warning in spec_warnings(placement.spec))]
    )


OUR_FILES = {
    "placement-spread.yaml": [LOADS],
    "placement-staged.yaml": [LOADS],
    "placement-without-number.yaml": [NO_NUMBER],
    "placement-status-in-namespace.yaml": ["loads not-acted-on-yet"],
    "other-kinds.yaml": [NO_KIND] * 5,
    "namespaced.yaml": [LOADS] * 4,
    "envelopes.yaml": [NO_KIND] * 2,
    "budget-and-evictions.yaml": [LOADS] * 3,
    "overrides.yaml": [LOADS] * 3,
    "staged-update.yaml": [LOADS] * 3,
    "members.yaml": [MEMBER, MEMBER],
    "nginx.yaml": [*[NO_KIND] * 4, LOADS, LOADS],
}


@pytest.mark.parametrize(("name", "expected"), OUR_FILES.items(), ids=OUR_FILES.keys())
def test_our_documents(name: str, expected: list[str]) -> None:
    assert verdicts(OURS / name) == expected


def test_no_document_of_ours_is_forgotten() -> None:
    assert {path.name for path in OURS.iterdir()} == set(OUR_FILES)


KUBEFLEET_FILES = {
    "eviction/clusterpdb.yaml": LOADS,
    "eviction/eviction.yaml": LOADS,
    "eviction/test-crp.yaml": LOADS,
    "fleet_v1beta1_membercluster.yaml": MEMBER,
    "migration/crp-1.yaml": LOADS,
    "migration/crp-2.yaml": LOADS,
    "migration/resourceoverride.yaml": LOADS,
    "nginx/config-ro.yaml": LOADS,
    "nginx/configMap.yaml": NO_KIND,
    "nginx/deployment.yaml": NO_KIND,
    "nginx/namespace.yaml": NO_KIND,
    "nginx/place-all-crp.yaml": LOADS,
    "nginx/service.yaml": NO_KIND,
    "resourceplacement/rp-cm.yaml": LOADS,
    "resourceplacement/rp-deploy.yaml": LOADS,
    "resourceplacement/test-crp.yaml": LOADS,
    "stagedupdaterun/approvalRequest.yaml": LOADS,
    "stagedupdaterun/clusterStagedUpdateRun.yaml": LOADS,
    "stagedupdaterun/example-crp.yaml": LOADS,
    "stagedupdaterun/updateStrategy.yaml": LOADS,
    "test-cro1.yaml": LOADS,
    "test-crp-disruptionbudget.yaml": LOADS,
    "test-crp-eviction.yaml": LOADS,
    "test-crp1.yaml": NO_NUMBER,
    "test-crp2.yaml": LOADS,
    "test-crp3.yaml": LOADS,
    "test-crp4.yaml": LOADS,
    "test-crp5.yaml": LOADS,
    "test-crp6.yaml": LOADS,
    "test-crp7.yaml": LOADS,
    "test-crp8.yaml": LOADS,
    "test-crp9.yaml": "loads not-acted-on-yet",
    "test-ro1.yaml": LOADS,
}


@pytest.mark.skipif(
    not KUBEFLEET.is_dir(), reason="KubeFleet's examples are not beside this checkout"
)
@pytest.mark.parametrize(
    ("name", "expected"), KUBEFLEET_FILES.items(), ids=KUBEFLEET_FILES.keys()
)
def test_kubefleet_examples(name: str, expected: str) -> None:
    assert verdicts(KUBEFLEET / name) == [expected]


@pytest.mark.skipif(
    not KUBEFLEET.is_dir(), reason="KubeFleet's examples are not beside this checkout"
)
def test_no_kubefleet_example_is_forgotten() -> None:
    files = {str(path.relative_to(KUBEFLEET)) for path in KUBEFLEET.rglob("*.yaml")}

    assert files == set(KUBEFLEET_FILES)


@pytest.mark.parametrize(
    "name", [name for name in OUR_FILES if set(OUR_FILES[name]) == {LOADS}]
)
def test_what_loads_is_exported_and_loads_again(name: str) -> None:
    for document in documents_of(OURS / name):
        parse = PARSERS.get(document.data["kind"], parse_placement)
        parsed = parse(document.data)

        assert parse(parsed.to_manifest()) == parsed


OF_NAMESPACES = (
    *(
        "ResourcePlacement",
        "StagedUpdateStrategy",
        "StagedUpdateRun",
        "ApprovalRequest",
    ),
    *("ResourceEnvelope", "ClusterResourceEnvelope"),
)


def test_every_document_of_a_namespaced_kind_is_applied_and_simulated(
    db: None,  # noqa: ARG001
    tmp_path: Path,
) -> None:
    files = [*OURS.glob("*.yaml"), *KUBEFLEET.rglob("*.yaml")]
    manifests = [
        document.data
        for file in files
        for document in documents_of(file)
        if document.data["kind"] in OF_NAMESPACES
    ]
    spaces = {manifest["metadata"].get("namespace", "shop") for manifest in manifests}
    resources = [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
        for name in spaces
    ]
    approvals = [
        manifest for manifest in manifests if manifest["kind"] == "ApprovalRequest"
    ]  # each waits for its run
    wanted = [
        *resources,
        *(manifest for manifest in manifests if manifest not in approvals),
    ]
    file, fleet = tmp_path / "all.yaml", OURS / "members.yaml"
    file.write_text("---\n".join(map(dump_yaml, wanted)))

    results = apply_documents(
        read_documents(file.read_bytes()), by=None, now=datetime.now(UTC)
    )
    placements = [
        manifest for manifest in manifests if manifest["kind"] == "ResourcePlacement"
    ]
    for placement in placements:
        file.write_text(dump_yaml(placement))
        run = simulate("--clusters", fleet, "--placement", file)
        assert run.status in (0, 1), run.errors

    assert [result.did for result in results] == ["created"] * len(wanted)
    assert len(manifests) >= 6
    print(  # noqa: T201
        f"{len(manifests)} documents of namespaced kinds, {len(placements)} simulated"
    )


def test_simulate_reads_a_namespaced_placement_with_its_bindings(
    tmp_path: Path,
) -> None:
    metadata = {"name": "web", "labels": {"kubernetes-fleet.io/parent-CRP": "web"}}
    bindings = [
        {
            "apiVersion": "placement.kubernetes-fleet.io/v1beta1",
            "kind": kind,
            "metadata": {
                **metadata,
                **({} if kind.startswith("Cluster") else {"namespace": "team"}),
            },
            "spec": {
                "state": "Bound",
                "targetCluster": "edge-1",
                "schedulingPolicySnapshotName": "web-0",
            },
        }
        for kind in ("ResourceBinding", "ClusterResourceBinding")
    ]
    file = tmp_path / "bindings.yaml"
    file.write_text("---\n".join(map(dump_yaml, bindings)))

    reading = read_bindings(file.read_bytes(), placement="team/web")

    assert [binding.cluster for binding in reading.bindings] == ["edge-1"]
    assert [warning.code for warning in reading.warnings] == ["other-bindings"]
    assert (
        read_placement((OURS / "namespaced.yaml").read_bytes().split(b"---")[1]).name
        == "team/web"
    )


def test_a_fault_names_its_line_in_the_file() -> None:
    (document,) = documents_of(OURS / "placement-without-number.yaml")

    with pytest.raises(InvalidManifest) as raised:
        parse_placement(document.data)

    (error,) = attach_lines(
        (document, field_error) for field_error in raised.value.errors
    )
    assert error.line == 8


def test_an_export_of_member_clusters_becomes_a_fleet() -> None:
    members = [
        parse_member(document.data) for document in documents_of(OURS / "members.yaml")
    ]

    now = datetime(2026, 8, 20, 12, 6, tzinfo=UTC)
    clusters = [member.cluster(now=now) for member in members]
    assert [(cluster.name, cluster.eligibility.kind) for cluster in clusters] == [
        ("bravelion", EligibilityKind.STALE_HEARTBEAT),
        ("smartfish", None),
    ]
