"""A watcher on fake hubs: states, leases, credentials, faults (`rules/live-hub.md#state-of-a-hub`)."""

import threading
from datetime import UTC, datetime, timedelta

import pytest

from clusters.models import Hub, HubStream, MirroredObject
from fleetui.hub_scope import in_hub
from fleetui.models import Event
from tests.hubs.fake_hub import FakeHub
from tests.hubs.hub_documents import binding, member, placement, snapshot
from tests.hubs.watching import SLOW, Watching, new_watcher, served, set_token, watching

pytestmark = pytest.mark.django_db


def hub_with_content(clusters: int = 3) -> FakeHub:
    fake = FakeHub()
    names = [f"c{number}" for number in range(clusters)]
    for name in names:
        fake.put("memberclusters", member(name))
    fake.put("clusterresourceplacements", placement("web"))
    fake.put("resourceplacements", placement("web", namespace="shop"))
    fake.put("clusterschedulingpolicysnapshots", snapshot("web"))
    for name in names[:2]:
        fake.put("clusterresourcebindings", binding("web", name))
    fake.put("namespaces", {"metadata": {"name": "shop"}})
    fake.put(
        "works",
        {"metadata": {"name": "web-work", "namespace": "fleet-member-c0"}, "spec": {}},
    )
    return fake


@pytest.mark.servers_only
@pytest.mark.servers
def test_a_hub_becomes_live_and_the_mirror_equals_it() -> None:
    with watching(hub_with_content()) as run:
        run.work_until_state("live")
        run.work_until_equal()
        run.fake.put("clusterresourcebindings", binding("web", "c1", state="Bound"))
        run.fake.delete("memberclusters", "c2")
        run.work_until_equal()

        hub = Hub.objects.get(pk=run.hub.pk)
        assert (hub.server_version, run.absent()) == ("v1.30.1", [])
        assert run.stream("memberclusters").version == "v1beta1"
        allowed = {
            permission["resource"].partition(".")[0]: permission["verbs"]
            for permission in hub.found["permissions"]
        }
        assert allowed["memberclusters"]["list"] is True
        with in_hub(hub.pk):
            assert HubStream.objects.count() == 22
            assert not MirroredObject.objects.filter(kind="Work").exists()
        with in_hub(hub.pk):  # who has no role there learns nothing of it
            events = Event.objects.filter(kind="hub", name="prod-eu").order_by("id")
            states = list(events.values_list("after", flat=True))
        assert [state["state"] for state in states if state] == [
            "connecting",
            "syncing",
            "live",
        ]


def test_a_hub_that_is_listed_after_the_last_look_at_its_state_is_left_live(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """`watch_hubs --once` ends when all is listed; what replays its decisions asks for the state."""
    with watching(hub_with_content(), tick_seconds=0.01) as run:
        watcher = run.watcher
        ended = threading.Event()
        monkeypatch.setattr(watcher, "write_regularly", ended.wait)

        def lists_between_two_looks() -> bool:
            if not watcher.hubs[run.hub.pk].streams:
                return False
            while not watcher.is_synced():
                watcher.write_next(seconds=0.05)
            ended.set()
            return True

        watcher.run(threading.Event(), until=lists_between_two_looks)

        assert run.state() == "live"


@pytest.mark.nightly
def test_a_live_hub_has_an_age_at_once() -> None:
    with watching(hub_with_content(), flush_seconds=60.0) as run:
        run.work_until_state("live")
        run.work()
        run.work()
        assert run.stream("memberclusters").heard_at is not None


@pytest.mark.nightly
def test_reading_an_idle_hub_takes_one_watch_per_stream() -> None:
    with watching(hub_with_content(), pace=SLOW) as run:
        run.work_until_state("live")
        run.work_until(lambda: run.fake.watches == 22)
        before = len(run.fake.seen)
        run.work_for(1.0)
        assert [seen.verb for seen in run.fake.seen[before:]] == []


@pytest.mark.nightly
def test_an_optional_kind_may_be_absent_or_forbidden() -> None:
    fake = hub_with_content()
    fake.absent.add("resourcebindings")
    fake.denied.add("list namespaces")
    with watching(fake) as run:
        run.work_until_state("live")
        run.work_until_equal()

        def states() -> set[str]:
            with in_hub(run.hub.pk):
                return set(
                    HubStream.objects.filter(plural="namespaces").values_list(
                        "state", flat=True
                    )
                )

        run.work_until(lambda: states() == {"forbidden"})
        assert run.absent() == ["resourcebindings.placement.kubernetes-fleet.io"]


@pytest.mark.nightly
def test_a_required_kind_that_is_forbidden_names_verb_and_kind() -> None:
    fake = hub_with_content()
    fake.denied.add("list memberclusters")
    with watching(fake) as run:
        run.work_until_state("refused")
        reason = Hub.objects.get(pk=run.hub.pk).state_reason
        assert reason == "not allowed: list memberclusters.cluster.kubernetes-fleet.io"
        fake.denied.clear()
        run.work_until_state("live")


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"groups": set()}, "looked for placement.kubernetes-fleet.io"),
        ({"version": "v1.19.3"}, "Kubernetes 1.20 or newer"),
        ({"absent": {"memberclusters"}}, "does not serve memberclusters"),
    ],
)
def test_a_server_that_is_no_such_hub_is_not_supported(
    change: dict[str, object], reason: str
) -> None:
    with watching(FakeHub(**change)) as run:  # type: ignore[arg-type]
        run.work_until_state("unsuitable")
        assert reason in Hub.objects.get(pk=run.hub.pk).state_reason


