"""A kubeconfig is imported alike at the page, over REST and by the command, and none shows a secret."""

import io
import logging
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core.management import CommandError
from django.test import Client
from rest_framework.test import APIClient

from clusters.drivers.kubernetes.check import CheckStep
from clusters.models import ClusterCredential, MemberCluster
from clusters.operations.connection import ConnectionExamination
from clusters.operations.identity import ServerIdentity
from fleetui.apimachinery.yaml import dump_yaml
from tests.commands import call_command
from tests.database import database_dump
from tests.rows import joined, person

pytestmark = pytest.mark.django_db
PAGE, REST = "/clusters/import/", "/api/v1/cluster-imports"
SECRET = "planted-token-of-a-context"
EKS = "arn:aws:eks:eu-west-1:123456789012:cluster/Prod"
NAMES = {EKS: "prod", "admin@cluster.local": "cluster.local", "c": "c"}


def kubeconfig(**user: Any) -> str:
    return dump_yaml(
        {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "c",
            "clusters": [
                {"name": name, "cluster": {"server": f"https://192.0.2.{at}:6443"}}
                for at, name in enumerate(NAMES, start=1)
            ],
            "users": [{"name": "u", "user": {"token": SECRET, **user}}],
            "contexts": [
                {"name": name, "context": {"cluster": name, "user": "u"}}
                for name in NAMES
            ],
        }
    )


