"""A recording of a hub on a real API server, replayed by the fake hub."""

import gzip
import json
import signal
import time
from collections.abc import Iterator
from contextlib import ExitStack
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from fleetui.hub_scope import in_hub
from placements.hubs.kinds.kubefleet import PARENT
from placements.hubs.projection.operations import project_changes
from placements.models import Binding, Placement, StagedRun
from tests.hubs.fake_hub import FakeHub
from tests.hubs.projecting import NOW
from tests.hubs.watching import watching
from tests.kubernetes.hub_server import HubServer, hub_server
from tests.kubernetes.test_hub_mirror import Console, compared, life_of_a_placement
from tests.runtime.processes import eventually
from tests.runtime.processes import watching as running

OWNER = "acme-shop"


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HubServer]:
    with hub_server(tmp_path_factory.mktemp("hub")) as server:
        yield server


@pytest.fixture(scope="module")
def recorded(
    hub: HubServer, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, Path]:
    """Record the life of a placement to its staged update run, with and without its names, until SIGINT."""
    console = Console(tmp_path_factory.mktemp("console"), hub)
    console.connect()
    plain, anonymous = (
        console.folder / "plain.jsonl.gz",
        console.folder / "anonymous.jsonl",
    )
    life = life_of_a_placement(hub, OWNER)
    for _ in islice(life, 2):
        pass
    with ExitStack() as stack:
        recorders = [
            stack.enter_context(
                running(
                    "manage.py",
                    "record_hub",
                    "prod-eu",
                    "--to",
                    str(path),
                    *more,
                    **console.variables,
                )
            )
            for path, more in ((plain, ()), (anonymous, ("--anonymise",)))
        ]
        eventually(lambda: plain.exists() and anonymous.exists(), seconds=40)
        time.sleep(3)  # the lists
        for _ in islice(life, 5):
            time.sleep(0.5)
        time.sleep(1)
        for recorder in recorders:
            recorder.process.send_signal(signal.SIGINT)
            recorder.wait_for(r"Hub prod-eu recorded to", seconds=30)
            assert recorder.process.wait(20) == 0
    return plain, anonymous


def replayed(path: Path) -> FakeHub:
    """Return a fake hub that got what was recorded, in its order."""
    text = (
        gzip.decompress(path.read_bytes())
        if path.suffix == ".gz"
        else path.read_bytes()
    )
    fake = FakeHub()
    for line in map(json.loads, text.splitlines()):
        plural, _, group = line["stream"].partition(".")
        metadata = line["object"]["metadata"]
        if line["type"] == "DELETED":
            fake.delete(plural, metadata["name"], metadata.get("namespace", ""))
        else:
            fake.put(plural, line["object"], group=group)
    return fake


def objects_of(fake: FakeHub) -> dict[tuple[str, str, str], dict[str, Any]]:
    return {
        (document["kind"], namespace, name): document
        for (_, _, namespace, name), document in fake.all_objects().items()
    }


def test_a_recording_has_what_the_hub_has(
    hub: HubServer, recorded: tuple[Path, Path]
) -> None:
    found, wanted = objects_of(replayed(recorded[0])), hub.objects()
    assert found.keys() == wanted.keys()
    for key, document in wanted.items():
        # The fake hub counts its own versions.
        version = found[key]["metadata"]["resourceVersion"]
        wanted_here = {
            **document,
            "metadata": {**document["metadata"], "resourceVersion": version},
        }
        assert compared(found[key]) == compared(wanted_here), key


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("number", [0, 1])
def test_a_replayed_recording_is_mirrored_and_shown(
    recorded: tuple[Path, Path], number: int
) -> None:
    """Also without the names of the hub: what refers to what stays."""
    fake = replayed(recorded[number])
    if number:
        assert "acme" not in recorded[1].read_text()
    with watching(fake) as live:
        row = live.hubs[0]
        live.work_until_equal(seconds=30)
        with in_hub(row.pk):
            while project_changes(now=NOW):
                pass
            placement = Placement.objects.get()
            assert (placement.name == OWNER) is not bool(number)
            bound = dict(Binding.objects.values_list("cluster_name", "state"))
            assert len(bound) == 1
            assert placement.policy_snapshots.filter(is_latest=True).count() == 1
            run = StagedRun.objects.get()
            assert run.placement_name == placement.full_name
            members = {key[2] for key in objects_of(fake) if key[0] == "MemberCluster"}
            assert set(bound) < members
            assert len(members) == 3
    for (kind, _, name), document in objects_of(fake).items():
        if parent := (document["metadata"].get("labels") or {}).get(PARENT):
            assert parent == placement.name, kind
            assert name.startswith(placement.name), name
