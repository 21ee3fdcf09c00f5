"""The drain page: impact, pace, the typed name, progress, and what could come back."""

import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest
from django.test import Client

from clusters.models import ClusterTaint, MemberCluster
from clusters.operations.edit import uncordon
from fleetui.changes import noticed_changes
from placements.models import Binding, Drain, DrainStep, PolicySnapshot
from placements.services.disruption.drains import Pace, advance_drains, drain
from tests.database import compare_for_long, forget_caches
from tests.rows import NOW, all_joined, decided, joined, pick_n_spec, spec
from tests.services.rollouts.test_restore import drained
from tests.web.reading import page_text

pytestmark = pytest.mark.django_db

Fetch = Callable[[Client, str], str]
PAGE = "/clusters/nimblefox/drain/"


def _fates(page: str) -> dict[str, str]:
    body = page.partition('id="impact"')[2].partition("</section>")[0]
    rows = re.findall(
        r'/placements/([\w-]+)/">.*?class="mark.*?</svg>(.*?)</span>', body, re.DOTALL
    )
    return dict(rows)


def test_a_fragment_without_a_drain_is_the_page(viewer: Client) -> None:
    joined("nimblefox")

    answer = viewer.get(PAGE, headers={"HX-Request": "true"})

    assert answer.status_code == 200
    assert "Drain nimblefox" in answer.content.decode()


@pytest.mark.nightly
@pytest.mark.usefixtures("nine")
def test_w5_says_what_becomes_of_each_placement_before_anything_happens(
    viewer: Client, text_of: Fetch
) -> None:
    page = text_of(viewer, PAGE)

    assert _fates(page) == {
        "config": "Not evictable",
        "ledger": "Not fulfilled",
        "batch": "Scaled down",
        "web": "Rescheduled",
    }
    assert re.search(
        r'joins">jumpingcat</span>\s*<span class="quiet small">spread score\s+−2, affinity \+20',
        page,
    )
    assert "region=north and region=south stay at 0 (no candidates)" in page
    assert "permission to drain clusters." in page
    assert 'name="do"' not in page
    assert not Drain.objects.exists()


@pytest.mark.usefixtures("nine")
@pytest.mark.parametrize("typed", ["", "nimble"])
def test_what_gets_worse_wants_the_name_typed(operator: Client, typed: str) -> None:
    answer = operator.post(
        PAGE, {"do": "start", "how": "drain", "at_once": "2", "name": typed}
    )

    assert answer.status_code == 422
    assert "some placements lose a cluster without a replacement" in page_text(answer)
    assert 'name="at_once" min="1" max="100" value="2"' in page_text(answer)
    assert not Drain.objects.exists()
    assert not ClusterTaint.objects.exists()


@pytest.mark.usefixtures("nine")
def test_begins_at_the_requested_pace(operator: Client) -> None:
    given = {
        "do": "start",
        "how": "drain",
        "at_once": "2",
        "minutes": "30",
        "first": "web, batch",
    }

    answer = operator.post(PAGE, {**given, "name": "nimblefox"})
    row = Drain.objects.get()

    assert (answer.status_code, answer["Location"]) == (302, PAGE)
    assert "In progress" in page_text(operator.get(PAGE))
    assert (row.at_once, row.first, row.started_by) == (2, ["web", "batch"], "ana")
    assert row.deadline is not None
    assert (
        timedelta(minutes=29)
        < row.deadline - datetime.now(UTC)
        <= timedelta(minutes=30)
    )


def test_a_replacement_that_does_not_answer_is_named(
    operator: Client, text_of: Fetch
) -> None:
    all_joined("a", "b")
    decided("web", pick_n_spec(1))
    [here] = Binding.objects.values_list("cluster_name", flat=True)
    page = f"/clusters/{here}/drain/"

    answering = text_of(operator, page)
    MemberCluster.objects.exclude(name=here).update(unanswered_since=NOW)
    forget_caches()
    silent = text_of(operator, page)

    assert "Does not answer now" not in answering
    assert "Does not answer now, a candidate until its heartbeat is lost:" in silent


