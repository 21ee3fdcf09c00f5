"""Measures the Kubernetes driver on a real API server: `pytest tests/load/bench_kubernetes.py -s -n 0`."""

import subprocess
import time
import tracemalloc
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median

import pytest

from tests.kubernetes.members import (
    MISSING,
    SCRIPT,
    Administrator,
    Hub,
    Member,
    environment_of,
    is_possible,
)
from tests.kubernetes.test_time_and_requests import slow_link, twenty

ROUNDS = 5
HEARTBEATS = 1_000
DRIVERS = 200


def measure(hub: Hub, call: Callable[[], object]) -> tuple[int, int, float]:
    """Return requests, writes and milliseconds of processor time of a call."""
    hub.requests.clear()
    before = time.process_time()
    call()
    spent = time.process_time() - before
    return len(hub.requests), len(hub.recorders[-1].writes), 1_000 * spent


def bench_calls(member: Member, admin: Administrator) -> None:
    rows: dict[str, list[tuple[int, int, float]]] = {}
    for _ in range(ROUNDS):
        hub = Hub(member, admin)
        version, driver = twenty(hub), hub.driver()
        calls: dict[str, Callable[[], object]] = {
            "first apply of 20 objects": partial(driver.apply, version),
            "the same version again": partial(driver.apply, version),
            "observation": partial(driver.observe, "web"),
            "heartbeat with readings": driver.observe,
            "heartbeat": driver.observe,
        }
        for name, call in calls.items():
            rows.setdefault(name, []).append(measure(hub, call))
    print(f"{'call':28} {'requests':>8} {'writes':>6} {'CPU ms':>6}")
    for name, several in rows.items():
        requests, writes, _ = several[-1]
        print(
            f"{name:28} {requests:8} {writes:6} {median(one[2] for one in several):6.1f}"
        )


def bench_heartbeats(member: Member, admin: Administrator) -> None:
    driver = Hub(member, admin).driver()
    driver.observe()
    before = time.process_time()
    for _ in range(HEARTBEATS):
        driver.observe()
    spent = time.process_time() - before
    print(f"{HEARTBEATS:,} heartbeats: {spent:.1f} s of processor time")


def bench_memory(member: Member, admin: Administrator) -> None:
    hub = Hub(member, admin)
    hub.driver().observe()
    tracemalloc.start()
    drivers = [hub.driver() for _ in range(DRIVERS)]
    for driver in drivers:
        driver.observe()
    live = tracemalloc.get_traced_memory()[0] / DRIVERS / 1_024
    member.close()
    idle = tracemalloc.get_traced_memory()[0] / DRIVERS / 1_024
    tracemalloc.stop()
    print(
        f"memory of a driver, as Python counts it: {live:.0f} kB with a socket, {idle:.0f} kB without"
    )


def bench_far_cluster(member: Member, admin: Administrator) -> None:
    hub = Hub(member, admin)
    version = hub.version("v1", *twenty(hub).manifests[:18])
    with slow_link(member, 0.1) as server:
        driver = hub.driver(member.client(server=server))
        driver.observe()
        before = time.monotonic()
        driver.apply(version, timeout=60)
        needed = time.monotonic() - before
        member.close()
    print(
        f"18 objects at a round trip of 100 ms: {needed:.1f} s, {10 * needed:.0f} round trips"
    )


@pytest.mark.skipif(not is_possible(), reason=MISSING)
def test_calls_and_memory(tmp_path: Path) -> None:
    environment = environment_of(tmp_path)
    subprocess.run([SCRIPT, "start", "1"], check=True, env=environment)
    try:
        member = Member(tmp_path, 1)
        admin = Administrator(member.client())
        for bench in (bench_calls, bench_heartbeats, bench_far_cluster, bench_memory):
            bench(member, admin)
    finally:
        subprocess.run([SCRIPT, "stop"], check=True, env=environment)
