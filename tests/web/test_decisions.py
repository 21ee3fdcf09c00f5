"""The page of one decision."""

import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest
from django.test import Client

from clusters.models import MemberCluster
from clusters.operations.edit import change_labels, change_taints, cordon, leave
from placements.models import Decision, DecisionRecord, Placement, StalePick
from placements.services.decisions.records import decisions_named
from placements.services.placements import delete_placement
from placements.services.verification import STALENESS_EVERY, refresh_staleness
from tests.builders import labelled, pick_n
from tests.rows import NOW, decided, joined, pick_n_spec, spec

pytestmark = pytest.mark.django_db

Fetch = Callable[[Client, str], str]


@pytest.mark.nightly
def test_says_how_it_came_out_and_from_which_inputs(
    viewer: Client, text_of: Fetch, decision_id: str
) -> None:
    page = text_of(viewer, f"/decisions/{decision_id}/")

    assert "2 of 2 clusters selected" in page.replace("\n", "")
    assert decision_id in page
    assert "Select 2 clusters." in page
    assert "<dd>None</dd>" in text_of(viewer, f"/decisions/{decision_id}/?view=inputs")


@pytest.mark.nightly
def test_says_why_a_cluster_was_picked(
    viewer: Client, text_of: Fetch, decision_id: str
) -> None:
    page = text_of(viewer, f"/decisions/{decision_id}/?cluster=nimblefox")

    assert "Why nimblefox was selected" in page
    assert "Changes that would select it" not in page


def test_says_why_not_and_what_would_help(
    viewer: Client, text_of: Fetch, decision_id: str
) -> None:
    page = text_of(viewer, f"/decisions/{decision_id}/?cluster=bravelion")

    assert "Why bravelion was not selected" in page
    assert "lost to jumpingcat on name (affinity equal)" in page
    assert "numberOfClusters 3 (now 2)" in page
    assert "jumpingcat removed from the fleet" not in page


@pytest.mark.usefixtures("web")
def test_advice_on_a_label_leads_to_the_form_with_it_filled_in(
    operator: Client, text_of: Fetch
) -> None:
    policy = pick_n(3, required=[labelled(region="east")]).to_plain()
    eastern = decided("eastern", spec(policy)).decisions.get().record.decision_id
    page = text_of(operator, f"/decisions/{eastern}/?cluster=jumpingcat")
    [address] = re.findall(r'href="(/clusters/jumpingcat/edit/[^"]+)"', page)

    form = text_of(operator, address)

    assert address == "/clusters/jumpingcat/edit/?label=region%3Deast"
    assert re.search(r'name="label_key"[^>]*value="region"', form)
    assert re.search(r'name="label_value"[^>]*value="east"', form)
    assert "eastern" in form


def test_a_cordoned_cluster_is_not_ready_today(
    viewer: Client, text_of: Fetch, decision_id: str
) -> None:
    cordon(["bravelion"], by=None, now=NOW)

    page = text_of(viewer, f"/decisions/{decision_id}/?cluster=bravelion")

    assert "Today: cordoned; not a candidate." in page
    assert "Changes that would select it" not in page
    advice = f"/api/v1/decisions/{decision_id}/clusters/bravelion/advice"
    assert viewer.get(advice).json()["wouldHelp"] == []


def test_no_advice_is_about_a_cluster_that_leaves_the_fleet(
    viewer: Client, decision_id: str
) -> None:
    advice = f"/api/v1/decisions/{decision_id}/clusters/bravelion/advice"
    assert viewer.get(advice).json()["wouldHelp"] != []

    leave(["bravelion"], by=None, now=NOW)

    assert viewer.get(advice).json()["wouldHelp"] == []


def test_says_whether_a_cluster_would_be_selected_today_and_why_not(
    viewer: Client, text_of: Fetch, decision_id: str
) -> None:
    def today(cluster: str) -> str:
        page = text_of(viewer, f"/decisions/{decision_id}/?cluster={cluster}")
        return page.partition("Today: ")[2].partition("<")[0]

    assert today("nimblefox") == "ready and selected."
    lost = "ready; not selected if rescheduled: Rank 3 in step 1; lost to"
    assert today("bravelion").startswith(lost)

    cordon(["jumpingcat"], by=None, now=NOW)
    assert today("jumpingcat") == "cordoned; selected, and not a candidate."
    assert today("bravelion") == "ready; selected if rescheduled."


@pytest.mark.usefixtures("web")
def test_of_several_reasons_the_deciding_one_is_given_today_and_for_outdated_clusters(
    viewer: Client, text_of: Fetch
) -> None:
    policy = pick_n(1, required=[labelled(region="east")]).to_plain()
    eastern = decided("eastern", spec(policy)).decisions.get().record.decision_id
    change_labels(["bravelion"], put={"region": "west"}, by=None, now=NOW)
    dedicated = {"key": "gpu", "value": "", "effect": "NoSchedule"}
    change_taints(["bravelion"], add=[dedicated], by=None, now=NOW)
    refresh_staleness(now=NOW + STALENESS_EVERY)

    page = text_of(viewer, f"/decisions/{eastern}/?cluster=bravelion")

    why = "Does not match required affinity: region=west, required east"
    today = page.partition("Today: ")[2].partition("<")[0]
    assert today == f"ready; selected, and not selected if rescheduled: {why}."
    pick = StalePick.objects.get(staleness_check__placement__full_name="eastern")
    assert pick.reason == why


