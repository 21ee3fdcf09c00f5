"""Drivers of a process: cached by connection and credential, idle sockets, blocks, in-cluster."""

import os
import threading
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from django.db import OperationalError, connection
from django.test import override_settings

from clusters import kubernetes_drivers
from clusters.credentials import add_key, encrypt, fingerprint
from clusters.driver_factory import driver_for
from clusters.drivers.base import KUBERNETES, DriverUnavailable
from clusters.drivers.kubernetes.configuration import parse_connection
from clusters.kubeconfig import Secret
from clusters.kubernetes_drivers import MOST_DRIVERS, DriverCache, TokenFile, in_cluster
from clusters.models import ClusterCredential, MemberCluster, Membership
from clusters.operations.heartbeat import observe
from fleetui.encryption import keep_keys
from tests.clusters.kubernetes.certificates import authority
from tests.clusters.kubernetes.servers import (
    LocalServer,
    Member,
    always,
    answer,
    serve,
    status_body,
)
from tests.rows import joined

NOW = datetime(2026, 11, 22, 12, tzinfo=UTC)
TOKEN = "marker-token"
UPDATE = 'UPDATE "clusters_clustercredential"'
pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def drivers(monkeypatch: pytest.MonkeyPatch) -> Iterator[DriverCache]:
    cache = DriverCache()
    monkeypatch.setattr(kubernetes_drivers, "drivers", cache)
    yield cache
    cache.clear()


def connected(
    server: LocalServer, name: str = "member", *, token: str = TOKEN
) -> MemberCluster:
    cluster = joined(name)
    cluster.driver, cluster.connection = (
        KUBERNETES,
        {"server": server.url, "ca": authority().pem},
    )
    cluster.save()
    secret = Secret({"token": token})
    ClusterCredential.objects.create(
        cluster=cluster,
        ciphertext=encrypt(cluster.uid, secret),
        kind=secret.kind,
        fingerprint=fingerprint(secret),
        set_by="ana",
        set_at=NOW,
    )
    return again(cluster)


def again(cluster: MemberCluster) -> MemberCluster:
    return MemberCluster.objects.select_related("credential").get(pk=cluster.pk)


def beat(cluster: MemberCluster, now: datetime = NOW) -> str:
    """Observe a cluster once; return the code of the error, "" without one."""
    try:
        driver_for(again(cluster), clock=lambda: now).observe(timeout=2.0)
    except DriverUnavailable as error:
        return error.code
    return ""


def tokens(server: LocalServer) -> list[str]:
    return [
        request.headers["authorization"].removeprefix("Bearer ")
        for request in server.requests
    ]


def ready(link, request, server) -> None:
    link.sendall(
        answer(200, raw=b"ok")
        if request.path == "/readyz"
        else answer(403, status_body(403))
    )


def test_one_driver_and_one_socket_for_all_calls(drivers: DriverCache) -> None:
    with serve(ready) as server:
        cluster = connected(server)

        assert [beat(cluster) for _ in range(3)] == ["", "", ""]
        assert (len(drivers), server.connections) == (1, 1)
        assert set(tokens(server)) == {TOKEN}
        assert server.requests[0].headers["user-agent"].startswith("fleetui/")
        drivers.clear()


def test_another_credential_is_used_by_the_next_call(drivers: DriverCache) -> None:
    with serve(ready) as server:
        cluster = connected(server)
        beat(cluster)
        newer = encrypt(cluster.uid, Secret({"token": "newer"}))
        ClusterCredential.objects.update(ciphertext=newer, revision=2)

        beat(cluster)

        assert tokens(server)[-1] == "newer"
        assert len(drivers) == 1
        drivers.clear()


def test_another_connection_is_another_driver(drivers: DriverCache) -> None:
    with serve(ready) as first, serve(ready) as second:
        cluster = connected(first)
        beat(cluster)
        cluster.connection = {**cluster.connection, "server": second.url}
        cluster.save()

        assert beat(cluster) == ""
        assert second.requests
        assert len(drivers) == 1
        drivers.clear()


def test_a_rotation_of_keys_needs_no_restart(
    drivers: DriverCache, tmp_path: Path
) -> None:
    with (
        override_settings(
            CREDENTIAL_KEYS=(), CREDENTIAL_KEY_FILE=tmp_path / "credential.keys"
        ),
        serve(ready) as server,
    ):
        keep_keys()
        cluster = connected(server)
        assert beat(cluster) == ""
        add_key()
        ClusterCredential.objects.update(
            ciphertext=encrypt(cluster.uid, Secret({"token": TOKEN}))
        )
        (tmp_path / "credential.keys").write_text(
            (tmp_path / "credential.keys").read_text().split()[0]
        )
        for driver in drivers._cached.values():
            driver.client.close_idle(seconds=0)

        assert beat(cluster) == ""
        drivers.clear()