def test_a_placement_on_all_clusters_loses_nothing_that_is_replaced(
    operator: Client, text_of: Fetch
) -> None:
    all_joined("a", "b")
    decided("web", spec({"placementType": "PickAll"}))

    page = text_of(operator, "/clusters/a/drain/")

    assert "No replacement needed (PickAll)." in page
    assert 'name="name"' not in page


@pytest.mark.parametrize("path", ["", "bulk/drain/"])
def test_a_drain_started_from_the_admin_ends_there(operator: Client, path: str) -> None:
    all_joined("a", "b")
    admin = "/admin/clusters/membercluster/"
    page = (
        f"/clusters/{path}?name=a&next={admin}"
        if path
        else f"/clusters/a/drain/?next={admin}"
    )

    opened = operator.get(page, follow=True)
    answer = operator.post(
        opened.request["PATH_INFO"] + "?" + opened.request["QUERY_STRING"],
        {"do": "start"},
    )

    assert "Max concurrent" in page_text(opened), "the drain page, with its options"
    assert f'<a href="{admin}">Cancel</a>' in opened.content.decode()
    assert (answer.status_code, answer["Location"]) == (302, admin)
    assert Drain.objects.get().cluster_name == "a"
    shown = operator.get(admin).content.decode()
    assert 'Drain of a started. <a href="/clusters/a/drain/">' in shown


@pytest.mark.nightly
def test_no_name_is_required_where_nothing_gets_worse(
    operator: Client, text_of: Fetch
) -> None:
    all_joined("a", "b")
    decided("web", pick_n_spec(1))
    [here] = Binding.objects.values_list("cluster_name", flat=True)

    page = text_of(operator, f"/clusters/{here}/drain/")
    answer = operator.post(f"/clusters/{here}/drain/", {"do": "start", "how": "drain"})

    assert 'name="name"' not in page
    assert answer.status_code == 302
    assert Drain.objects.get().cluster_name == here


@pytest.mark.usefixtures("nine")
def test_may_only_cordon(operator: Client) -> None:
    operator.post(PAGE, {"do": "start", "how": "cordon"})

    assert ClusterTaint.objects.get().cluster.name == "nimblefox"
    assert not Drain.objects.exists()


@pytest.mark.nightly
@pytest.mark.usefixtures("nine")
@pytest.mark.parametrize("action", [{}, {"do": "uncordon"}])
def test_an_unknown_action_starts_nothing(
    operator: Client, action: dict[str, str]
) -> None:
    answer = operator.post(PAGE, {**action, "how": "drain", "name": "nimblefox"})

    assert (answer.status_code, Drain.objects.exists()) == (422, False)
    assert "Unsupported value" in answer.content.decode()
    assert not ClusterTaint.objects.exists()


@pytest.mark.nightly
@pytest.mark.usefixtures("nine")
@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("at_once", "0", "Invalid value: &#x27;0&#x27;"),
        ("minutes", "soon", "Invalid value: &#x27;soon&#x27;"),
        ("first", "missing", "&#x27;missing&#x27; is not placed on nimblefox"),
    ],
)
def test_an_odd_pace_is_refused_with_its_fault(
    operator: Client, field: str, value: str, message: str
) -> None:
    answer = operator.post(
        PAGE, {"do": "start", "how": "drain", "name": "nimblefox", field: value}
    )

    assert answer.status_code == 422
    assert message in answer.content.decode()
    assert not Drain.objects.exists()


@pytest.mark.nightly
@pytest.mark.usefixtures("nine")
def test_follows_the_drain_and_shows_only_news(
    operator: Client, text_of: Fetch
) -> None:
    drain(["nimblefox"], by=None, now=NOW, pace=Pace(at_once=1))
    advance_drains(now=NOW)
    compare_for_long()
    htmx = {"HX-Request": "true"}

    page = text_of(operator, PAGE)
    [version] = re.findall(r'hx-get="\?v=([\w.]+)"', page)
    same = operator.get(f"{PAGE}?v={version}", headers=htmx)
    with noticed_changes():
        DrainStep.objects.filter(placement_name="web").update(
            state=DrainStep.State.GONE
        )
    forget_caches()
    news = operator.get(f"{PAGE}?v={version}", headers=htmx)

    assert "In progress" in page
    assert 'id="impact"' not in page
    assert same.status_code == 204
    assert news.content.decode().count('<section id="progress"') == 1
    assert 'id="messages"' not in news.content.decode()