def test_says_what_a_cluster_is_today_before_what_it_was_at_the_decision(
    viewer: Client, text_of: Fetch, decision_id: str
) -> None:
    MemberCluster.objects.filter(name="bravelion").update(
        verdict="staleHeartbeat",
        verdict_since=datetime.now(UTC) - timedelta(minutes=17, seconds=5),
    )
    joined("zz-late", region="east")
    MemberCluster.objects.filter(name="zz-late").update(
        joined_at=datetime.now(UTC) - timedelta(minutes=5)
    )
    Decision.objects.update(created_at=datetime.now(UTC) - timedelta(minutes=30))

    page = text_of(viewer, f"/decisions/{decision_id}/?cluster=bravelion")
    late = text_of(viewer, f"/decisions/{decision_id}/?cluster=zz-late")
    advice = viewer.get(
        f"/api/v1/decisions/{decision_id}/clusters/bravelion/advice"
    ).json()

    today, then = (
        page.index("Today: not ready (heartbeat lost) for 17"),
        page.index("At decision 1, "),
    )
    assert today < then < page.index("lost to jumpingcat")
    assert (
        "Today: ready; joined 5m ago, after this decision: it was not evaluated."
        in late
    )
    assert advice["today"].startswith("Today: not ready (heartbeat lost) for 17")


def test_says_that_a_cluster_is_not_in_its_fleet(
    operator: Client, text_of: Fetch, decision_id: str
) -> None:
    page = text_of(operator, f"/decisions/{decision_id}/?cluster=<i>")

    assert "fleet is named &lt;i&gt;." in page
    assert (
        'href="/placements/web/reschedule/">Preview rescheduling' in page
    )  # it may have joined later


@pytest.mark.nightly
@pytest.mark.parametrize("length", [4, 8, 31])
def test_takes_the_beginning_of_an_id(
    viewer: Client, decision_id: str, length: int
) -> None:
    for short in (
        decision_id[: length + 2],
        decision_id[2 : length + 2],
        decision_id[: length + 2].upper(),
    ):
        answer = viewer.get(f"/decisions/{short}/?cluster=bravelion")

        assert (answer.status_code, answer["Location"]) == (
            302,
            f"/decisions/{decision_id}/?cluster=bravelion",
        )


@pytest.mark.parametrize("text", ["", "d-", "d-123", "zzzz", "%%%%", "____"])
def test_finds_nothing_by_less_than_four_digits(text: str) -> None:
    assert decisions_named(text) == []


@pytest.mark.usefixtures("web")
def test_offers_the_choice_where_several_begin_alike(
    viewer: Client, text_of: Fetch
) -> None:
    decided("api", pick_n_spec(1))
    for number, record in enumerate(DecisionRecord.objects.order_by("pk")):
        DecisionRecord.objects.filter(pk=record.pk).update(
            decision_id=f"d-abcd{number:028}"
        )

    page = text_of(viewer, "/decisions/abcd/")

    assert "Multiple decisions match abcd" in page
    assert page.count("/decisions/d-abcd") == 2


def test_outlives_its_placement(
    viewer: Client, text_of: Fetch, decision_id: str
) -> None:
    delete_placement("web", by=None, now=NOW)

    page = text_of(viewer, f"/decisions/{decision_id}/")

    assert "web (deleted)" in page
    assert 'href="/placements/web/"' not in page


def test_a_decision_that_changed_nothing_says_whose_steps_and_whose_skew_it_shows(
    viewer: Client, text_of: Fetch
) -> None:
    for name, region in (("ant", "east"), ("bee", "west"), ("cat", "east")):
        joined(name, region=region)
    spread = {"topologySpreadConstraints": [{"topologyKey": "region", "maxSkew": 1}]}
    decided("web", pick_n_spec(2, **spread))
    first = Placement.objects.get(name="web").decisions.get()
    change_labels(["bee"], put={"region": "east"}, by=None, now=NOW)
    decided("web", pick_n_spec(2, tolerations=[{"operator": "Exists"}], **spread))
    latest = Placement.objects.get(name="web").decisions.latest("number")
    assert latest.number > first.number

    page = text_of(viewer, f"/decisions/{latest.record.decision_id}/")

    words = " ".join(page.split())
    assert "Order of selection in decision 1" in words
    assert f'<a href="/decisions/{first.record.decision_id}/">decision 1</a>' in words
    assert "the skew above is that of this decision" in words
    older = text_of(viewer, f"/decisions/{first.record.decision_id}/")
    assert "in decision 1" not in older


@pytest.mark.usefixtures("web")
def test_names_who_joined_and_left(viewer: Client, text_of: Fetch) -> None:
    decided("web", pick_n_spec(1))
    latest = Placement.objects.get(name="web").decisions.order_by("-number").first()

    assert latest
    page = text_of(viewer, f"/decisions/{latest.record.decision_id}/")
    assert '<span class="quiet">Deselected</span>' in page
