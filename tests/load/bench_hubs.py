"""Measures the mirror of a hub: `python -m pytest tests/load/bench_hubs.py -s -n 0`, on a quiet machine.

`FLEETUI_BENCH_BINDINGS` is the number of bindings of the first sync: 20,000 is the plan, 100,000 the stress.
"""

import json
import os
import re
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from clusters.models import HubStream
from clusters.queries import load_fleet
from fleetui.apimachinery.model import Semantics
from fleetui.bulk import batched
from placements.engine.scheduling.cycle import Cycle
from placements.engine.scheduling.scheduler import schedule
from placements.explain.hub_status import hub_status
from placements.hubs.kinds.kubefleet import KUBEFLEET, PREFIX
from placements.hubs.replay.observed_decisions import observe_due, replayed
from placements.hubs.trimming import MirrorRecord, record_of
from placements.hubs.watching.stream import StreamItem
from placements.manifests.policy import parse_policy
from placements.models import HubDecision
from tests.hubs.fake_hub import FakeHub, serve_hub
from tests.hubs.hub_documents import binding, member, placement, snapshot
from tests.hubs.projecting import NOW, ProjectedHub
from tests.hubs.scenarios import target
from tests.hubs.test_mirror import Written
from tests.hubs.test_trimming import stream
from tests.runtime.processes import ROOT, Watched, eventually, watching
from tests.runtime.test_watch_hubs import connect, hub_rows, mirror_rows

COUNT = 5_000
DECIDED, DECIDED_CLUSTERS = 1_000, 1_000
BATCH = 500
BINDINGS = int(os.environ.get("FLEETUI_BENCH_BINDINGS", "10000"))
CLUSTERS, BURST = 1_000, 5_000
HEARTBEAT_SECONDS = 60
MEASURED_SECONDS = 30.0
pytestmark = [pytest.mark.django_db, pytest.mark.timing]


def cpu(work: Callable[[], object]) -> float:
    started = time.process_time()
    work()
    return time.process_time() - started


def test_receiving_trimming_and_storing_a_binding() -> None:
    """Print CPU per binding, as a multiple of json.loads of it (goal: 3), and stored bytes (goal: 900)."""
    written = Written("ClusterResourceBinding")
    kind = stream("ClusterResourceBinding")
    lines = []
    for number in range(COUNT):
        content = binding(f"web-{number % 50}", f"cluster-{number}")
        content["metadata"] |= {
            "uid": f"uid-{number:06}",
            "resourceVersion": str(number + 1),
        }
        lines.append(json.dumps({**content, "kind": kind.kind}).encode())

    parsing = cpu(lambda: [json.loads(line) for line in lines])
    records: list[MirrorRecord] = []

    def receive() -> None:
        records.extend(
            record_of(KUBEFLEET, kind, "v1beta1", json.loads(line)) for line in lines
        )

    trimming = cpu(receive)
    items = [
        StreamItem(written.row.pk, record, is_from_list=True) for record in records
    ]

    def store() -> None:
        for start in range(0, COUNT, BATCH):
            written.write(*items[start : start + BATCH])

    storing = cpu(store)
    stored = sum(len(record.packed) for record in records) / COUNT

    ratio = (trimming + storing) / parsing
    print(f"\nbinding: {len(lines[0]):,} bytes, stored {stored:.0f}")
    for name, seconds in (
        ("parse", parsing),
        ("parse and trim", trimming),
        ("store", storing),
    ):
        print(f"{name:15} {1e6 * seconds / COUNT:6.0f} µs")
    print(
        f"together {ratio:.1f} times json.loads; {10_000 * (trimming + storing) / COUNT:.1f} CPU s per 10,000"
    )
    assert stored <= 900


