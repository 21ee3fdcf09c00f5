"""What every driver promises, as tests; a test module inherits them and says how to make its driver."""

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest

from clusters.drivers.base import (
    Applied,
    Driver,
    DriverFenced,
    DriverRejected,
    DriverUnavailable,
    ObjectRef,
    Removed,
    Version,
)
from clusters.drivers.readiness import Readiness
from tests.rows import NOW, config_map, namespace


class Clock:
    """A clock that only moves when someone sleeps."""

    def __init__(self) -> None:
        self.now = NOW
        self.slept: list[float] = []

    def __call__(self) -> datetime:
        """Return the time."""
        return self.now

    def sleep(self, seconds: float) -> None:
        """Pass time."""
        self.slept.append(seconds)
        self.now += timedelta(seconds=seconds)


def deployment(
    name: str, *, image: str = "shop:1.0", replicas: int = 2
) -> dict[str, Any]:
    """Make a Deployment manifest in the namespace shop."""
    labels = {"app": name}
    pod = {
        "metadata": {"labels": labels},
        "spec": {"containers": [{"name": name, "image": image}]},
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "namespace": "shop"},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": labels},
            "template": pod,
        },
    }


V1 = Version(
    "v1", "web", (namespace("shop"), config_map("settings"), deployment("web"))
)
V2 = Version("v2", "web", (namespace("shop"), deployment("web", image="shop:2.0")))
WEB = ObjectRef("apps", "Deployment", "shop", "web")
SETTINGS = ObjectRef("", "ConfigMap", "shop", "settings")