def test_a_drain_says_that_it_has_started_only_elsewhere_and_clears_messages_at_its_end(
    operator: Client, text_of: Fetch
) -> None:
    all_joined("a", "b")
    decided("web", pick_n_spec(2))
    operator.post("/clusters/a/drain/", {"do": "start", "how": "drain", "name": "a"})
    [drain] = Drain.objects.all()
    page = text_of(operator, "/clusters/a/drain/")
    with noticed_changes():
        Drain.objects.update(state=Drain.State.DONE, ended_at=NOW)
    forget_caches()

    [version] = re.findall(r'hx-get="\?v=([\w.]+)"', page)
    ended = operator.get(
        f"/clusters/a/drain/?v={version}", headers={"HX-Request": "true"}
    )

    assert "Drain of a started." not in page
    assert drain.ended_at is None
    assert '<div id="messages" hx-swap-oob="true"></div>' in ended.content.decode()


def test_a_drain_that_had_nothing_to_evict_has_one_message(
    operator: Client, text_of: Fetch
) -> None:
    all_joined("a", "b")

    operator.post("/clusters/a/drain/", {"do": "start", "how": "drain"})
    advance_drains(now=datetime.now(UTC))
    page = text_of(operator, "/clusters/a/drain/")

    assert "Drained" in page.partition('id="progress"')[2]
    assert "started." not in page.partition('id="messages"')[2].partition("</div>")[0]


def test_a_drained_cluster_has_one_status_at_every_door(
    operator: Client, text_of: Fetch
) -> None:
    all_joined("a")
    drain(["a"], by=None, now=NOW)
    advance_drains(now=NOW)

    doors = (
        "/clusters/a/",
        "/clusters/",
        "/clusters/?download=csv",
        "/api/v1/clusters",
        "/admin/clusters/membercluster/",
    )
    pages = {address: text_of(operator, address).lower() for address in doors}
    assert [door for door, page in pages.items() if "drained" in page] == []
    assert [door for door, page in pages.items() if "cordoned" not in page] == []


@pytest.mark.nightly
@pytest.mark.usefixtures("nine")
def test_says_where_each_placement_went(operator: Client, text_of: Fetch) -> None:
    drain(["nimblefox"], by=None, now=NOW)
    advance_drains(now=NOW)
    web = (
        Binding.objects.filter(placement__name="web")
        .exclude(cluster_name="nimblefox")
        .first()
    )
    assert web is not None
    Binding.objects.exclude(pk=web.pk).update(picked_at=NOW - timedelta(hours=1))
    Binding.objects.filter(pk=web.pk).update(picked_at=NOW)

    page = text_of(operator, PAGE)
    rows = re.findall(r"<tr>.*?</tr>", page.partition('id="progress"')[2], re.DOTALL)
    [row] = [one for one in rows if "/placements/web/" in one]

    assert f'href="/clusters/{web.cluster_name}/"' in row
    others = {
        name: one
        for one in rows
        for name in re.findall("/placements/([a-z]+)/", one)
        if name != "web"
    }
    assert [name for name, one in others.items() if "→" not in one] == ["config"]
    assert [
        name for name, one in others.items() if "Pending replacement" not in one
    ] == ["batch", "config"]


@pytest.mark.nightly
@pytest.mark.usefixtures("nine")
def test_is_cancelled_once(operator: Client) -> None:
    drain(["nimblefox"], by=None, now=NOW)

    first = operator.post(PAGE, {"do": "cancel"})
    second = operator.post(PAGE, {"do": "cancel"})

    assert (first.status_code, second.status_code) == (302, 409)
    assert "nothing to cancel" in second.content.decode()
    assert Drain.objects.get().state == "cancelled"


def test_nothing_to_restore_offers_no_restoring(
    operator: Client, text_of: Fetch
) -> None:
    joined("a")
    drain(["a"], by=None, now=NOW)
    advance_drains(now=NOW)

    page = text_of(operator, "/clusters/a/drain/")

    assert "Uncordon a" in page
    assert "to restore" not in page.replace("No evicted placements to restore", "")