def test_a_lost_key_is_an_error_of_the_cluster_alone() -> None:
    with serve(ready) as server:
        cluster = connected(server)
        with override_settings(
            CREDENTIAL_KEYS=(), CREDENTIAL_KEY_FILE=Path("/nowhere/credential.keys")
        ):
            assert beat(cluster) == "credentials-unreadable"
        assert server.requests == []
        ClusterCredential.objects.all().delete()
        assert beat(cluster) == "credentials-unreadable"


def test_the_least_recently_used_leaves_first() -> None:
    assert MOST_DRIVERS == 2_000
    with serve(ready) as server:
        cache = DriverCache(most=2)
        kubernetes_drivers.drivers = cache
        rows = [connected(server, f"member-{number}") for number in range(3)]
        for row in (rows[0], rows[1], rows[0], rows[2]):
            beat(row)

        assert list(cache._cached) == [rows[0].pk, rows[2].pk]
        assert sum(driver.client.idle_sockets for driver in cache._cached.values()) == 2
        cache.clear()


def test_idle_sockets_are_closed_after_twenty_seconds() -> None:
    now = [0.0]
    cache = DriverCache(monotonic=lambda: now[0])
    kubernetes_drivers.drivers = cache
    with serve(ready) as server:
        cluster = connected(server)
        beat(cluster)
        (cached,) = cache._cached.values()

        now[0] = 19.0
        cache.close_idle()
        assert cached.client.idle_sockets == 1
        now[0] = 20.5
        cache.close_idle()
        assert cached.client.idle_sockets == 0


def test_two_rejections_block_for_five_minutes_over_all_workers(
    drivers: DriverCache,
) -> None:
    with serve(always(answer(401, status_body(401)))) as server:
        cluster = connected(server)
        times = [
            NOW + timedelta(seconds=seconds) for seconds in (0, 60, 120, 180, 359, 361)
        ]

        assert [beat(cluster, now) for now in times] == ["credentials"] * 6
        assert (
            len(server.requests) == 3
        )  # the last one, after five minutes, was a call again
        row = ClusterCredential.objects.get()
        assert (row.unauthorized_count, row.unauthorized_since) == (3, NOW)


@pytest.mark.django_db(transaction=True)
def test_a_database_that_refuses_the_note_neither_hides_the_rejection_nor_loses_the_block(
    drivers: DriverCache,
) -> None:
    refused: list[str] = []

    def refuse(execute, sql, *rest):
        if sql.startswith(UPDATE) and len(refused) < 4:
            refused.append(sql)
            raise OperationalError("database table is locked")
        return execute(sql, *rest)

    with (
        serve(always(answer(401, status_body(401)))) as server,
        connection.execute_wrapper(refuse),
    ):
        cluster = connected(server)
        times = [
            NOW + timedelta(seconds=seconds) for seconds in (0, 15, 30, 45, 60, 75)
        ]

        assert [beat(cluster, now) for now in times] == ["credentials"] * 6

        assert len(server.requests) == 2
        assert len(refused) == 4
        row = ClusterCredential.objects.get()
        assert (row.unauthorized_count, row.unauthorized_since) == (2, NOW)
        assert row.blocked_until == times[1] + timedelta(minutes=5)


@pytest.mark.django_db(transaction=True)
def test_a_database_that_refuses_a_note_about_a_success_hides_no_answer(
    drivers: DriverCache,
) -> None:
    answers = [401, 200, 200]
    refused: list[str] = []

    def behave(link, request, server) -> None:
        if request.path != "/readyz":
            link.sendall(answer(403, status_body(403)))
            return
        status = answers.pop(0)
        link.sendall(
            answer(200, raw=b"ok") if status == 200 else answer(401, status_body(401))
        )

    def refuse(execute, sql, *rest):
        if sql.startswith(UPDATE) and len(answers) == 1 and not refused:
            refused.append(sql)
            raise OperationalError("database table is locked")
        return execute(sql, *rest)

    with serve(behave) as server, connection.execute_wrapper(refuse):
        cluster = connected(server)

        assert [beat(cluster) for _ in range(2)] == ["credentials", ""]
        assert refused
        assert ClusterCredential.objects.get().unauthorized_count == 1
        assert beat(cluster) == ""
        assert ClusterCredential.objects.get().unauthorized_count == 0


