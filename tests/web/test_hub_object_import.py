"""Objects of a hub of Open Cluster Management are stored alike at the page, over REST and by the command."""

import io
from pathlib import Path
from typing import Any

import pytest
from django.test import Client
from rest_framework.test import APIClient

from clusters.models import ClusterSetObject, MemberCluster
from tests.commands import call_command
from tests.rows import person
from tests.services.test_stored_hub_objects import BOUND, cluster, score, text_of

pytestmark = pytest.mark.django_db
TAINT = {"key": "gpu", "effect": "NoSelectIfNew", "timeAdded": "2026-06-01T12:00:00Z"}
FILE = text_of(
    *BOUND,
    cluster("Prod_a", of="prod", taints=[TAINT]),
    score("Prod_a", 5, "2026-06-02T12:00:00Z"),
    score("gone", 5),
).decode()


def stored() -> dict[str, Any]:
    sets = ClusterSetObject.objects.order_by("kind").values_list(
        "kind", "namespace", "name", "selector"
    )
    return {
        "sets": list(sets),
        "clusters": list(MemberCluster.objects.values_list("name", "managed")),
    }


@pytest.mark.parametrize("door", ["page", "REST", "command"])
def test_every_door_stores_the_same(door: str, tmp_path: Path) -> None:
    user = person("carla", "operator")
    browser = Client()
    browser.force_login(user)
    api = APIClient()
    api.force_authenticate(user)
    written = ""
    if door == "page":
        form = {"text": FILE, "do": "check"}
        written += browser.post("/clusters/import/", form).content.decode()
        assert ClusterSetObject.objects.count() == 0
        browser.post("/clusters/import/", {**form, "do": "import"})
    elif door == "REST":
        for query in ("?dryRun=All", ""):
            address = f"/api/v1/cluster-imports{query}"
            sent = api.post(address, FILE, content_type="application/yaml")
            written += sent.content.decode()
            assert sent.status_code == 200
    else:
        path = tmp_path / "hub.yaml"
        path.write_text(FILE)
        out = io.StringIO()
        call_command("import_clusters", str(path), stdout=out, stderr=out)
        written = out.getvalue()

    found = stored()
    ((name, managed),) = found["clusters"]
    assert name == "prod-a"
    assert managed["document"]["spec"]["taints"] == [TAINT]
    assert managed["scores"] == {
        "usage": {"values": {"free": 5}, "validUntil": "2026-06-02T12:00:00+00:00"}
    }
    assert found["sets"] == [
        ("ManagedClusterSet", "", "prod", {}),
        ("ManagedClusterSetBinding", "apps", "prod", {}),
    ]
    for words in (
        "ManagedClusterSet prod",
        "ManagedClusterSetBinding apps/prod",
        "scores of gone",
        "not stored",
        "select only from sets that are bound in their namespace",
    ):
        assert words in written.replace("&#x27;", "'")


def test_sets_are_for_operators() -> None:
    user = person("ada", "cluster-administrator")
    api = APIClient()
    api.force_authenticate(user)

    sent = api.post(
        "/api/v1/cluster-imports", text_of(*BOUND), content_type="application/yaml"
    )

    assert sent.status_code == 403
    assert ClusterSetObject.objects.count() == 0
