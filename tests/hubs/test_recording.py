"""Recordings of a hub: complete, without secrets, and without names where they are not wanted."""

import gzip
import json
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError
from django.test import override_settings

from clusters.models import Hub
from placements.hubs.connections.operations import change_hub
from placements.hubs.watching.recording import (
    collect_names,
    record_hub,
    with_cuts,
    without_names,
)
from tests.clusters.kubernetes.servers import LocalServer
from tests.commands import call_command
from tests.hubs.fake_hub import TOKEN, FakeHub, serve_hub
from tests.hubs.hub_documents import binding, member, override, placement, snapshot
from tests.hubs.watching import QUICK, connected_hub, served

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def connected() -> Iterator[tuple[FakeHub, LocalServer, Hub]]:
    with override_settings(MEMBER_LOOPBACK=True), serve_hub() as (fake, server):
        yield fake, server, connected_hub(server)


def fill(fake: FakeHub) -> None:
    fake.put("memberclusters", member("acme-paris", region="eu"))
    fake.put("clusterresourceplacements", placement("acme-shop"))
    fake.put("clusterschedulingpolicysnapshots", snapshot("acme-shop"))
    fake.put("clusterresourcebindings", binding("acme-shop", "acme-paris"))
    secret = override("acme-keys")
    secret["spec"]["clusterResourceSelectors"] = [
        {"group": "", "version": "v1", "kind": "Namespace", "name": "x"}
    ]
    rule = {
        "jsonPatchOverrides": [
            {"op": "add", "path": "/data/password", "value": "hunter2"}
        ]
    }
    secret["spec"]["policy"] = {"overrideRules": [rule]}
    fake.put("clusterresourceoverrides", secret)


def events_in(path: Path) -> list[dict[str, Any]]:
    text = (
        gzip.decompress(path.read_bytes())
        if path.suffix == ".gz"
        else path.read_bytes()
    )
    return [json.loads(line) for line in text.splitlines()]


@pytest.mark.nightly
def test_a_recording_gives_another_hub_the_same_objects(
    connected: tuple[FakeHub, LocalServer, Hub], tmp_path: Path
) -> None:
    fake, _, hub = connected
    fill(fake)

    def change() -> None:
        until = time.monotonic() + 20
        while ("watch", "memberclusters") not in {
            (seen.verb, seen.plural) for seen in fake.seen[:]
        }:
            assert time.monotonic() < until
            time.sleep(0.02)
        fake.put("memberclusters", member("acme-oslo"))
        fake.put("memberclusters", member("acme-oslo", region="no"))
        fake.delete("memberclusters", "acme-paris")

    changes = threading.Thread(target=change)
    changes.start()
    path = tmp_path / "hub.jsonl.gz"
    report = record_hub(hub, path, threading.Event(), seconds=4, pace=QUICK)
    changes.join()

    assert path.stat().st_mode & 0o077 == 0
    events = events_in(path)
    assert "hunter2" not in json.dumps(events)
    assert fake.token not in json.dumps(events)
    changes_requested = {
        seen.plural
        for seen in fake.seen
        if seen.verb in ("post", "put", "patch", "delete")
    }
    assert {one for one in changes_requested if "review" not in one} == set()
    assert sum(report.events.values()) == len(events)
    members = [
        (event["type"], event["object"]["metadata"]["name"])
        for event in events
        if "memberc" in event["stream"]
    ]
    oslo = "acme-oslo"
    assert members == [
        ("ADDED", "acme-paris"),
        ("ADDED", oslo),
        ("MODIFIED", oslo),
        ("DELETED", "acme-paris"),
    ]

    again = FakeHub()
    for event in events:
        group, _, plural = event["stream"].partition(".")[::-1]
        metadata = event["object"]["metadata"]
        if event["type"] == "DELETED":
            again.delete(plural, metadata["name"], metadata.get("namespace", ""))
        else:
            again.put(plural, event["object"], group=group)
    found, wanted = served(again), served(fake)
    assert found.keys() == wanted.keys()
    assert {key: uid for key, (uid, *_) in found.items()} == {
        key: uid for key, (uid, *_) in wanted.items()
    }


def test_an_anonymous_recording_has_no_name_and_keeps_what_refers_to_what(
    connected: tuple[FakeHub, LocalServer, Hub], tmp_path: Path
) -> None:
    fake, _, hub = connected
    fill(fake)
    path = tmp_path / "hub.jsonl"
    record_hub(hub, path, threading.Event(), seconds=1.5, is_anonymous=True, pace=QUICK)
    assert "acme" not in path.read_text()
    objects = {event["object"]["kind"]: event["object"] for event in events_in(path)}
    owner = objects["ClusterResourcePlacement"]["metadata"]["name"]
    assert (
        objects["ClusterSchedulingPolicySnapshot"]["metadata"]["name"] == f"{owner}-0"
    )
    bound = objects["ClusterResourceBinding"]
    assert (
        bound["spec"]["targetCluster"] == objects["MemberCluster"]["metadata"]["name"]
    )
    assert bound["metadata"]["labels"]["kubernetes-fleet.io/parent-CRP"] == owner


def test_names_are_replaced_in_names_that_contain_them_cut_or_whole() -> None:
    long = "a-cluster-with-a-name-of-more-than-27-characters"
    learned: dict[str, str] = {}
    for name in (long, long[:26]):
        collect_names({"kind": "MemberCluster", "metadata": {"name": name}}, learned)
    collect_names(
        {
            "kind": "Work",
            "metadata": {"name": "web-work", "namespace": f"fleet-member-{long}"},
        },
        learned,
    )
    names = with_cuts(learned)
    new = names[long]
    assert len({new, names[long[:26]], *learned.values()}) == 2
    texts = [
        long,
        f"fleet-member-{long}",
        f"web-{long[:27]}-0f3a",
        f"{long} left",
        f"{long}x",
        "default",
    ]
    assert without_names(texts, names) == [
        *(
            new,
            f"fleet-member-{new}",
            f"web-{new}-0f3a",
            f"{new} left",
            f"{long}x",
            "default",
        )
    ]
    assert without_names({"kind": long, "namespaces": {long: ""}}, names) == {
        "kind": long,
        "namespaces": {new: ""},
    }


def test_what_cannot_be_recorded_is_refused_and_leaves_no_file(
    connected: tuple[FakeHub, LocalServer, Hub], tmp_path: Path
) -> None:
    fake, _, _ = connected
    path = tmp_path / "hub.jsonl"

    def status(*arguments: str) -> int:
        with pytest.raises(CommandError) as refused:
            call_command("record_hub", *arguments, "--to", str(path), "--for", "1s")
        return refused.value.returncode

    assert status("nowhere") == 1
    fake.token = "another"
    assert status("prod-eu") == 1
    change_hub(
        "prod-eu",
        {"paused": True},
        by=None,
        now=Hub.objects.get(name="prod-eu").created_at,
    )
    assert status("prod-eu") == 1
    assert not path.exists()
    change_hub(
        "prod-eu",
        {"paused": False},
        by=None,
        now=Hub.objects.get(name="prod-eu").created_at,
    )
    fake.token = TOKEN
    path.write_text("mine")
    assert status("prod-eu") == 2
    assert path.read_text() == "mine"
