"""`manage.py watch_hubs` as a process: killed at random, the mirror equals the hub afterwards."""

import json
import os
import random
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.clusters.kubernetes.servers import LocalServer
from tests.hubs.fake_hub import FakeHub, serve_hub
from tests.hubs.hub_documents import binding, member
from tests.hubs.test_connecting import kubeconfig
from tests.hubs.test_watcher import hub_with_content
from tests.runtime.processes import ROOT, eventually, watching

Rows = set[tuple[str, str, str]]
KILLS = 3


@pytest.fixture
def variables(console_folder: Path) -> dict[str, str]:
    return {"FLEETUI_VAR_DIR": str(console_folder), "FLEETUI_MEMBER_LOOPBACK": "1"}


def manage(
    variables: dict[str, str], *arguments: str
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "manage.py", *arguments],
        cwd=ROOT,
        env=os.environ | variables,
        capture_output=True,
        text=True,
        timeout=90,
        check=False,
    )


def connect(variables: dict[str, str], server: LocalServer, folder: Path) -> None:
    path = folder / "kubeconfig"
    path.write_text(json.dumps(kubeconfig(server.url)))
    connected = manage(variables, "connect_hub", "prod-eu", "--kubeconfig", str(path))
    assert connected.returncode == 0, connected.stdout + connected.stderr


def mirror_rows(folder: Path) -> Rows:
    with sqlite3.connect(folder / "fleetui.sqlite3", timeout=20) as database:
        return set(
            database.execute(
                "SELECT kind, name, resource_version FROM clusters_mirroredobject"
            )
        )


def end_lease(folder: Path) -> None:
    with sqlite3.connect(folder / "fleetui.sqlite3", timeout=20) as database:
        database.execute(
            "UPDATE clusters_hub SET lease_token = '' WHERE name = 'prod-eu'"
        )


def hub_rows(fake: FakeHub) -> Rows:
    return {
        (
            document["kind"],
            document["metadata"]["name"],
            document["metadata"]["resourceVersion"],
        )
        for document in fake.all_objects().values()
        if document["kind"] != "Work"
    }


@pytest.mark.nightly
def test_a_watcher_killed_at_random_leaves_a_mirror_that_equals_the_hub(
    tmp_path: Path, variables: dict[str, str]
) -> None:
    fake, chance = hub_with_content(), random.Random(7)
    with serve_hub(fake) as (_, server):
        connect(variables, server, tmp_path)
        for round_number in range(KILLS):
            with watching("manage.py", "watch_hubs", **variables) as watcher:
                fake.wait_until(lambda: fake.watches > 0, seconds=60)
                until = time.monotonic() + chance.uniform(0.2, 1.5)
                number = 0
                while time.monotonic() < until:
                    number += 1
                    fake.put(
                        "clusterresourcebindings",
                        binding("web", f"c{number % 40}", policy=number),
                    )
                    fake.put(
                        "memberclusters",
                        member(
                            f"c{number % 5}",
                            heartbeat=f"2026-11-01T10:{number % 60:02}:00Z",
                        ),
                    )
                    if number % 7 == 0:
                        name = binding("web", f"c{number % 40}")["metadata"]["name"]
                        fake.delete("clusterresourcebindings", name)
                    time.sleep(
                        0.003
                    )  # as fast as a watcher writes, which has to catch up before the end
                os.kill(watcher.process.pid, signal.SIGKILL)
            fake.wait_until(lambda: fake.watches == 0, seconds=10)
            if (
                round_number < KILLS - 1
            ):  # only the last one waits for the end of the lease
                end_lease(tmp_path)
        fake.put("memberclusters", member("last"))

        with watching("manage.py", "watch_hubs", **variables) as watcher:
            # The lease of the killed one is over after 15 seconds at the latest.
            assert eventually(
                lambda: mirror_rows(tmp_path) == hub_rows(fake), seconds=60
            )
            state = manage(variables, "hubs", "prod-eu", "-o", "json")
            assert json.loads(state.stdout)[0]["state"] == "live"
            started = time.monotonic()
            watcher.process.send_signal(signal.SIGTERM)
            assert watcher.process.wait(10) == 0
            assert time.monotonic() - started < 5


@pytest.mark.nightly
def test_watch_hubs_once_lists_everything_and_ends(
    tmp_path: Path, variables: dict[str, str]
) -> None:
    fake = hub_with_content()
    with serve_hub(fake) as (_, server):
        connect(variables, server, tmp_path)

        assert manage(variables, "watch_hubs", "--once").returncode == 0
        assert mirror_rows(tmp_path) == hub_rows(fake)

        fake.denied.add("list memberclusters")
        fake.compact()
        fake.put("memberclusters", member("last"))
        assert manage(variables, "hubs", "prod-eu", "--pause").returncode == 0
        assert manage(variables, "watch_hubs", "--once").returncode == 0
