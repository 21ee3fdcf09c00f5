"""The pages of live hubs."""

import re
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.test import Client

from clusters.models import Hub, HubCredential, HubWrite
from fleetui.apimachinery.yaml import dump_yaml
from fleetui.hub_scope import in_hub
from tests.clusters.kubernetes.servers import LocalServer
from tests.hubs.fake_hub import TOKEN, FakeHub, serve_hub
from tests.hubs.test_connecting import kubeconfig
from tests.hubs.test_watcher import hub_with_content
from tests.hubs.watching import connected_hub, watching
from tests.live_hubs import live_hub
from tests.rows import NOW, person

pytestmark = pytest.mark.django_db
Caller = Callable[..., Client]


@pytest.fixture(autouse=True)
def _loopback(settings: Any) -> None:
    settings.MEMBER_LOOPBACK = True


@pytest.fixture
def served() -> Iterator[tuple[FakeHub, LocalServer]]:
    with serve_hub(hub_with_content()) as hub:
        yield hub


def visitor(*roles: str) -> Client:
    client = Client()
    client.force_login(person("-".join(roles), *roles))
    return client


def text(response: Any) -> str:
    return response.content.decode()


def form(server: LocalServer, **changes: str) -> dict[str, str]:
    return {
        "name": "prod-eu",
        "kubeconfig": dump_yaml(kubeconfig(server.url)),
        "do": "save",
        **changes,
    }


def test_a_hub_is_checked_connected_paused_and_removed(
    served: tuple[FakeHub, LocalServer],
) -> None:
    client = visitor("cluster-administrator")
    assert "No live hub is connected" in text(client.get("/hubs/"))
    assert client.get("/hubs/new/").status_code == 200

    checked = client.post("/hubs/new/", form(served[1], do="check"))
    assert checked.status_code == 200
    assert "Check passed" in text(checked)
    assert "memberclusters.cluster.kubernetes-fleet.io" in text(checked)
    assert TOKEN not in text(checked)
    assert not Hub.objects.filter(name="prod-eu").exists()

    saved = client.post("/hubs/new/", form(served[1], title="Production"))
    assert saved.headers["Location"] == "/hubs/prod-eu/about/"
    page = text(client.get("/hubs/prod-eu/about/"))
    assert "Production · KubeFleet" in page
    assert 'href="/hubs/prod-eu/"' in page
    assert served[1].url in page
    assert TOKEN not in page
    assert "Check passed" in text(client.post("/hubs/prod-eu/about/check/"))

    client.post("/hubs/prod-eu/about/pause/", {"paused": "true"})
    assert Hub.objects.get(name="prod-eu").state == "paused"
    client.post("/hubs/prod-eu/about/pause/", {"paused": "false"})
    assert not Hub.objects.get(name="prod-eu").is_paused

    assert "Remove hub prod-eu?" in text(client.get("/hubs/prod-eu/about/remove/"))
    assert client.post("/hubs/prod-eu/about/remove/").headers["Location"] == "/hubs/"
    assert client.get("/hubs/prod-eu/about/").status_code == 404


def test_bad_input_is_shown_with_its_path_and_without_the_kubeconfig(
    served: tuple[FakeHub, LocalServer],
) -> None:
    client = visitor("cluster-administrator")

    refused = client.post("/hubs/new/", form(served[1], name="Prod EU"))
    assert refused.status_code == 422
    assert "<code>name</code>" in text(refused)
    assert TOKEN not in text(refused)

    served[0].denied = {"list memberclusters"}
    failed = client.post("/hubs/new/", form(served[1]))
    assert failed.status_code == 422
    assert "Save although the check failed" in text(failed)
    assert (
        client.post("/hubs/new/", form(served[1], confirm="failed-check")).status_code
        == 302
    )
    assert client.post("/hubs/new/", form(served[1])).status_code == 422  # taken


def test_credentials_are_replaced(served: tuple[FakeHub, LocalServer]) -> None:
    client = visitor("cluster-administrator")
    client.post("/hubs/new/", form(served[1]))
    served[0].token = "another"
    assert client.get("/hubs/prod-eu/about/credentials/").status_code == 200
    changed = {
        "kubeconfig": dump_yaml(kubeconfig(served[1].url, token="another")),
        "do": "save",
    }

    assert (
        client.post("/hubs/prod-eu/about/credentials/", form(served[1])).status_code
        == 422
    )
    assert client.post("/hubs/prod-eu/about/credentials/", changed).status_code == 302
    assert Hub.objects.get(name="prod-eu").credential.revision == 2


def test_recent_writes_are_shown_where_there_are_any() -> None:
    hub, viewer = live_hub("prod-eu"), visitor("viewer")
    assert "Recent writes" not in text(viewer.get("/hubs/prod-eu/about/"))
    values = {
        "verb": "apply",
        "kind": "ResourcePlacement",
        "namespace": "shop",
        "name": "web",
    }
    with in_hub(hub.pk):
        HubWrite.objects.create(
            at=NOW, requested_by="ana", state="conflict", answer="<b>taken", **values
        )

    page = text(viewer.get("/hubs/prod-eu/about/"))

    assert "ResourcePlacement shop/web" in page
    assert "Conflict" in page
    assert "&lt;b&gt;taken" in page


@pytest.mark.nightly
def test_a_viewer_sees_state_and_streams_only() -> None:
    with watching(hub_with_content()) as run:
        run.work_until_state("live")
        run.work_until_equal()
        run.work_until(lambda: run.stream("memberclusters").heard_at)
        viewer = visitor("viewer")

        page = text(viewer.get("/hubs/prod-eu/about/"))
        assert "Live" in page
        assert "Watching" in page
        assert run.servers[0].url not in page
        assert "Remove hub" not in page
        assert "prod-eu" in text(viewer.get("/hubs/"))
        for path in ("check/", "pause/", "remove/", "credentials/"):
            assert viewer.post(f"/hubs/prod-eu/about/{path}").status_code == 403
        assert viewer.get("/hubs/new/").status_code == 403
        assert viewer.get("/hubs/nowhere/about/").status_code == 404


def test_an_expiry_within_two_weeks_is_shown_on_the_page_and_over_rest(
    served: tuple[FakeHub, LocalServer],
) -> None:
    hub = connected_hub(served[1])
    HubCredential.objects.update(expires_at=datetime.now(UTC) + timedelta(days=3))
    client = visitor("cluster-administrator")

    assert re.search(
        r"mark attention.*?expires on",
        text(client.get(f"/hubs/{hub.name}/about/")),
        re.S,
    )
    document = client.get(f"/api/v1/hubs/{hub.name}").json()
    assert document["connection"]["credential"]["notice"].startswith("expires on ")
