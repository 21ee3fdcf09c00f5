"""A watcher on fake hubs whose database work is done by the test: its other threads use no database."""

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

from django.test import override_settings

from clusters.credentials import HUB_PURPOSE, encrypt, fingerprint
from clusters.kubeconfig import Secret
from clusters.models import Hub, HubCredential, HubStream, MirroredObject
from fleetui.hub_scope import in_hub
from placements.hubs.trimming import unpack
from placements.hubs.watching.stream import StreamPace
from placements.hubs.watching.watcher import Watcher
from tests.clusters.kubernetes.certificates import authority
from tests.clusters.kubernetes.servers import LocalServer
from tests.hubs.fake_hub import TOKEN, FakeHub, serve_hub

QUICK = StreamPace(
    first_backoff=0.02,
    longest_backoff=0.1,
    steady=0.2,
    watch=(2, 3),
    extra_silence=-1.0,
    page=2.0,
    unavailable=0.2,
    absent=0.3,
)


def connected_hub(
    server: LocalServer, name: str = "prod-eu", *, token: str = TOKEN, **columns: Any
) -> Hub:
    """Save a hub with its credential, without a check."""
    values = {"created_at": datetime.now(UTC), "created_by": "tests", **columns}
    connection = {"server": server.url, "ca": authority().pem}
    hub = Hub.objects.create(
        name=name, kind="kubefleet", connection=connection, **values
    )
    set_token(hub, token)
    return hub


def set_token(hub: Hub, token: str) -> None:
    secret = Secret({"token": token})
    before = HubCredential.objects.filter(hub=hub).first()
    HubCredential.objects.update_or_create(
        hub=hub,
        defaults={
            "ciphertext": encrypt(hub.uid, secret, purpose=HUB_PURPOSE),
            "revision": before.revision + 1 if before else 1,
            "kind": "token",
            "fingerprint": fingerprint(secret),
            "set_by": "tests",
            "set_at": datetime.now(UTC),
        },
    )


@dataclass
class Watching:
    """A watcher with its hubs; `work` does what its threads would do with the database."""

    watcher: Watcher
    hubs: list[Hub]
    fakes: list[FakeHub]
    servers: list[LocalServer] = field(default_factory=list)

    @property
    def fake(self) -> FakeHub:
        return self.fakes[0]

    @property
    def hub(self) -> Hub:
        return self.hubs[0]

    def work(self, *, seconds: float = 0.02) -> None:
        self.watcher.tick()
        self.watcher.write_next(seconds=seconds)

    def work_until(
        self, is_true: Callable[[], object], *, seconds: float = 60.0
    ) -> None:
        until = time.monotonic() + seconds
        while not is_true():
            assert time.monotonic() < until, [self.state(hub) for hub in self.hubs]
            self.work()

    def work_for(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            self.work()

    def state(self, hub: Hub | None = None) -> str:
        return Hub.objects.values_list("state", flat=True).get(pk=(hub or self.hub).pk)

    def work_until_state(
        self, state: str, hub: Hub | None = None, *, seconds: float = 60.0
    ) -> None:
        self.work_until(lambda: self.state(hub) == state, seconds=seconds)

    def is_equal(self, index: int = 0) -> bool:
        """Return whether the mirror has exactly what the hub has, of the kinds that are mirrored."""
        return mirrored(self.hubs[index]) == served(self.fakes[index])

    def work_until_equal(self, *, seconds: float = 60.0) -> None:
        def is_equal() -> bool:
            return all(self.is_equal(index) for index in range(len(self.hubs)))

        self.work_until(is_equal, seconds=seconds)

    def stream(self, plural: str) -> HubStream:
        with in_hub(self.hub.pk):
            return HubStream.objects.get(plural=plural)

    def absent(self) -> list[str]:
        """Return the kinds that the hub lacks, as far as its streams are started for what it has."""
        started = self.watcher.hubs[self.hub.pk].started
        return sorted(kind.resource for kind in started.absent) if started else []

    def finish(self) -> None:
        """Stop as SIGTERM does."""
        for hub in self.watcher.hubs.values():
            hub.stop()
        self.watcher._stopped.set()
        self.watcher.queue.close(*self.watcher.hubs)
        while self.watcher.write_next(seconds=0.01):
            pass
        for hub in self.watcher.hubs.values():
            hub.join()
        self.watcher._release(list(self.watcher.hubs))

    def kill(self) -> None:
        """Stop as SIGKILL does: nothing more is written."""
        for hub in self.watcher.hubs.values():
            hub.stop()
            self.watcher.queue.close(hub.target.pk)
        for hub in self.watcher.hubs.values():
            hub.join()


def new_watcher(*, pace: StreamPace = QUICK, **options: Any) -> Watcher:
    return Watcher(pace=pace, renew_seconds=0.05, **({"flush_seconds": 0.1} | options))


@contextmanager
def watching(
    *fakes: FakeHub, pace: StreamPace = QUICK, **options: Any
) -> Iterator[Watching]:
    """Connect hubs and watch them; the first one is `prod-eu`."""
    with ExitStack() as stack:
        stack.enter_context(override_settings(MEMBER_LOOPBACK=True))
        servers = [
            stack.enter_context(serve_hub(fake))[1] for fake in fakes or (FakeHub(),)
        ]
        names = ["prod-eu", *(f"hub-{number}" for number in range(2, len(servers) + 1))]
        hubs = [
            connected_hub(server, name)
            for server, name in zip(servers, names, strict=True)
        ]
        found = Watching(new_watcher(pace=pace, **options), hubs, list(fakes), servers)
        try:
            yield found
        finally:
            found.kill()


def mirrored(hub: Hub) -> dict[tuple[str, str, str, str], tuple[str, str, object]]:
    with in_hub(hub.pk):
        columns = (
            "group",
            "kind",
            "namespace",
            "name",
            "uid",
            "resource_version",
            "manifest",
        )
        rows = MirroredObject.objects.values_list(*columns)
        return {
            (group, kind, namespace, name): (
                uid,
                version,
                unpack(bytes(manifest)).get("spec"),
            )
            for group, kind, namespace, name, uid, version, manifest in rows
        }


def served(fake: FakeHub) -> dict[tuple[str, str, str, str], tuple[str, str, object]]:
    found = {}
    for (group, plural, namespace, name), document in fake.all_objects().items():
        if plural in ("works", *fake.absent) or f"list {plural}" in fake.denied:
            continue
        metadata = document["metadata"]
        is_metadata = plural in (
            "clusterresourcesnapshots",
            "resourcesnapshots",
            "namespaces",
        )
        spec = None if is_metadata else document.get("spec")
        found[group, document["kind"], namespace, name] = (
            metadata["uid"],
            metadata["resourceVersion"],
            spec,
        )
    return found


SLOW = replace(QUICK, watch=(60, 90), unavailable=30.0)
"""For tests of what does not happen."""