class DriverContract:
    """Needs three fixtures: `clock`, `connect` and `holds`.

    `connect(**connection)` makes a new driver, as a worker that was restarted does; `holds(placement)` gives
    the objects that the cluster has of a placement, past the driver. `prunes_despite_refusals`: objects that
    a new version drops go although it is refused in part.
    """

    prunes_despite_refusals = True

    def test_a_call_with_a_lower_fence_is_refused_and_changes_nothing(
        self, connect: Callable[..., Driver]
    ) -> None:
        driver = connect()
        driver.apply(replace(V2, fence=8))

        with pytest.raises(DriverFenced) as late:
            driver.apply(replace(V1, fence=7))
        with pytest.raises(DriverFenced):
            driver.remove("web", fence=7)

        seen = driver.observe("web").of("web")
        assert late.value.fence == 8
        assert seen is not None
        assert seen.version == V2.id

    def test_a_removed_placement_keeps_its_fence(
        self, connect: Callable[..., Driver]
    ) -> None:
        driver = connect()
        driver.apply(replace(V1, fence=7))
        driver.remove("web", fence=9)

        with pytest.raises(DriverFenced):
            driver.apply(replace(V1, fence=8))

        assert driver.observe(inventory=True).fences == {}

    def test_the_inventory_has_every_placement_with_its_fence(
        self, connect: Callable[..., Driver]
    ) -> None:
        driver = connect()
        driver.apply(replace(V1, fence=7))
        driver.apply(Version("x1", "other", (config_map("other"),), fence=3))

        assert driver.observe(inventory=True).fences == {"web": 7, "other": 3}
        assert driver.observe().fences is None

    def test_a_cluster_without_calls_has_nothing(
        self, connect: Callable[..., Driver]
    ) -> None:
        seen = connect().observe("web")

        assert seen.is_healthy
        assert seen.of("web") is None

    def test_applying_again_is_no_change(
        self, connect: Callable[..., Driver], holds: Any
    ) -> None:
        first, second = connect().apply(V1), connect().apply(V1)

        assert (first, second) == (
            Applied("v1", changed=True),
            Applied("v1", changed=False),
        )
        assert holds("web") == {
            str(ObjectRef.of(manifest)) for manifest in V1.manifests
        }

    def test_a_new_version_replaces_the_old_one_and_removes_what_is_gone(
        self, connect: Callable[..., Driver], holds: Any
    ) -> None:
        driver = connect()
        driver.apply(V1)
        driver.apply(V2)

        seen = driver.observe("web").of("web")

        assert seen
        assert (seen.version, seen.whole_version, not seen.refusals) == (
            "v2",
            "v2",
            True,
        )
        assert str(SETTINGS) not in holds("web")

    def test_placements_do_not_touch_each_other(
        self, connect: Callable[..., Driver], holds: Any
    ) -> None:
        driver = connect()
        driver.apply(V1)
        driver.apply(
            Version(
                "x1", "other", (namespace("other"), config_map("other", in_="other"))
            )
        )

        driver.remove("web")

        assert holds("web") == set()
        assert holds("other") == {"Namespace other", "ConfigMap other/other"}

    def test_removing_twice_is_removing_once(
        self, connect: Callable[..., Driver]
    ) -> None:
        driver = connect()
        driver.apply(V1)

        assert (driver.remove("web"), driver.remove("web")) == (
            Removed(existed=True),
            Removed(existed=False),
        )
        assert driver.observe("web").of("web") is None

    def test_only_what_was_requested_is_seen(
        self, connect: Callable[..., Driver]
    ) -> None:
        driver = connect()
        driver.apply(V1)
        driver.apply(Version("x1", "other", (config_map("other"),)))

        assert driver.observe().placements == ()
        assert [
            placement.placement
            for placement in driver.observe("other", "gone").placements
        ] == ["other"]

    def test_what_was_applied_is_seen_after_a_restart(
        self, connect: Callable[..., Driver]
    ) -> None:
        connect().apply(V1)

        seen = connect().observe("web").of("web")

        assert seen
        assert (seen.version, not seen.refusals) == ("v1", True)

    def test_an_object_is_available_only_when_its_controller_is_done(
        self, connect: Callable[..., Driver], clock: Clock
    ) -> None:
        driver = connect(readySeconds=30)
        driver.apply(V1)

        before = driver.observe("web").of("web")
        clock.sleep(30)
        after = driver.observe("web").of("web")

        assert before
        assert after
        assert [(seen.object, seen.readiness) for seen in before.unready] == [
            (WEB, Readiness.NOT_YET)
        ]
        assert (before.readiness, after.readiness) == (
            Readiness.NOT_YET,
            Readiness.AVAILABLE,
        )

    def test_what_cannot_be_tracked_says_so(
        self, connect: Callable[..., Driver]
    ) -> None:
        claim = {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": {"name": "web", "namespace": "shop"},
            "spec": {
                "accessModes": ["ReadWriteOnce"],
                "resources": {"requests": {"storage": "1Gi"}},
            },
        }
        driver = connect()
        driver.apply(Version("s1", "claims", (namespace("shop"), claim)))

        seen = driver.observe("claims").of("claims")

        assert seen
        assert seen.readiness is Readiness.NOT_TRACKABLE
        assert [object_seen.reason for object_seen in seen.unready] == [
            "the availability of a PersistentVolumeClaim is not known"
        ]

    def test_a_refused_object_keeps_the_others_going_and_is_named(
        self, connect: Callable[..., Driver], holds: Any
    ) -> None:
        connect().apply(V1)
        driver = connect(faults=[{"kind": "refuse", "image": "2.0"}])

        with pytest.raises(DriverRejected) as caught:
            driver.apply(V2)

        seen = driver.observe("web").of("web")
        assert [
            (refusal.object, refusal.code) for refusal in caught.value.refusals
        ] == [(WEB, "ManifestApplyFailed")]
        assert seen
        assert (seen.version, seen.whole_version, not seen.refusals) == (
            "v2",
            "v1",
            False,
        )
        assert seen.refusals == caught.value.refusals
        kept = set() if self.prunes_despite_refusals else {str(SETTINGS)}
        assert holds("web") == {"Namespace shop", str(WEB)} | kept

    def test_a_refused_version_is_taken_when_it_is_tried_again(
        self, connect: Callable[..., Driver]
    ) -> None:
        with pytest.raises(DriverRejected):
            connect(faults=[{"kind": "refuse", "objectKind": "Deployment"}]).apply(V1)

        assert connect().apply(V1) == Applied("v1", changed=True)

    def test_an_unreachable_cluster_is_no_refusal_and_does_not_change(
        self, connect: Callable[..., Driver], clock: Clock, holds: Any
    ) -> None:
        until = (clock() + timedelta(minutes=5)).isoformat()
        driver = connect(faults=[{"kind": "unreachable", "until": until}])

        for call in (
            lambda: driver.apply(V1),
            driver.observe,
            lambda: driver.remove("web"),
            driver.leave,
        ):
            with pytest.raises(DriverUnavailable):
                call()

        assert holds("web") == set()
        clock.sleep(300)
        assert driver.apply(V1).changed

    def test_a_call_ends_at_its_time_out(
        self, connect: Callable[..., Driver], clock: Clock, holds: Any
    ) -> None:
        driver = connect(applyMilliseconds=60_000)

        with pytest.raises(DriverUnavailable, match="within 3 s"):
            driver.apply(V1, timeout=3)

        assert clock() - NOW == timedelta(seconds=3)
        assert holds("web") == set()

    def test_an_answer_can_be_lost_after_the_effect(
        self, connect: Callable[..., Driver], holds: Any
    ) -> None:
        with pytest.raises(DriverUnavailable):
            connect(
                faults=[{"kind": "timeOut", "calls": ["apply"], "afterEffect": True}]
            ).apply(V1)

        assert str(WEB) in holds("web")
        assert connect().apply(V1) == Applied("v1", changed=False)

    def test_lost_state_is_seen_and_applying_brings_it_back(
        self, connect: Callable[..., Driver], clock: Clock
    ) -> None:
        connect().apply(V1)
        clock.sleep(60)
        driver = connect(faults=[{"kind": "lostState", "since": clock().isoformat()}])

        assert driver.observe("web").of("web") is None
        assert driver.apply(V1).changed
        seen = driver.observe("web").of("web")
        assert seen
        assert seen.version == "v1"

    def test_a_diff_finds_what_is_missing_and_what_differs_and_writes_nothing(
        self, connect: Callable[..., Driver], holds: Any
    ) -> None:
        driver = connect()
        before = driver.diff(V1)
        driver.apply(V1)
        held = holds("web")

        assert {diff.object for diff in before.diffs} == {
            ObjectRef.of(manifest) for manifest in V1.manifests
        }
        assert all(diff.member_generation is None for diff in before.diffs)
        assert driver.diff(V1).diffs == ()
        (changed,) = driver.diff(V2).diffs
        assert (changed.object, changed.member_generation) == (WEB, 1)
        assert holds("web") == held

    def test_a_released_placement_is_gone_from_observation(
        self, connect: Callable[..., Driver]
    ) -> None:
        driver = connect()
        driver.apply(V1)

        assert driver.release("web").existed
        assert driver.observe("web").of("web") is None
        assert not driver.release("web").existed