def test_offers_to_bring_back_what_only_a_fresh_schedule_would(
    operator: Client, text_of: Fetch
) -> None:
    joined("a")
    decided("web", pick_n_spec(1))
    joined("b")
    Binding.objects.update(cluster_name="a")
    [row] = drain(["a"], by=None, now=NOW)
    DrainStep.objects.create(
        drain=row, placement_name="web", state=DrainStep.State.GONE, changed_at=NOW
    )
    Drain.objects.update(state=Drain.State.DONE, ended_at=NOW)
    Binding.objects.update(cluster_name="b")
    cordoned = text_of(operator, "/clusters/a/drain/")
    uncordon(["a"], by=None, now=NOW)
    joined("aa")
    page = text_of(operator, "/clusters/a/drain/")

    assert "uncordon a to restore" in cordoned
    assert "Restore evicted placements" in page
    assert "uncordon a to restore" not in page


def given_in(page: str) -> dict[str, str]:
    """Read the hidden fields of the form that confirms a fresh schedule."""
    return dict(
        re.findall(
            r'name="(revision|decision|after)" value="([^"]*)"',
            page.partition('class="bar"')[2],
        )
    )


@pytest.mark.usefixtures("nine")
def test_brings_a_placement_back_by_a_fresh_schedule_after_a_look_at_it(
    operator: Client, text_of: Fetch
) -> None:
    before = PolicySnapshot.objects.filter(placement__name="web").count()
    cluster = PAGE.split("/")[2]

    response = operator.post(PAGE, {"do": "bring-back", "placement": "web"})
    assert PolicySnapshot.objects.filter(placement__name="web").count() == before
    page = text_of(operator, response["Location"])
    done = operator.post(response["Location"], given_in(page))
    other = operator.post(PAGE, {"do": "bring-back", "placement": "config"})
    refused = operator.post(other["Location"], {"revision": "1"})

    assert response["Location"] == f"/placements/web/reschedule/?back={cluster}"
    assert f'<a href="{PAGE}">{cluster}</a>.' in page
    assert (done.status_code, done["Location"]) == (302, PAGE)
    assert PolicySnapshot.objects.filter(placement__name="web").count() == before + 1
    assert refused.status_code == 409
    assert "config names its clusters" in refused.content.decode()
    assert (
        operator.post(PAGE, {"do": "bring-back", "placement": "missing"}).status_code
        == 404
    )


@pytest.mark.nightly
def test_bringing_back_shows_what_would_change_before_it_is_done(
    operator: Client, text_of: Fetch
) -> None:
    world = drained()
    uncordon(["c000"], by=None, now=world.now)

    page = text_of(operator, "/clusters/c000/drain/")
    preview = text_of(operator, "/placements/spread/reschedule/?back=c000")

    assert 'href="/placements/spread/reschedule/?back=c000">Restore spread</a>' in page
    assert "c000 would be selected." in preview
    assert re.findall(r"<dt>(\d \w+)</dt>", preview) == [
        "1 selected",
        "1 deselected",
        "1 kept",
    ]
    assert 'href="/clusters/c000/drain/">Cancel</a>' in preview


@pytest.mark.nightly
def test_says_when_a_fresh_schedule_would_not_bring_it_back(
    operator: Client, text_of: Fetch
) -> None:
    drained()

    preview = text_of(operator, "/placements/spread/reschedule/?back=c000")

    assert "c000 would not be selected." in preview


@pytest.mark.usefixtures("web")
def test_a_cluster_to_come_back_to_that_is_not_there_is_left_out(
    operator: Client, text_of: Fetch
) -> None:
    assert "To restore web to" not in text_of(
        operator, "/placements/web/reschedule/?back=<b>"
    )


def test_a_cluster_that_is_not_there_has_no_drain(operator: Client) -> None:
    assert operator.get("/clusters/missing/drain/").status_code == 404


def test_since_names_its_moment_so_that_the_page_counts_on(
    operator: Client, text_of: Fetch
) -> None:
    joined("nimblefox")
    [row] = drain(["nimblefox"], by=None, now=NOW)
    DrainStep.objects.create(
        drain=row, placement_name="web", state=DrainStep.State.WAITING, changed_at=NOW
    )

    page = text_of(operator, PAGE)

    assert (
        re.findall(r'data-age="([^"]+)">\d+[smhd]</time>', page).count(
            str(int(NOW.timestamp()))
        )
        == 2
    )