def test_a_blocked_call_says_since_when_and_until_when(drivers: DriverCache) -> None:
    with serve(always(answer(401, status_body(401)))) as server:
        cluster = connected(server)
        beat(cluster)
        beat(cluster)
        driver = driver_for(again(cluster), clock=lambda: NOW + timedelta(seconds=100))

        with pytest.raises(DriverUnavailable) as error:
            driver.observe()

    assert (
        str(error.value)
        == "credentials rejected since 2026-11-22 12:00 UTC; no call until they change"
    )
    assert error.value.retry_after == 200.0


def test_a_success_or_another_credential_ends_the_block(drivers: DriverCache) -> None:
    answers = [401, 200, 401, 401, 200]

    def behave(link, request, server) -> None:
        if request.path != "/readyz":
            link.sendall(answer(403, status_body(403)))
            return
        status = answers.pop(0)
        link.sendall(
            answer(200, raw=b"ok") if status == 200 else answer(401, status_body(401))
        )

    with serve(behave) as server:
        cluster = connected(server)

        assert [beat(cluster) for _ in range(2)] == ["credentials", ""]
        assert ClusterCredential.objects.get().unauthorized_count == 0
        assert [beat(cluster) for _ in range(3)] == ["credentials"] * 3
        newer = encrypt(cluster.uid, Secret({"token": "newer"}))
        ClusterCredential.objects.update(
            ciphertext=newer,
            revision=2,
            unauthorized_count=0,
            unauthorized_since=None,
            blocked_until=None,
        )
        assert beat(cluster) == ""
        drivers.clear()


def test_a_cluster_is_observed_and_joins(drivers: DriverCache) -> None:
    with serve(Member()) as server:
        cluster = connected(server)
        MemberCluster.objects.update(
            observe_at=NOW, membership=Membership.JOINING, expects_report=True
        )

        assert observe(now=NOW).observed == 1

        row = again(cluster)
        assert (row.membership, row.heartbeat_at, row.verdict) == (
            Membership.JOINED,
            NOW,
            "",
        )
        assert row.properties["k8s.io/k8s-version"] == "v1.30.1"
        drivers.clear()


def test_why_a_cluster_does_not_answer_is_kept_until_it_answers(
    drivers: DriverCache,
) -> None:
    with serve(always(answer(503, status_body(503)))) as server:
        cluster = connected(server)
        MemberCluster.objects.update(observe_at=NOW)
        observe(now=NOW)
        silent = again(cluster)

    later = NOW + timedelta(minutes=2)
    with serve(ready) as server:
        MemberCluster.objects.update(
            connection={"server": server.url, "ca": authority().pem}, observe_at=later
        )
        observe(now=later)
        answering = again(cluster)
        drivers.clear()

    assert (silent.unanswered_since, silent.unanswered_code) == (NOW, "http-503")
    assert (answering.unanswered_since, answering.unanswered_code) == (None, "")


def test_threads_share_one_driver(drivers: DriverCache) -> None:
    with serve(ready) as server:
        cluster = connected(server)
        found = [driver_for(cluster) for _ in range(8)]
        threads = [threading.Thread(target=driver.observe) for driver in found]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

        assert server.connections <= 4
        drivers.clear()


def test_in_cluster(tmp_path: Path) -> None:
    (tmp_path / "ca.crt").write_text(authority().pem)
    (tmp_path / "token").write_text("first\n")
    environ = {"KUBERNETES_SERVICE_HOST": "fd00::1", "KUBERNETES_SERVICE_PORT": "443"}
    parsed = parse_connection({"inCluster": True})

    connection, secret = in_cluster(parsed, tmp_path, environ)

    assert connection == replace(
        parsed, server="https://[fd00::1]:443", ca=authority().pem
    )
    assert secret() == {"token": "first"}
    (tmp_path / "token").write_text("second")
    os.utime(tmp_path / "token", ns=(1, 1))
    assert secret() == {"token": "second"}


def test_in_cluster_outside_of_a_pod(tmp_path: Path) -> None:
    with pytest.raises(DriverUnavailable) as error:
        in_cluster(parse_connection({"inCluster": True}), tmp_path, {})
    assert error.value.code == "not-in-cluster"
    with pytest.raises(DriverUnavailable):
        TokenFile(tmp_path / "token")()
