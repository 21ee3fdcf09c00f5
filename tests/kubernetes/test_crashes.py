"""A worker that ends at any request, and two that work at once.

See `rules/kubernetes-driver.md#ownership-and-inventory`.
"""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from threading import Lock
from typing import Any

import pytest

from clusters.drivers.base import Driver, DriverFenced, DriverPending, Version
from clusters.drivers.kubernetes.client import Response
from tests.kubernetes.members import CrashError, Hub, repeat


class Cut:
    """Ends the process at one request: before it is sent, or after its effect; no other follows."""

    def __init__(self, number: int, *, is_after: bool) -> None:
        self._left, self._is_after = number, is_after
        self._lock = Lock()
        self.happened = False

    def __call__(
        self, _method: str, _path: str, send: Callable[[], Response]
    ) -> Response:
        with self._lock:
            if self.happened:
                raise CrashError
            self._left -= 1
            is_now = self._left == 0
            self.happened = is_now
        if not is_now:
            return send()
        if self._is_after:
            send()
        raise CrashError


def versions(hub: Hub) -> tuple[Version, Version]:
    """Return two versions: one object changes, one goes, one comes."""
    namespace = hub.namespace_manifest()
    secret = hub.manifest("v1", "Secret", "keys", data={"a": "Yg=="})
    first = hub.version(
        "v1",
        namespace,
        hub.config_map("a", x="1"),
        hub.config_map("gone"),
        hub.config_map("b"),
        secret,
    )
    second = hub.version(
        "v2",
        namespace,
        hub.config_map("a", x="2"),
        hub.config_map("new"),
        hub.config_map("b"),
        secret,
    )
    return first, second


def run_cut(
    hub: Hub, number: int, call: Callable[[Driver], Any], *, is_after: bool
) -> bool:
    """Run a call that ends at a request; return whether it got that far."""
    driver = hub.driver()
    cut = Cut(number, is_after=is_after)
    hub.recorders[-1].hook = cut
    with suppress(CrashError, DriverPending):
        call(driver)
    return cut.happened


@pytest.mark.parametrize("is_after", [False, True])
def test_an_update_that_is_cut_at_any_request_is_completed_by_the_next_call(
    hub: Hub, is_after: bool
) -> None:
    first, second = versions(hub)
    expected = {
        f"Namespace {hub.namespace}",
        "ConfigMap a",
        "ConfigMap b",
        "ConfigMap new",
        "Secret keys",
    }
    cuts = 0
    for number in range(1, 100):
        hub.driver().apply(first)
        if not run_cut(
            hub, number, lambda driver: driver.apply(second), is_after=is_after
        ):
            break
        cuts += 1
        repeat(lambda: hub.driver().apply(second))
        assert hub.objects() == expected
        assert hub.admin.get(hub.path("configmaps", "a"))["data"] == {"x": "2"}
        seen = hub.seen(hub.driver())
        assert (seen.whole_version, seen.refusals, seen.missing) == ("v2", (), ())
    assert cuts >= 13


@pytest.mark.parametrize("is_after", [False, True])
def test_a_first_apply_that_is_cut_at_any_request_leaves_nothing_behind(
    hub: Hub, is_after: bool
) -> None:
    first, _ = versions(hub)
    cuts = 0
    for number in range(1, 100):
        if not run_cut(
            hub, number, lambda driver: driver.apply(first), is_after=is_after
        ):
            break
        cuts += 1
        # It is never applied again: what is there has to go.
        with suppress(DriverPending):
            hub.driver().remove("web")
        assert hub.objects() <= {f"Namespace {hub.namespace}"}
        hub.admin.purge_namespace(hub.namespace)  # its controller would take 5 seconds
        repeat(lambda: hub.driver().remove("web"))
        assert hub.objects() == set()
        assert not hub.admin.has(hub.inventory_path)
    assert cuts >= 12


@pytest.mark.parametrize("is_after", [False, True])
def test_a_removal_that_is_cut_at_any_request_is_completed_by_the_next_call(
    hub: Hub, is_after: bool
) -> None:
    first, _ = versions(hub)
    # Without the namespace, whose deletion takes seconds.
    version = replace(first, manifests=first.manifests[1:])
    hub.admin.create("/api/v1/namespaces", hub.namespace_manifest())
    cuts = 0
    for number in range(1, 100):
        hub.driver().apply(version)
        if not run_cut(
            hub, number, lambda driver: driver.remove("web"), is_after=is_after
        ):
            break
        cuts += 1
        repeat(lambda: hub.driver().remove("web"))
        assert hub.objects() == set()
        assert not hub.admin.has(hub.inventory_path)
    assert cuts >= 8