def deciding_hub() -> ProjectedHub:
    """Return a hub whose placements have been decided, by our scheduler: this is about time only."""
    live = ProjectedHub(lease_expires_at=NOW + timedelta(days=1))
    zones, tiers = "abcdefgh", ("gold", "silver", "bronze")
    labels = [
        {"zone": zones[each % 8], "tier": tiers[each % 3]}
        for each in range(DECIDED_CLUSTERS)
    ]
    heartbeat = "2026-11-02T10:00:00Z"
    members = [
        member(f"cluster-{at:04}", heartbeat=heartbeat, **label)
        for at, label in enumerate(labels)
    ]
    live.put("MemberCluster", *members)
    live.project()
    with live.scope():
        HubStream.objects.update(listed_at=NOW - timedelta(minutes=1))
        fleet = load_fleet()
    gold = {
        "weight": 20,
        "preference": {"labelSelector": {"matchLabels": {"tier": "gold"}}},
    }
    affinity = {
        "clusterAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [gold]}
    }
    constraint = {
        "topologyKey": "zone",
        "maxSkew": 1,
        "whenUnsatisfiable": "DoNotSchedule",
    }
    plain = {"placementType": "PickN", "numberOfClusters": 20, "affinity": affinity}
    policies = [plain, {**plain, "topologySpreadConstraints": [constraint]}]
    decisions = [
        schedule(Cycle(fleet, parse_policy(policy), (), Semantics.KUBEFLEET))
        for policy in policies
    ]
    documents: dict[str, list[dict[str, Any]]] = {}
    for number in range(DECIDED):
        name, chosen = f"web-{number:04}", number % 2
        status = hub_status(decisions[chosen])
        assert status
        body = {
            "metadata": {"name": name},
            "spec": {**placement(name)["spec"], "policy": policies[chosen]},
        }
        documents.setdefault("ClusterResourcePlacement", []).append(body)
        one = snapshot(name)
        one["metadata"]["annotations"] = {f"{PREFIX}number-of-clusters": "20"}
        one["spec"]["policy"] = policies[chosen]
        one["status"] = {
            "observedCRPGeneration": 1,
            "conditions": [{"type": "Scheduled", **status.condition}],
            "targetClusters": list(map(target, status.decisions)),
        }
        documents.setdefault("ClusterSchedulingPolicySnapshot", []).append(one)
        for picked in decisions[chosen].picked:
            content = binding(name, picked.cluster)
            scores = {
                "affinityScore": picked.affinity_score,
                "priorityScore": picked.topology_spread_score,
            }
            content["spec"]["clusterDecision"]["clusterScore"] = scores
            documents.setdefault("ClusterResourceBinding", []).append(content)
    for kind, contents in documents.items():
        for part in batched(contents):
            live.put(kind, *part)
    live.project()
    return live


def test_recording_and_replaying_what_a_hub_decided() -> None:
    """Print CPU seconds for recording 1,000 decisions on 1,000 clusters, and replaying each of them."""
    live = deciding_hub()
    later = NOW + timedelta(seconds=10)

    def record() -> None:
        with live.scope():
            while observe_due(now=later):
                pass

    found: Counter[str] = Counter()

    def replay() -> None:
        with live.scope():
            for row in HubDecision.objects.all():
                found[replayed(row).agreement.value] += 1

    first = cpu(record)
    again = cpu(replay)
    with live.scope():
        contents = HubDecision.objects.values_list("content", flat=True)
        stored = sum(len(bytes(content)) for content in contents)
    print(
        f"\nrecording {DECIDED:,} decisions on {DECIDED_CLUSTERS:,} clusters: {first:.1f} CPU s, goal 60"
    )
    print(
        f"replaying each: {again:.1f} CPU s; stored {stored / DECIDED:,.0f} bytes each"
    )
    assert found == {"agrees": DECIDED}


def filled_hub(bindings: int, clusters: int) -> FakeHub:
    fake = FakeHub(bookmark_seconds=60.0)  # as API servers send them
    for number in range(clusters):
        fake.put("memberclusters", member(f"cluster-{number}"))
    for number in range(bindings):
        fake.put(
            "clusterresourcebindings",
            binding(f"web-{number % 100}", f"cluster-{number // 100}"),
        )
    fake.compact()
    return fake


@contextmanager
def connected(fake: FakeHub, folder: Path) -> Iterator[dict[str, str]]:
    """Serve a hub to a console of its own; yield the environment of that."""
    variables = {"FLEETUI_VAR_DIR": str(folder), "FLEETUI_MEMBER_LOOPBACK": "1"}
    with serve_hub(fake) as (_, server):
        subprocess.run(
            [sys.executable, "manage.py", "migrate"],
            cwd=ROOT,
            env=os.environ | variables,
            check=True,
        )
        connect(variables, server, folder)
        yield variables