def test_a_web_server_is_not_supported() -> None:
    fake = FakeHub()
    fake.fault("html")
    with watching(fake) as run:
        run.work_until_state("unsuitable")
        assert (
            "not as a Kubernetes API server"
            in Hub.objects.get(pk=run.hub.pk).state_reason
        )


def test_rejected_credentials_are_read_again_once_and_replaced_without_a_restart() -> (
    None
):
    fake = hub_with_content()
    with watching(fake, pace=SLOW) as run:
        run.work_until_state("live")
        run.work_until_equal()
        lists, before = fake.count("list"), len(fake.seen)
        fake.token = "a-new-token"
        fake.cut_watches()
        run.work_until_state("refused")
        run.work_for(0.5)  # what the other streams had begun ends
        requests = len(fake.seen)
        assert requests - before <= 2 * 22
        run.work_for(0.5)
        assert len(fake.seen) == requests  # blocked
        with in_hub(run.hub.pk):
            assert (
                MirroredObject.objects.filter(kind="MemberCluster").count() == 3
            )  # kept

        set_token(run.hub, "a-new-token")
        fake.put("memberclusters", member("c9"))
        run.work_until_state("live")
        run.work_until_equal()
        assert fake.count("list") == lists


def test_a_lost_key_refuses_that_hub_alone() -> None:
    with watching(hub_with_content(), hub_with_content()) as run:
        run.hub.credential.ciphertext = "unreadable"
        run.hub.credential.save()
        run.work_until_state("live", run.hubs[1])
        run.work_until_state("refused")
        assert "cannot be read" in Hub.objects.get(pk=run.hub.pk).state_reason


@pytest.mark.nightly
def test_an_outage_is_shown_and_the_watch_resumes_without_a_list() -> None:
    fake = hub_with_content()
    with watching(fake) as run:
        run.work_until_equal()
        run.work_until_state("live")
        lists = fake.count("list")
        fake.fault("503", "watch", seconds=1.0)
        fake.cut_watches()
        run.work_for(0.3)
        assert run.state() == "live"  # for 20 seconds

        for stream in run.watcher.hubs[run.hub.pk].streams.values():
            stream.status.disconnected = (
                stream.status.disconnected and stream.status.disconnected - 25
            )
        run.work_until_state("stale")

        fake.faults.clear()
        fake.put("memberclusters", member("c9"))
        run.work_until_state("live")
        run.work_until_equal()
        assert fake.count("list") == lists


@pytest.mark.nightly
def test_a_paused_hub_has_no_traffic_until_it_is_resumed() -> None:
    with watching(hub_with_content()) as run:
        run.work_until_equal()
        Hub.objects.filter(pk=run.hub.pk).update(is_paused=True)
        run.work_until(lambda: not run.watcher.hubs)
        run.fake.wait_until(lambda: run.fake.watches == 0)
        assert Hub.objects.get(pk=run.hub.pk).lease_token == ""

        lists = run.fake.count("list")
        run.fake.put("memberclusters", member("c9"))
        Hub.objects.filter(pk=run.hub.pk).update(is_paused=False)
        run.work_until_equal()
        assert run.fake.count("list") == lists


