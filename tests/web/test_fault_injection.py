"""Injecting faults into a simulated cluster on its page."""

import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.test import Client

from clusters.drivers.simulated.state import FaultKind
from clusters.models import MemberCluster
from clusters.operations.edit import faults_of, not_ready_at, set_faults
from clusters.operations.heartbeat import observe
from fleetui.models import Event
from placements.explain.fault_injection import FAULT_KINDS, SHOWN, fault_words
from placements.models import Binding
from tests.rows import NOW, simulated, spec
from tests.services.rollouts.world import World
from tests.web.reading import page_text

pytestmark = pytest.mark.django_db

PAGE, CLUSTER = "/clusters/bravelion/inject-fault/", "/clusters/bravelion/"


@pytest.fixture(autouse=True)
def bravelion() -> MemberCluster:
    """Add a simulated cluster."""
    return simulated("bravelion")


def _faults() -> list[dict[str, Any]]:
    return faults_of(MemberCluster.objects.get())


def test_every_kind_of_fault_has_words() -> None:
    assert list(FAULT_KINDS) == list(SHOWN) == list(FaultKind)
    assert (
        fault_words({"kind": "refuse", "image": "2.1"})
        == "rejects what is applied (only image 2.1)"
    )


def test_a_fault_is_added_for_a_while_and_shown_to_everyone(
    operator: Client, viewer: Client
) -> None:
    answer = operator.post(PAGE, {"kind": "unreachable", "minutes": "5"})
    [fault] = _faults()
    page = page_text(viewer.get(CLUSTER))

    assert (answer.status_code, answer["Location"]) == (302, PAGE)
    assert fault["kind"] == "unreachable"
    assert (
        timedelta(0)
        < datetime.fromisoformat(fault["until"]) - datetime.now(UTC)
        <= timedelta(minutes=5)
    )
    assert "Unreachable: no connection and no heartbeat, until " in page
    assert PAGE not in page
    assert Event.objects.order_by("-id")[0].facts["by"] == "ana"


def test_a_fault_of_workloads_is_observed_at_once_and_cleared_on_the_page_of_the_cluster(
    operator: Client,
) -> None:
    world = World(1)
    world.place("web", spec())
    world.pass_time(6)
    later = datetime.now(UTC) + timedelta(minutes=2)
    Binding.objects.update(next_call_at=later)

    operator.post("/clusters/c000/inject-fault/", {"kind": "notReady", "minutes": ""})
    is_due = Binding.objects.filter(next_call_at__lt=later).exists()
    page = operator.get("/clusters/c000/").content.decode()
    form = page.partition('id="active-faults"')[2].partition("</form>")[0]
    cleared = operator.post(
        "/clusters/c000/inject-fault/",
        dict(re.findall(r'name="(at|end)" value="([^"]*)"', form)),
        follow=True,
    )

    assert is_due
    assert "Fault “Not ready” injected on c000. Shown within seconds" in page
    assert cleared.redirect_chain == [("/clusters/c000/", 302)]
    assert "Fault cleared on c000: Not ready." in cleared.content.decode()
    assert faults_of(MemberCluster.objects.get(name="c000")) == []


@pytest.mark.nightly
def test_faults_end_one_by_one_or_all(operator: Client) -> None:
    for kind in ("silent", "refuse", "lostState"):
        operator.post(PAGE, {"kind": kind, "minutes": ""})

    operator.post(PAGE, {"end": "1"})
    left = [fault["kind"] for fault in _faults()]
    operator.post(PAGE, {"end": "all"})

    assert left == ["silent", "lostState"]
    assert _faults() == []
    assert "No active faults." in operator.get(PAGE).content.decode()


def test_what_has_ended_by_itself_is_not_shown_and_goes(operator: Client) -> None:
    set_faults(
        "bravelion", [{"kind": "silent", "until": NOW.isoformat()}], by=None, now=NOW
    )

    page = operator.get(PAGE).content.decode()
    operator.post(PAGE, {"kind": "refuse", "minutes": ""})

    assert "No active faults." in page
    assert [fault["kind"] for fault in _faults()] == ["refuse"]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"kind": "sleepy", "minutes": ""}, "Required value"),
        ({"kind": "silent", "minutes": "7"}, "Unsupported value"),
    ],
)
def test_what_is_not_offered_is_refused(
    operator: Client, given: dict[str, str], message: str
) -> None:
    answer = operator.post(PAGE, given)

    assert (answer.status_code, _faults()) == (422, [])
    assert message in answer.content.decode()


def test_a_page_from_before_another_change_changes_nothing(operator: Client) -> None:
    old = MemberCluster.objects.get().revision
    operator.post(PAGE, {"kind": "silent", "minutes": ""})

    answer = operator.post(PAGE, {"end": "0", "revision": str(old)})

    assert (answer.status_code, len(_faults())) == (409, 1)


def test_a_real_cluster_takes_no_injected_faults(operator: Client) -> None:
    MemberCluster.objects.update(driver="")

    answer = operator.post(PAGE, {"kind": "silent", "minutes": ""})

    assert answer.status_code == 409
    assert "simulated clusters only" in answer.content.decode()
    assert "Simulate a failure" not in operator.get(CLUSTER).content.decode()


def test_an_unreachable_cluster_is_late_at_once_and_counts_down_to_not_ready(
    viewer: Client, text_of: Callable[[Client, str], str]
) -> None:
    now = datetime.now(UTC)
    simulated("a", now=now - timedelta(seconds=8), region="west")
    simulated("b", now=now - timedelta(seconds=8), region="west")
    observe(now=now - timedelta(seconds=8))
    set_faults("a", [{"kind": "unreachable"}], by=None, now=now - timedelta(seconds=8))

    before = text_of(viewer, "/clusters/a/")
    observe(now=now - timedelta(seconds=8))
    after = text_of(viewer, "/clusters/a/")

    # The exact moment is in the page; the words count from the moment of the request.
    until = re.escape((now + timedelta(minutes=5, seconds=-8)).isoformat())
    words = rf'Not ready in <time datetime="{until}" [^>]*>4m\d\ds</time>, unless a heartbeat arrives'
    for page in (before, after):
        assert re.search(words, page)
    pages = [
        text_of(viewer, one)
        for one in ("/clusters/?state=heartbeat-late", "/topology/", "/")
    ]
    for page in (after, *pages):
        assert "heartbeat late" in page.lower()
    assert "1 heartbeat late" in pages[-1].partition('id="attention"')[0], "the figure"
    assert "Not ready in" not in text_of(viewer, "/clusters/b/")
    set_faults("a", [], by=None, now=now)
    cleared = text_of(viewer, "/clusters/a/")
    assert "Not ready in" not in cleared
    assert "Heartbeat late</span> at the last observation" in cleared
    observe(now=now)
    assert MemberCluster.objects.get(name="a").unanswered_since is None


def test_an_unhealthy_cluster_counts_down_too() -> None:
    now = datetime.now(UTC)
    simulated("a", now=now)
    observe(now=now)
    row = set_faults("a", [{"kind": "unhealthy"}], by=None, now=now)

    assert not_ready_at(row, now=now) == now + timedelta(minutes=5)
    observe(now=now + timedelta(seconds=1))
    row.refresh_from_db()
    assert not_ready_at(row, now=now + timedelta(seconds=30)) == now + timedelta(
        seconds=301
    )
