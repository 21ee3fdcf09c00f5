"""Twelve calls by the command on this machine and on a console over HTTP: the same output and status.

`test_clients.py` has the clients that are generated from the same schema.
"""

import shutil
from io import StringIO
from pathlib import Path

import pytest
from django.core.management import CommandError
from pytest_django.live_server_helper import LiveServer

from fleetui import remote
from fleetui.apimachinery.yaml import dump_yaml
from placements.client.operations import FILE
from placements.models import Placement
from tests.api.schema import generated_schema
from tests.api.test_schema import waiting_run
from tests.api.write_client import text_of
from tests.commands import call_command
from tests.database import rolled_back
from tests.rows import (
    all_joined,
    api_token,
    checks_file,
    decided,
    joined,
    namespace,
    person,
    pick_n_spec,
    placement_document,
    run_due,
)
from tests.services.rollouts.overrides import annotate, for_clusters, rule

CALLS = (
    "get placements",
    "get clusters a -o name",
    "get placement web -o name",
    "describe placements missing",
    "diff -f {file}",
    "apply -f {file} --dry-run",
    "rollout pause web",
    "rollout resume web",
    "cordon a",
    "why web b",
    "drain b --dry-run -o json",
    "delete placements web",
)
FORMERLY_LOCAL = (
    "checks --fail-on info",
    "checks -o sarif",
    "checks_file -f {checks}",
    "checks_file",
    "what_if --cluster a",
    "what_if --keys region",
    "what_if --keys region -o json",
    "import_clusters {clusters} --dry-run",
    "import_clusters {clusters}",
    "import_clusters {wrong}",
    "join c --kubeconfig missing",
    "join a --kubeconfig {kubeconfig} --check",
    "get removals",
    "removals keep a web",
    "get approvals",
    "export approvals",
)
"""What only this machine could do before they were requests, with the status of each call."""


def output_of(words: str) -> tuple[int, str]:
    """Run a command; return its status and what it wrote."""
    out, status = StringIO(), 0
    try:
        call_command(*words.split(), stdout=out, stderr=out)
    except CommandError as error:
        status = error.returncode
        out.write(str(error))
    except SystemExit as end:
        status = int(end.code or 0)
    return status, out.getvalue()


def filled() -> None:
    all_joined("a", "b")
    decided("web", pick_n_spec(1))


@pytest.mark.django_db(transaction=True)
def test_twelve_calls_here_and_over_http_end_alike(
    live_server: LiveServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    file = tmp_path / "web.yaml"
    documents = (namespace("shop"), placement_document("web", pick_n_spec(2)))
    file.write_text("---\n".join(map(dump_yaml, documents)))
    calls = [call.format(file=file) for call in CALLS]
    token = api_token(person("ana", "operator"))
    filled()
    here = [output_of(call) for call in calls]
    assert not Placement.objects.exclude(deleting_since=None).exists() or run_due()
    Placement.objects.all().delete()
    call_command("uncordon", "a")
    decided("web", pick_n_spec(1))

    monkeypatch.setenv(remote.SERVER, live_server.url)
    monkeypatch.setenv(remote.TOKEN, token)
    there = [output_of(call) for call in calls]

    assert [status for status, _ in here] == [0, 0, 0, 1, 1, 0, 0, 0, 0, 0, 0, 0]
    assert dict(zip(calls, there, strict=True)) == dict(zip(calls, here, strict=True))


@pytest.mark.django_db(transaction=True)
def test_what_was_local_only_ends_alike_over_http(
    live_server: LiveServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("checks").write_text(checks_file())
    Path("clusters").write_text("name,region\nc,east\n")
    Path("wrong").write_text("kind: Deployment\n")
    Path("kubeconfig").write_text("kind: Config\ncontexts: []\n")
    names = {one: one for one in ("checks", "clusters", "wrong", "kubeconfig")}
    calls = [call.format(**names) for call in FORMERLY_LOCAL]
    token = api_token(person("ana", "operator", "cluster-administrator"))
    joined("a", region="west")
    joined("b", region="east")
    decided("far", pick_n_spec(9))
    waiting_run()
    with rolled_back():
        here = [output_of(call) for call in calls]

    monkeypatch.setenv(remote.SERVER, live_server.url)
    monkeypatch.setenv(remote.TOKEN, token)
    there = [output_of(call) for call in calls]

    assert dict(zip(calls, there, strict=True)) == dict(zip(calls, here, strict=True))
    found = dict(zip(FORMERLY_LOCAL, here, strict=True))
    assert {call: status for call, (status, _) in found.items() if status} == {
        "checks --fail-on info": 1,
        "import_clusters {wrong}": 2,
        "join c --kubeconfig missing": 2,
        "join a --kubeconfig {kubeconfig} --check": 2,
        "removals keep a web": 1,
    }
    assert "c: joined" in found["import_clusters {clusters}"][1]
    assert "one-before-prod  slow" in found["get approvals"][1]
    assert "kind: ClusterApprovalRequest\n" in found["export approvals"][1]


def test_the_commands_are_those_of_the_schema() -> None:
    assert FILE.read_text() == text_of(generated_schema()), (
        "Run python -m tests.api.write_client: the schema has changed"
    )


@pytest.mark.django_db
def test_prune_deletes_what_has_the_label_and_is_not_in_the_files(
    tmp_path: Path,
) -> None:
    override = for_clusters("tier", rule(annotate(tier="2")))
    documents = [namespace("shop"), namespace("till"), override]
    for document in documents:
        document["metadata"]["labels"] = {"team": "shop"}
    file = tmp_path / "all.yaml"
    file.write_text("---\n".join(map(dump_yaml, documents)))
    output_of(f"apply -f {file}")
    file.write_text("---\n".join(map(dump_yaml, [documents[0], override])))

    pruned = output_of(f"apply -f {file} --prune -l team=shop")

    assert pruned[0] == 0
    assert [line for line in pruned[1].splitlines() if line.endswith(" deleted")] == [
        "resource /Namespace//till deleted"
    ]


@pytest.mark.django_db
@pytest.mark.skipif(
    not (shutil.which("kubectl") or shutil.which("kustomize")),
    reason="kubectl or kustomize is needed",
)
def test_a_kustomization_is_compared_and_applied(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "prod"
    folder.mkdir()
    (folder / "namespace.yaml").write_text(dump_yaml(namespace("shop")))
    (folder / "kustomization.yaml").write_text(
        "resources: [namespace.yaml]\nlabels: [{pairs: {team: shop}}]\n"
    )

    status, text = output_of("diff -k prod")
    assert (status, "+    team: shop" in text) == (1, True), text
    assert output_of(f"apply -k {folder}") == (0, "resource /Namespace//shop created\n")
    assert output_of("diff -k prod") == (0, "")

    status, text = output_of("apply -k missing")
    assert (status, text.startswith("missing: ")) == (2, True), text