@pytest.mark.parametrize("applies_again", [False, True])
def test_a_namespace_whose_takeover_was_the_last_request_stays(
    hub: Hub, applies_again: bool
) -> None:
    hub.admin.create("/api/v1/namespaces", hub.namespace_manifest())
    version = hub.version("v1", hub.namespace_manifest(), hub.config_map("a"))
    driver = hub.driver()

    def crash_after_takeover(
        method: str, path: str, send: Callable[[], Response]
    ) -> Response:
        answer = send()
        if method == "PATCH" and path == hub.namespace_path:
            raise CrashError
        return answer

    hub.recorders[-1].hook = crash_after_takeover
    with pytest.raises(CrashError):
        driver.apply(version)

    if applies_again:
        hub.driver().apply(version)
    assert hub.driver().remove("web").existed

    assert hub.objects() == set()
    assert "annotations" not in hub.admin.get(hub.namespace_path)["metadata"]


def test_two_workers_that_apply_the_same_version_agree(hub: Hub) -> None:
    first, second = versions(hub)
    hub.driver().apply(first)

    with ThreadPoolExecutor(2) as workers:
        results = list(
            workers.map(lambda _: repeat(lambda: hub.driver().apply(second)), range(2))
        )

    assert {result.version for result in results} == {"v2"}
    seen = hub.seen(hub.driver())
    assert (seen.whole_version, seen.missing, seen.drifted) == ("v2", (), ())
    assert "ConfigMap gone" not in hub.objects()


def test_a_late_call_removes_what_a_newer_one_does_not_know(hub: Hub) -> None:
    first, second = (
        replace(version, fence=number)
        for number, version in enumerate(versions(hub), start=1)
    )
    hub.admin.create("/api/v1/namespaces", hub.namespace_manifest())
    slow = hub.driver()
    is_overtaken = False

    def overtake(method: str, path: str, send: Callable[[], Response]) -> Response:
        nonlocal is_overtaken
        if method == "PATCH" and path.endswith("configmaps/gone") and not is_overtaken:
            is_overtaken = True
            hub.driver().apply(second)
        return send()

    hub.recorders[-1].hook = overtake
    with pytest.raises(DriverFenced):
        slow.apply(first)

    assert "ConfigMap gone" not in hub.objects()
    assert "ConfigMap new" in hub.objects()


def test_two_workers_with_different_versions_leave_nothing_behind(hub: Hub) -> None:
    first, second = (
        replace(one, fence=number) for number, one in enumerate(versions(hub), start=1)
    )

    def work(version: Version) -> str:
        try:
            return repeat(lambda: hub.driver().apply(version)).version
        except DriverFenced:
            return "fenced"

    with ThreadPoolExecutor(2) as workers:
        results = list(workers.map(work, (first, second)))

    assert results[1] == "v2"
    repeat(lambda: hub.driver().apply(second))
    assert "ConfigMap gone" not in hub.objects()


def test_a_lower_fence_is_refused_by_any_process_and_writes_nothing(hub: Hub) -> None:
    first, second = versions(hub)
    hub.driver().apply(replace(second, fence=8))
    late = hub.driver()

    for call in (
        lambda: late.apply(replace(first, fence=7)),
        lambda: late.remove("web", fence=7),
        lambda: late.release("web", fence=7),
    ):
        with pytest.raises(DriverFenced) as caught:
            call()
        assert caught.value.fence == 8

    assert hub.recorders[-1].writes == []
    assert hub.driver().observe(inventory=True).fences == {"web": 8}


def test_a_call_that_was_overtaken_does_not_overwrite_the_inventory(hub: Hub) -> None:
    first, second = (
        replace(version, fence=number)
        for number, version in enumerate(versions(hub), start=1)
    )
    hub.driver().apply(first)
    slow = hub.driver()
    is_overtaken = False

    def overtake(method: str, path: str, send: Callable[[], Response]) -> Response:
        nonlocal is_overtaken
        if method == "PATCH" and path.endswith("configmaps/a") and not is_overtaken:
            is_overtaken = True
            hub.driver().apply(second)
        return send()

    hub.admin.merge(hub.path("configmaps", "a"), {"data": {"x": "9"}})
    recorder = next(one for one in hub.recorders if one is hub.recorders[-1])
    recorder.hook = overtake
    # Something to write at the end: the repaired object has a new generation.
    with pytest.raises(DriverFenced):
        slow.apply(first)

    assert hub.seen(hub.driver()).version == "v2"