@pytest.mark.servers_only
@pytest.mark.servers
def test_two_watchers_share_the_hubs_and_one_takes_over() -> None:
    with watching(hub_with_content()) as run:
        run.work_until_equal()
        run.work_until_state("live")  # streams without objects have listed, too
        other = Watching(new_watcher(), run.hubs, run.fakes)
        try:
            other.work()
            assert other.watcher.hubs == {}
            run.kill()
            before = len(run.fake.seen)
            Hub.objects.update(
                lease_expires_at=datetime.now(UTC) - timedelta(seconds=1)
            )
            run.fake.put("memberclusters", member("c9"))
            other.work_until_equal()
            assert list(other.watcher.hubs) == [run.hub.pk]
            assert "list" not in {seen.verb for seen in run.fake.seen[before:]}
        finally:
            other.kill()


@pytest.mark.servers_only
@pytest.mark.servers
def test_a_watcher_that_lost_its_lease_stops_reading_and_writes_nothing() -> None:
    with watching(hub_with_content()) as run:
        run.work_until_equal()
        Hub.objects.update(
            lease_token="another",
            lease_expires_at=datetime.now(UTC) + timedelta(minutes=1),
        )
        run.fake.put("memberclusters", member("c9"))
        run.work_until(lambda: not run.watcher.hubs)
        run.fake.wait_until(lambda: run.fake.watches == 0)
        assert not run.is_equal()


@pytest.mark.nightly
def test_a_stopped_watcher_writes_what_it_read_and_releases_the_hub() -> None:
    with watching(hub_with_content(), flush_seconds=60.0) as run:
        run.work_until_state("live")
        run.work_until_equal()
        run.work()  # a new state is written with what is quiet
        heartbeat = "2026-11-01T10:05:00Z"
        run.fake.put("memberclusters", member("c0", heartbeat=heartbeat))
        run.work_until(
            lambda: any(
                stream.quiet
                for stream in next(
                    iter(run.watcher.hubs.values())
                ).mirror.streams.values()
            )
        )
        run.finish()

        assert run.is_equal()
        assert Hub.objects.get(pk=run.hub.pk).lease_token == ""
        with in_hub(run.hub.pk):
            row = HubStream.objects.get(plural="memberclusters")
        assert row.resource_version == str(run.fake.revision)
        assert row.heard_at is not None


@pytest.mark.nightly
def test_the_clock_of_the_hub_is_compared_with_ours() -> None:
    with watching(FakeHub(clock_offset=600.0)) as run:
        run.work_until(lambda: Hub.objects.get(pk=run.hub.pk).clock_offset_seconds)
        assert Hub.objects.get(pk=run.hub.pk).clock_offset_seconds == pytest.approx(
            600.0, abs=2.0
        )


@pytest.mark.nightly
def test_a_changed_storage_version_lists_again_and_loses_nothing() -> None:
    fake = hub_with_content()
    with watching(fake) as run:
        run.work_until_equal()
        run.work_until_state("live")
        fake.storage["clusterresourceplacements"] = "v1"
        run.watcher.hubs[run.hub.pk]._discovered -= 1_000  # type: ignore[operator]
        run.watcher.hubs[run.hub.pk].wake()
        run.work_until(lambda: run.stream("clusterresourceplacements").version == "v1")
        run.work_until(
            lambda: (
                run.stream("clusterresourceplacements").relists
                or fake.count("list", "clusterresourceplacements") == 2
            )
        )
        assert run.is_equal()


@pytest.mark.nightly
def test_only_the_chosen_namespaces_are_read() -> None:
    fake = hub_with_content()
    fake.put("resourceplacements", placement("web", namespace="other"))
    with watching(fake) as run:
        Hub.objects.filter(pk=run.hub.pk).update(namespaces=["shop"])
        run.work_until_state("live")
        run.work_until(lambda: "shop" in mirrored_namespaces(run))
        assert mirrored_namespaces(run) == {"shop"}


def mirrored_namespaces(run: Watching) -> set[str]:
    with in_hub(run.hub.pk):
        rows = MirroredObject.objects.filter(kind="ResourcePlacement")
        return set(rows.values_list("namespace", flat=True))


@pytest.mark.servers_only
@pytest.mark.servers
def test_a_killed_watcher_continues_where_the_mirror_is() -> None:
    fake = hub_with_content()
    with watching(fake) as run:
        for number in range(5):
            for step in range(6):
                fake.put(
                    "clusterresourcebindings",
                    binding("web", f"c{number}-{step}", state="Bound"),
                )
                run.work(seconds=0.01)
            run.kill()
            Hub.objects.update(lease_expires_at=None)
            run.watcher = new_watcher()
        fake.delete(
            "clusterresourcebindings", binding("web", "c1-1")["metadata"]["name"]
        )
        run.work_until_equal()
        assert len(served(fake)) > 30
