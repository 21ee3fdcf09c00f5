"""Dry runs and differences: everything is validated and previewed, nothing is written."""

from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError
from django.test import Client
from rest_framework.test import APIClient

from clusters.models import FleetState, MemberCluster
from clusters.queries import current_fleet
from fleetui.apimachinery.yaml import dump_yaml
from fleetui.models import Event
from placements.models import Placement, PolicySnapshot, Resource
from tests.commands import call_command
from tests.rows import (
    all_joined,
    config_map,
    decided,
    member_document,
    namespace,
    person,
    pick_n_spec,
    placement_document,
    spec,
)
from tests.services.test_apply_and_export import run

pytestmark = [
    pytest.mark.django_db,
    pytest.mark.servers,
    pytest.mark.usefixtures("collected_static"),
]
MODELS = (Event, FleetState, MemberCluster, Placement, PolicySnapshot, Resource)


def written() -> list[Any]:
    return [list(model.objects.order_by("pk").values()) for model in MODELS]


def file_of(folder: Path, *documents: dict[str, Any]) -> str:
    path = folder / "file.yaml"
    path.write_text("---\n".join(map(dump_yaml, documents)))
    return str(path)


@pytest.fixture
def web(tmp_path: Path) -> str:
    """Place `web` everywhere, and write a file that adds a cluster, a placement and a resource."""
    all_joined("a", "b")
    decided("web", spec())
    documents = [
        placement_document("api", pick_n_spec(2)),
        member_document("c"),
        namespace("shop"),
        config_map("settings"),
    ]
    return file_of(tmp_path, *documents)


def test_a_dry_run_shows_results_and_decisions_and_writes_nothing(web: str) -> None:
    before = written()

    out, _ = run("apply", "--dry-run", "-f", web)

    assert out.splitlines() == [
        "placement api created (dry run)",
        "cluster c joined (dry run)",
        "resource /Namespace//shop created (dry run)",
        "resource /ConfigMap/shop/settings created (dry run)",
        "decision api: selects b, c; 2 clusters, fulfilled",
        "decision web: selects c; 3 clusters, fulfilled",
    ]
    assert written() == before
    assert [cluster.name for cluster in current_fleet().fleet] == ["a", "b"]


@pytest.mark.nightly
@pytest.mark.usefixtures("web")
def test_a_dry_run_refuses_what_applying_refuses(tmp_path: Path) -> None:
    invalid = tmp_path / "invalid.yaml"
    invalid.write_text(dump_yaml(config_map("lost", in_="nowhere")))
    elsewhere = tmp_path / "elsewhere.yaml"
    nowhere = {"placementType": "PickAll", "affinity": {"clusterAffinity": {}}}
    nowhere["affinity"] = {
        "clusterAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {
                "clusterSelectorTerms": [{"labelSelector": {"matchLabels": {"x": "y"}}}]
            }
        }
    }
    elsewhere.write_text(
        dump_yaml(placement_document("web", {**spec(), "policy": nowhere}))
    )
    before = written()

    for path, code in ((invalid, 2), (elsewhere, 3)):
        with pytest.raises(CommandError) as refused:
            run("apply", "--dry-run", "-f", str(path))
        assert refused.value.returncode == code
    out, _ = run(
        "apply", "--dry-run", "--confirm", "unschedule-everything", "-f", str(elsewhere)
    )

    assert "decision web: deselects a, b; 0 clusters" in out
    assert written() == before


def test_diff_exits_with_1_where_something_differs_and_hides_secrets(
    tmp_path: Path,
) -> None:
    secret = {**config_map("key"), "kind": "Secret", "stringData": {"a": "hunter2"}}
    run(
        "apply",
        "-f",
        file_of(tmp_path, namespace("shop"), config_map("settings", data={"a": "1"})),
    )
    path = file_of(
        tmp_path, namespace("shop"), config_map("settings", data={"a": "2"}), secret
    )
    before = written()

    with pytest.raises(SystemExit) as ended:
        run("diff", "-f", path)

    assert ended.value.code == 1
    assert written() == before


def test_diff_prints_what_would_change(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run(
        "apply",
        "-f",
        file_of(tmp_path, namespace("shop"), config_map("settings", data={"a": "1"})),
    )
    secret = {**config_map("key"), "kind": "Secret", "stringData": {"a": "hunter2"}}

    with pytest.raises(SystemExit):
        call_command(
            "diff",
            "-f",
            file_of(tmp_path, config_map("settings", data={"a": "2"}), secret),
        )

    out = capsys.readouterr().out
    assert "-  a: '1'\n+  a: '2'\n" in out
    assert "--- resource /Secret/shop/key (hub)" in out
    assert "hunter2" not in out


def test_diff_exits_with_0_without_differences_and_above_1_for_an_error(
    tmp_path: Path,
) -> None:
    path = file_of(tmp_path, namespace("shop"))
    run("apply", "-f", path)

    assert run("diff", "-f", path)[0] == ""
    with pytest.raises(CommandError) as refused:
        run("diff", "-f", file_of(tmp_path, config_map("x", in_="nowhere")))
    assert refused.value.returncode == 2


def api() -> APIClient:
    client = APIClient()
    client.force_authenticate(person("olga", "operator"))
    return client


@pytest.mark.nightly
def test_rest_previews_documents_without_writing(web: str) -> None:
    before, text = written(), Path(web).read_text()

    answer = (
        api()
        .post("/api/v1/apply?dryRun=All", text, content_type="application/yaml")
        .json()
    )

    assert [item["did"] for item in answer["items"]] == [
        "created",
        "joined",
        "created",
        "created",
    ]
    assert [
        (decision["placement"], decision["joins"], decision["leaves"])
        for decision in answer["decisions"]
    ] == [
        ("api", ["b", "c"], []),
        ("web", ["c"], []),
    ]
    assert written() == before


def test_rest_previews_a_put_without_writing() -> None:
    before = written()

    put = api().put(
        "/api/v1/clusters/c?dryRun=All", member_document("c"), format="json"
    )

    assert (put.status_code, put.json()["metadata"]["name"]) == (201, "c")
    assert written() == before


def test_rest_refuses_a_dry_run_that_is_not_supported() -> None:
    all_joined("a")
    before, client = written(), api()

    for method, path in (
        ("delete", "clusters/a?dryRun=All"),
        ("post", "clusters/a/cordon?dryRun=All"),
        ("put", "clusters/a?dryRun=Some"),
        ("post", "apply?dryRun="),
    ):
        answer = getattr(client, method)(
            f"/api/v1/{path}", member_document("a"), format="json"
        )
        assert answer.status_code == 400, path
    assert written() == before


def test_the_page_previews_without_writing(web: str, client: Client) -> None:
    client.force_login(person("olga", "operator"))
    client.get("/resources/apply/")  # compares the statuses
    before = written()

    answer = client.post(
        "/resources/apply/", {"manifest": Path(web).read_text(), "preview": "1"}
    )

    page = answer.content.decode()
    assert answer.status_code == 200
    assert "would be created" in page
    assert "nothing is saved yet" in page
    assert "Impact on placements" in page
    assert "name: settings" in page
    assert written() == before