@pytest.fixture
def failing(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """Answer for the clusters: the check of those in the set fails."""
    names: set[str] = set()

    def check(wanted: Any, **_: Any) -> dict[str, ConnectionExamination]:
        return {
            name: ConnectionExamination(
                (CheckStep("TLS", name not in names, "not trusted"),),
                identity=ServerIdentity(f"uid-of-{name}", frozenset()),
            )
            for name in wanted
        }

    monkeypatch.setattr("clusters.operations.importing.check_new_connections", check)
    return names


@pytest.fixture
def browser() -> Client:
    client = Client()
    client.force_login(person("carla", "operator", "cluster-administrator"))
    return client


@pytest.fixture
def api(browser: Client) -> APIClient:  # noqa: ARG001 -- its user
    client = APIClient()
    client.force_authenticate(User.objects.get(username="carla"))
    return client


def command(path: Path, text: str, *options: str) -> str:
    out = io.StringIO()
    path.write_text(text)
    call_command("import_clusters", str(path), *options, stdout=out, stderr=out)
    return out.getvalue()


def servers() -> dict[str, str]:
    return {
        row.name: row.connection.get("server", "")
        for row in MemberCluster.objects.all()
    }


@pytest.mark.parametrize("door", ["page", "REST", "command"])
def test_every_context_becomes_a_cluster(
    door: str,
    failing: set[str],  # noqa: ARG001 -- none fails
    browser: Client,
    api: APIClient,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG)
    text = kubeconfig()
    written = ""
    if door == "page":
        for do in ("check", "import"):
            written += browser.post(PAGE, {"text": text, "do": do}).content.decode()
    elif door == "REST":
        for query in ("?dryRun=All", ""):
            sent = api.post(f"{REST}{query}", text, content_type="application/yaml")
            written += sent.content.decode()
            assert sent.status_code == 200
    else:
        for options in (["--dry-run"], []):
            written += command(tmp_path / "kc.yaml", text, *options)

    assert servers() == {
        name: f"https://192.0.2.{at}:6443"
        for at, name in enumerate(NAMES.values(), start=1)
    }
    assert ClusterCredential.objects.count() == 3
    assert "Imported as prod" in written
    assert SECRET not in written + caplog.text + database_dump()


def test_the_preview_has_the_status_that_the_list_will_have(browser: Client) -> None:
    page = browser.post(PAGE, {"text": "name\nalone\n", "do": "check"}).content.decode()

    assert "Not monitored" in page
    assert ">Ready<" not in page


@pytest.mark.parametrize("door", ["page", "REST", "command"])
def test_chosen_contexts_get_chosen_names(
    door: str,
    failing: set[str],
    browser: Client,
    api: APIClient,
    tmp_path: Path,
) -> None:
    """One is left out, one is renamed; a failed check has to be confirmed."""
    failing |= {"eks"}
    text = kubeconfig()
    chosen = [EKS, "c"]
    before = after = ""
    if door == "page":
        names = {EKS: "eks", "admin@cluster.local": "x", "c": "c"}
        entered = {"key": [*names], "as": [*names.values()], "take": chosen}
        form = {"text": text, "do": "import", **entered}
        before = browser.post(PAGE, form).content.decode()
        assert servers() == {}
        after = browser.post(PAGE, {**form, "confirm": "failed-check"})["Location"]
    elif door == "REST":
        query = "&".join([*(f"context={one}" for one in chosen), f"rename={EKS}=eks"])
        first = api.post(f"{REST}?{query}", text, content_type="application/yaml")
        before = first.content.decode()
        assert (first.status_code, first.json()["confirm"]) == (409, "failed-check")
        assert servers() == {}
        address = f"{REST}?{query}&confirm=failed-check"
        after = api.post(address, text, content_type="text/plain").content.decode()
    else:
        options = [*(f"--context={one}" for one in chosen), f"--rename={EKS}=eks"]
        with pytest.raises(CommandError, match="eks: not trusted") as raised:
            command(tmp_path / "kc.yaml", text, *options)
        assert raised.value.returncode == 3
        assert servers() == {}
        before = str(raised.value)
        after = command(tmp_path / "kc.yaml", text, *options, "--confirm")

    assert "not trusted" in before
    assert SECRET not in before + after
    assert servers().keys() == {"eks", "c"}


@pytest.mark.parametrize(
    ("user", "words"),
    [
        ({"exec": {"command": SECRET}}, "users[0].user.exec"),
        ({"tokenFile": f"/{SECRET}"}, "users[0].user.tokenFile"),
        ({"token": f"{SECRET} x"}, "users[0].user.token"),
    ],
)
def test_what_is_refused_has_its_place_and_no_value(
    browser: Client, api: APIClient, tmp_path: Path, user: Any, words: str
) -> None:
    text = kubeconfig(**user)

    page = browser.post(PAGE, {"text": text, "do": "check"})
    rest = api.post(REST, text, content_type="application/yaml")
    with pytest.raises(CommandError) as raised:
        command(tmp_path / "kc.yaml", text)

    assert (page.status_code, rest.status_code) == (422, 422)
    for written in (page.content.decode(), rest.content.decode(), str(raised.value)):
        assert words in written
        assert SECRET not in written


def test_text_that_cannot_be_read_is_not_sent_back(browser: Client) -> None:
    page = browser.post(PAGE, {"text": f"{kubeconfig()}\n  broken: [", "do": "check"})

    assert page.status_code == 422
    assert SECRET not in page.content.decode()


def test_a_cluster_with_another_server_is_a_conflict_with_a_field_for_the_name(
    browser: Client,
    failing: set[str],  # noqa: ARG001 -- none fails
) -> None:
    joined("c")
    MemberCluster.objects.update(
        driver="kubernetes", connection={"server": "https://192.0.2.99"}
    )

    page = browser.post(PAGE, {"text": kubeconfig(), "do": "check"})

    assert page.status_code == 422
    assert "has a connection to another server" in page.content.decode()
    assert 'name="as" value="c"' in page.content.decode()


@pytest.mark.parametrize(
    ("role", "text", "status"),
    [
        ("operator", kubeconfig(), 403),
        ("cluster-administrator", "name\na\n", 403),
        ("operator", "name\na\n", 200),
        ("cluster-administrator", kubeconfig(), 200),
    ],
)
def test_connections_are_for_their_administrators_and_the_rest_for_operators(
    failing: set[str],  # noqa: ARG001 -- none fails
    role: str,
    text: str,
    status: int,
) -> None:
    user = person("role", role)
    client, api = Client(), APIClient()
    client.force_login(user)
    api.force_authenticate(user)

    page = client.post(PAGE, {"text": text, "do": "check"})
    rest = api.post(f"{REST}?dryRun=All", text, content_type="text/csv")

    assert (page.status_code, rest.status_code) == (status, status)


def test_one_name_of_two_kinds_is_an_error_that_a_new_name_corrects(
    browser: Client,
) -> None:
    ocm = {
        "apiVersion": "cluster.open-cluster-management.io/v1",
        "kind": "ManagedCluster",
        "metadata": {"name": "a"},
        "spec": {"hubAcceptsClient": True},
    }
    profile = {
        "apiVersion": "multicluster.x-k8s.io/v1alpha1",
        "kind": "ClusterProfile",
        "metadata": {"name": "a", "namespace": "fleet"},
        "spec": {"clusterManager": {"name": "m"}},
    }
    text = "---\n".join(map(dump_yaml, (ocm, profile)))

    page = browser.post(PAGE, {"text": text, "do": "check"})
    keys = ["a", "ClusterProfile/a"]
    form = {"text": text, "do": "import", "key": keys, "as": ["a", "b"], "take": keys}
    done = browser.post(PAGE, form)

    assert "a is the name of a ManagedCluster above" in page.content.decode()
    assert 'value="ClusterProfile/a"' in page.content.decode()
    assert done.status_code == 302
    assert servers().keys() == {"a", "b"}
