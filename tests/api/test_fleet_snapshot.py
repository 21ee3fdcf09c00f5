"""The snapshot of the fleet: its content, and comparisons of revisions that read it."""

import gzip
import json
from io import BytesIO, StringIO
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from django.test import Client
from rest_framework.test import APIClient

from clusters.case_manifest import case_of_cluster, parse_clusters
from clusters.fleet import Cluster, Fleet
from clusters.operations.edit import cordon
from clusters.queries import current_fleet
from fleetui import remote
from placements.manifests.binding import (
    BindingState,
    PlacedBinding,
    case_of_binding,
    parse_case_bindings,
)
from placements.services.fleet.snapshot import fleet_snapshot
from tests.builders import cluster, taint
from tests.commands import call_command
from tests.rows import NOW, decided, joined, pick_n_spec, placement_document

TOKEN = "0123456789abcdef0123456789abcdef01234567"
ADDRESS = "https://fleet.example.com/api/v1/fleet-snapshot"


def test_a_plain_cluster_and_binding_are_read_as_they_were() -> None:
    several = [
        cluster("bare"),
        cluster("full", {"region": "east"}, taints=(taint("gpu"),)),
        cluster("away", not_eligible="unhealthy"),
        Cluster("sized", properties={"kubernetes.azure.com/per-cpu-core-cost": "0.07"}),
    ]
    bindings = [
        PlacedBinding("a", BindingState.BOUND),
        PlacedBinding("b", BindingState.SCHEDULED, False, (1.0, -2), 3),
        PlacedBinding("c", BindingState.UNSCHEDULED, previous_state=BindingState.BOUND),
    ]

    assert list(parse_clusters(list(map(case_of_cluster, several)))) == several
    assert (
        list(
            parse_case_bindings(
                json.loads(json.dumps(list(map(case_of_binding, bindings))))
            )
        )
        == bindings
    )


def test_the_snapshot_has_the_fleet_and_its_bindings_compressed(
    reader: APIClient, client: Client
) -> None:
    joined(
        "a", region="east", site="x" * 63, rack="x" * 63, row="x" * 63
    )  # what is short is not compressed
    joined("b", region="west", site="x" * 63, rack="x" * 63, row="x" * 63)
    decided("web", pick_n_spec(1))

    response = reader.get("/api/v1/fleet-snapshot", headers={"Accept-Encoding": "gzip"})
    document = json.loads(gzip.decompress(response.content))

    assert response["Content-Encoding"] == "gzip"
    assert (
        Fleet(parse_clusters(document["clusters"])).clusters
        == current_fleet().fleet.clusters
    )
    assert [one["cluster"] for one in document["bindings"]["web"]] == ["b"]
    tag = {"If-None-Match": f'"{document["digest"]}"'}
    assert reader.get("/api/v1/fleet-snapshot", headers=tag).status_code == 304
    cordon(["b"], by=None, now=NOW)
    assert fleet_snapshot()["digest"] != document["digest"]
    assert client.get("/api/v1/fleet-snapshot").status_code == 401


class Console:
    """Replaces the pool of connections: it passes each request to the console of the test."""

    def __init__(self, api: APIClient) -> None:
        self.api = api

    def request(self, method: str, address: str, *, headers: Any, **_: Any) -> Any:
        assert headers["Authorization"] == f"Token {TOKEN}"
        response = self.api.generic(method, urlsplit(address).path)
        answer: Any = BytesIO(response.content)
        answer.status, answer.headers = response.status_code, response.headers
        return answer


def diff(*arguments: str) -> tuple[str, int]:
    out = StringIO()
    try:
        call_command(
            "simulate", "--diff", *arguments, "-o", "json", stdout=out, stderr=out
        )
    except SystemExit as end:
        return out.getvalue(), int(end.code or 0)
    return out.getvalue(), 0


def test_a_comparison_on_the_fleet_of_a_console_has_the_rows_of_its_preview(
    api: APIClient, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(remote, "_pool_of", lambda _server: Console(api))
    monkeypatch.setenv(remote.TOKEN, TOKEN)
    for name, region in (("a", "east"), ("b", "east"), ("c", "west"), ("d", "west")):
        joined(name, region=region)
    decided("web", pick_n_spec(1))
    spread = [{"topologyKey": "region", "maxSkew": 1}]
    changed = placement_document(
        "web", pick_n_spec(3, topologySpreadConstraints=spread)
    )
    for side, document in (
        ("base", placement_document("web", pick_n_spec(1))),
        ("head", changed),
    ):
        (tmp_path / side).mkdir()
        (tmp_path / side / "web.json").write_text(json.dumps(document))
    sides = (str(tmp_path / "base"), str(tmp_path / "head"))

    text, status = diff(*sides, "--fleet", ADDRESS)
    preview = api.post("/api/v1/placements/preview", changed, format="json").json()

    assert status == 0, text
    [row] = json.loads(text)["rows"]
    for key in ("joins", "leaves"):
        assert row[key] == preview[key]["first"], key
    assert (row["before"], row["stays"]) == (1, preview["stays"]["count"])
    assert row["becomesUnfulfilled"] is not preview["fulfilled"]
    found = {(finding["rule"], finding["message"]) for finding in row["findings"]}
    assert found
    assert found <= {
        (finding["rule"], finding["message"]) for finding in preview["findings"]
    }

    saved = tmp_path / "fleet.json"
    saved.write_text(json.dumps(fleet_snapshot()))
    assert diff(*sides, "--fleet", str(saved)) == (text, 0)
    assert diff(
        *sides, "--fleet", str(saved), "--bindings", "https://fleet.example.com"
    ) == (text, 0)
    assert diff(*sides, "--fleet", "http://fleet.example.com")[1] == 2
    monkeypatch.setenv(remote.SERVER, "https://fleet.example.com")
    assert diff(*sides) == (text, 0)
    monkeypatch.delenv(remote.TOKEN)
    text, status = diff(*sides, "--fleet", ADDRESS)
    assert (status, text) == (2, "a token is needed: the variable FLEETUI_TOKEN\n")