def listed_once(fake: FakeHub, folder: Path) -> tuple[float, float]:
    """Return CPU seconds and greatest memory in MiB of a process that lists a hub, and ends."""
    folder.mkdir()
    with connected(fake, folder) as variables:
        process = subprocess.Popen(
            [sys.executable, "manage.py", "watch_hubs", "--once"],
            cwd=ROOT,
            env=os.environ | variables,
        )
        memory, ended = 0.0, 0
        while not ended:  # the greatest memory in `used` would be that of this process, from which it started
            with suppress(OSError, IndexError):
                state = Path(f"/proc/{process.pid}/status").read_text()
                memory = max(
                    memory, int(re.findall(r"VmHWM:\s+(\d+)", state)[0]) / 1024
                )
            time.sleep(0.05)
            ended, status, used = os.wait4(process.pid, os.WNOHANG)
        process.returncode = os.waitstatus_to_exitcode(status)
        assert process.returncode == 0
        assert mirror_rows(folder) == hub_rows(fake)
    return used.ru_utime + used.ru_stime, memory


def cpu_of(watcher: Watched) -> float:
    fields = (
        Path(f"/proc/{watcher.process.pid}/stat").read_text().rpartition(")")[2].split()
    )
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def test_first_sync(tmp_path: Path) -> None:
    """Print CPU per 10,000 bindings (goal: 8 s) and the memory of the watcher (goal: 200 MiB)."""
    base, small = listed_once(filled_hub(0, 1), tmp_path / "empty")

    seconds, memory = listed_once(filled_hub(BINDINGS, 100), tmp_path / "full")

    per_10_000 = 10_000 * (seconds - base) / BINDINGS
    print(
        f"\nfirst sync of {BINDINGS:,} bindings: {per_10_000:.1f} CPU s per 10,000, goal 8"
    )
    print(f"start of the process: {base:.1f} CPU s")
    print(
        f"memory of the watcher: {memory:.0f} MiB, goal 200; {small:.0f} of an empty hub"
    )


def test_an_idle_hub_and_quiet_heartbeats(tmp_path: Path) -> None:
    """Print requests to an idle hub (goal: 25 watches, 8 a minute), and CPU of heartbeats (goal: 2 %)."""
    fake = filled_hub(0, CLUSTERS)
    with (
        connected(fake, tmp_path) as variables,
        watching("manage.py", "watch_hubs", **variables) as watcher,
    ):
        eventually(lambda: mirror_rows(tmp_path) == hub_rows(fake))
        fake.wait_until(lambda: fake.watches == 22)
        requests, used = len(fake.seen), cpu_of(watcher)
        time.sleep(MEASURED_SECONDS)
        per_minute = 60 * (len(fake.seen) - requests) / MEASURED_SECONDS
        idle = 100 * (cpu_of(watcher) - used) / MEASURED_SECONDS
        print(
            f"\nidle hub: {fake.watches} watches, {per_minute:.0f} other requests a minute, goal 25 and 8"
        )
        print(f"idle watcher: {idle:.1f} % of a core, goal 2")

        used, started = cpu_of(watcher), time.monotonic()
        for number in range(int(MEASURED_SECONDS * CLUSTERS / HEARTBEAT_SECONDS)):
            beat = f"2026-11-01T11:00:{number % 60:02}Z"
            fake.put(
                "memberclusters", member(f"cluster-{number % CLUSTERS}", heartbeat=beat)
            )
            time.sleep(
                max(
                    0.0,
                    started + number * HEARTBEAT_SECONDS / CLUSTERS - time.monotonic(),
                )
            )
        busy = 100 * (cpu_of(watcher) - used) / (time.monotonic() - started)
        print(f"heartbeats of {CLUSTERS:,} clusters: {busy:.1f} % of a core, goal 2")
        eventually(lambda: mirror_rows(tmp_path) == hub_rows(fake))


def test_a_burst_of_events(tmp_path: Path) -> None:
    """Print the seconds until a burst is in the mirror (goal: 15)."""
    fake = filled_hub(1_000, 10)
    with (
        connected(fake, tmp_path) as variables,
        watching("manage.py", "watch_hubs", **variables) as watcher,
    ):
        eventually(lambda: mirror_rows(tmp_path) == hub_rows(fake))
        fake.wait_until(lambda: fake.watches == 22)
        used, started = cpu_of(watcher), time.monotonic()
        for number in range(BURST):
            content = binding(
                f"web-{number % 100}", f"cluster-{number // 100 % 10}", policy=number
            )
            fake.put("clusterresourcebindings", content)
        written = time.monotonic()
        expected = hub_rows(fake)
        eventually(lambda: mirror_rows(tmp_path) == expected)
        drained = time.monotonic()
        print(f"\nburst of {BURST:,} events, sent in {written - started:.1f} s")
        print(f"drained {drained - started:.1f} s after the first one, goal 15")
        print(f"CPU of the watcher: {cpu_of(watcher) - used:.1f} s")
