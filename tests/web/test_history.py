"""The history of a placement, any two of its moments side by side, and going back to one of them."""

import html
import re
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from clusters.models import MemberCluster
from clusters.operations.edit import cordon
from fleetui.models import Event
from placements.engine.rollout.state import Phase
from placements.manifests.binding import BindingState
from placements.models import Binding, Decision, Placement, Resource, Rollout
from placements.services.disruption.evictions import evict
from placements.services.history.compare import compare
from placements.services.history.queries import (
    history_of,
    manifest_with,
    revisions_of,
    spec_restores,
)
from placements.services.placements import delete_placement, save_placement
from placements.services.resources.operations import apply_resources
from placements.services.rollouts.controller import sync_due_rollouts
from placements.services.rollouts.operations import pause, resume
from placements.services.rollouts.queries import events_of
from placements.services.workqueue import enqueue_scheduling
from tests.builders import spread
from tests.database import compare_for_long, load_once
from tests.ocm_documents import NAMESPACE, ocm_document, with_resources
from tests.rows import (
    NOW,
    config_map,
    decided,
    joined,
    pick_n_spec,
    placement_document,
    run_due,
)
from tests.services.test_unscheduling_everything import NOWHERE
from tests.web.reading import page_text, words_of

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("past")]

Fetch = Callable[[Client, str], str]
REGION = spread("region")
LATER, LAST = NOW + timedelta(minutes=5), NOW + timedelta(minutes=9)


def _save(spec: dict[str, Any], *, at: Any) -> None:
    save_placement(placement_document("web", spec), by=None, now=at)
    run_due(after=at - NOW)


@pytest.fixture
def past(web: Placement) -> Placement:
    """Spread the placement, scale it, and change its resources."""

    def load() -> None:
        _save(pick_n_spec(2, topologySpreadConstraints=[REGION]), at=LATER)
        apply_resources(
            [config_map("settings", data={"colour": "blue"})], by=None, now=LATER
        )
        run_due(after=LATER - NOW)
        _save(
            pick_n_spec(3, topologySpreadConstraints=[spread("region", max_skew=2)]),
            at=LAST,
        )

    load_once("past", load)
    return Placement.objects.get(pk=web.pk)


def _ids(placement: Placement) -> list[str]:
    rows = (
        Decision.objects.filter(placement=placement)
        .select_related("record")
        .order_by("number")
    )
    return [row.record.decision_id for row in rows]


def _rows(page: str) -> list[list[str]]:
    """Return revision, change and decision of each row of the list."""
    rows = re.findall(
        r"<tr[^>]*>(.*?)</tr>",
        page.partition("<tbody>")[2].partition("</tbody>")[0],
        re.DOTALL,
    )
    cells = [re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row, re.DOTALL) for row in rows]
    texts = [
        [html.unescape(" ".join(re.sub(r"<[^>]*>", " ", one).split())) for one in row]
        for row in cells
    ]
    return [[row[2], row[5], " ".join(row[6].split()[:2])] for row in texts]


def _offered(page: str) -> list[str]:
    """Return the revisions that a history offers to roll back to."""
    return re.findall(r'Roll back<span class="hidden"> to revision (\d)', page)


@pytest.mark.nightly
def test_lists_one_row_for_each_revision_newest_first(
    viewer: Client, text_of: Fetch
) -> None:
    page = text_of(viewer, "/placements/web/history/")

    assert _rows(page) == [
        [
            "Revision 4 Current",
            "numberOfClusters: 2 → 3 topologySpreadConstraints[0].maxSkew: 1 → 2",
            "decision 3",
        ],
        [
            "Revision 3",
            "ConfigMap shop/settings: data.colour added "
            "topologySpreadConstraints: [topologyKey: region, maxSkew: 1, whenUnsatisfiable: DoNotSchedule]",
            "decision 2",
        ],
        ["Revision 1", "Created. Select 2 clusters.", "decision 1"],
    ]
    assert "All decisions</h2>" in text_of(
        viewer, "/placements/web/decision/?unchanged=1"
    )


def test_a_revision_of_resources_has_the_decision_that_it_keeps(
    viewer: Client, text_of: Fetch
) -> None:
    later = LAST + timedelta(minutes=5)
    apply_resources([config_map("settings", data={"a": "b"})], by=None, now=later)
    run_due(after=later - NOW)

    page = words_of(text_of(viewer, "/placements/web/history/"))

    latest = Placement.objects.get().decisions.latest("number").number
    assert f"as in decision {latest}" in page


def test_the_last_decision_of_a_placement_is_the_newest_with_the_steps_of_an_earlier_one(
    past: Placement, viewer: Client, text_of: Fetch
) -> None:
    later = LAST + timedelta(minutes=5)
    joined("newcomer", region="north")
    enqueue_scheduling([past.pk], trigger="asked again", by="ann")
    run_due(after=later - NOW)

    page = words_of(text_of(viewer, "/placements/web/"))

    last = page.partition("Last decision")[2].partition("Play")[0]
    assert "asked again: no change · steps of decision 3" in last


def test_a_policy_that_is_not_decided_yet_keeps_no_decision(
    past: Placement, viewer: Client, text_of: Fetch
) -> None:
    wider = pick_n_spec(3, topologySpreadConstraints=[spread("region", max_skew=3)])
    later = LAST + timedelta(minutes=5)
    save_placement(placement_document(past.name, wider), by=None, now=later)

    page = words_of(text_of(viewer, "/placements/web/history/"))

    assert "maxSkew: 2 → 3" in page
    assert "as in decision" not in page


def test_a_single_revision_has_nothing_to_compare(
    viewer: Client, text_of: Fetch
) -> None:
    decided("api", pick_n_spec(1))

    page = text_of(viewer, "/placements/api/history/")

    assert "Compare" not in page
    assert 'type="radio"' not in page
    assert "Compare selected revisions" in text_of(viewer, "/placements/web/history/")
    for tab in ("", "history/"):  # the same header on all tabs
        head = text_of(viewer, f"/placements/api/{tab}").partition('<ul class="tabs">')[
            0
        ]
        assert 'role="status"' in head
        assert ">Reschedule<" in head


@pytest.mark.nightly
def test_an_eviction_without_replacement_is_shown_with_its_cause(
    viewer: Client, text_of: Fetch
) -> None:
    run_due(after=LAST - NOW)
    Binding.objects.update(state=BindingState.BOUND, phase=Phase.AVAILABLE)
    cordon(["nimblefox"], by=None, now=LAST)
    evict("web", "nimblefox", by=None, now=LAST)
    run_due(after=LAST - NOW)

    page = text_of(viewer, "/placements/web/history/")

    newest = page.partition('<td class="moves">')[2].partition("</td>")[0]
    assert "decision 4" in newest
    assert re.findall('class="label leaves">([^<]*)<', newest) == ["nimblefox"]
    assert "system: evicted from nimblefox" in newest


def test_another_strategy_and_another_number_are_one_revision(
    past: Placement, viewer: Client
) -> None:
    strategy = {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 1}}
    policy = {**past.document["spec"]["policy"], "numberOfClusters": 2}
    _save(
        {**past.document["spec"], "policy": policy, "strategy": strategy},
        at=LAST + timedelta(minutes=1),
    )
    web = Placement.objects.get(pk=past.pk)
    first, second, *_ = revisions_of(web)

    assert (first.policy, first.wanted, first.at) == (2, 2, LAST + timedelta(minutes=1))
    row = _rows(viewer.get("/placements/web/history/").content.decode())[0]
    assert row[1].startswith("numberOfClusters: 3 → 2 strategy")
    [restored] = spec_restores(web, [first, second]).values()
    assert restored["spec"].get("strategy") == past.document["spec"].get("strategy")


def test_an_earlier_placement_of_the_name_has_no_part_in_the_history() -> None:
    for number in (1, 2):
        document = placement_document("again", pick_n_spec(number))
        save_placement(document, by=None, now=LATER)
    delete_placement("again", by=None, now=LAST)

    # The demo begins in the past.
    save_placement(document, by=None, now=NOW)

    again = Placement.objects.get(name="again")
    assert [revision.number for revision in revisions_of(again)] == [1]
    run = Rollout(placement=again, placement_name="again", number=1, started_at=NOW)
    assert list(events_of(run).values_list("verb", flat=True)) == ["created"]


def test_a_rollout_of_an_earlier_placement_is_beside_no_revision(
    viewer: Client, past: Placement, text_of: Fetch
) -> None:
    Placement.objects.filter(pk=past.pk).update(runs_made=1)
    Rollout.objects.create(
        placement_name="web",
        number=1,
        revision_number=3,
        started_at=NOW - timedelta(days=1),
        ended_at=NOW - timedelta(hours=1),
        state=Rollout.State.FINISHED,
        version="v",
    )

    page = text_of(viewer, "/placements/web/history/")
    tab = text_of(viewer, "/placements/web/rollouts/")

    assert "/rollouts/web/1/" not in page.partition("<tbody>")[2]
    assert "/rollouts/web/1/" not in tab.partition('class="tabs"')[2]


def test_list_and_form_offer_the_same_revisions(
    operator: Client, past: Placement, text_of: Fetch
) -> None:
    first = past.policy_snapshots.get(number=1)
    _save(pick_n_spec(2, topologySpreadConstraints=[REGION]), at=LAST + timedelta(1))

    offered = _offered(text_of(operator, "/placements/web/history/"))
    form = text_of(operator, "/placements/web/roll-back/")

    assert first.policy["topologySpreadConstraints"]
    assert re.findall(r'name="number" id="r(\d)"', form) == offered == ["4", "1"]


@pytest.mark.parametrize("size", [1, 2, 3, 7])
def test_its_pages_together_are_the_whole(past: Placement, size: int) -> None:
    whole = [entry.key for entry in history_of(past, size=50).entries]
    keys, after = [], None
    for _ in range(20):
        page = history_of(past, size=size, after=after)
        keys += [entry.key for entry in page.entries]
        after = page.after
        if after is None:
            break

    assert keys == whole
    assert len(whole) == 8


@pytest.mark.nightly
def test_an_entry_knows_the_one_before_it_on_the_next_page(past: Placement) -> None:
    first, *_ = history_of(past, size=1).entries

    assert first.before is not None
    assert (first.row.number, first.before.number) == (3, 2)


def test_the_two_that_were_chosen_are_compared(viewer: Client) -> None:
    chosen = viewer.get("/placements/web/compare/?before=p0&after=p1")
    policies = viewer.get("/placements/web/compare/?before=p0~s0&after=p1~s1")
    resources = viewer.get("/placements/web/compare/?before=p1~s0&after=p1~s1")
    neither = viewer.get("/placements/web/compare/")

    assert chosen["Location"] == "/placements/web/compare/p0..p1/"
    assert policies["Location"] == "/placements/web/compare/p0..p1/"
    assert resources["Location"] == "/placements/web/compare/s0..s1/"
    assert neither["Location"] == "/placements/web/history/"


def test_runs_and_comparisons_name_revisions_as_the_history_does(
    viewer: Client, text_of: Fetch
) -> None:
    sync_due_rollouts(now=LAST)

    run = Rollout.objects.latest("pk")
    assert "rolling update to revision 4 " in text_of(
        viewer, f"/rollouts/web/{run.number}/"
    )
    policies = text_of(viewer, "/placements/web/compare/p0..p2/")
    assert "<h1>web: policy of revision 1 → policy of revision 4</h1>" in policies
    resources = text_of(viewer, "/placements/web/compare/s0..s1/")
    assert "<h1>web: resources of revision 1 → resources of revisions" in resources
    assert not re.search(r"\br[0-9]\b|policy #", policies + resources)


def test_compares_policies_with_what_was_decided_under_them(past: Placement) -> None:
    comparison = compare(past, "p0", "p2")
    diff = comparison.decision

    assert [(piece.sign, piece.text) for piece in comparison.sentence or ()] == [
        ("−", "Select 2 clusters."),
        ("+", "Select 3 clusters; at most 2 apart across region (hard)."),
    ]
    assert diff
    assert (diff.joins, diff.leaves, diff.stays) == (
        ("bravelion",),
        (),
        ("jumpingcat", "nimblefox"),
    )
    assert [
        (group.group, group.before, group.after, group.clusters)
        for group in diff.groups[0].groups
    ] == [
        ("east", 0, 1, 1),
        ("west", 2, 2, 2),
    ]
    assert "+    numberOfClusters: 3" in [
        f"{piece.sign}{piece.text}" for piece in comparison.manifest or ()
    ]


def test_compares_decisions_by_the_beginning_of_their_ids(past: Placement) -> None:
    first, second, _ = _ids(past)

    comparison = compare(past, first[2:12], second[:12])

    assert (comparison.before.title, comparison.after.title) == (
        "decision 1",
        "decision 2",
    )
    assert comparison.decision
    assert (comparison.decision.joins, comparison.decision.leaves) == (
        ("bravelion",),
        ("jumpingcat",),
    )


@pytest.mark.nightly
def test_names_who_stays_for_another_reason(past: Placement) -> None:
    diff = compare(past, "p0", "p1").decision

    assert diff
    assert [shift.cluster for shift in diff.shifts] == list(diff.stays) == ["nimblefox"]
    assert diff.shifts[0].before != diff.shifts[0].after


@pytest.mark.nightly
def test_a_decision_does_not_differ_from_itself(past: Placement) -> None:
    same = _ids(past)[2]

    comparison = compare(past, same, same)

    assert comparison.manifest == []
    assert [piece.sign for piece in comparison.sentence or ()] == [""]
    assert comparison.decision
    assert (
        comparison.decision.joins,
        comparison.decision.leaves,
        comparison.decision.shifts,
    ) == ((), (), ())


def test_compares_resources_object_by_object(past: Placement) -> None:
    changes = compare(past, "s0", "s1").resources

    assert changes is not None
    assert [(change.did, change.name) for change in changes] == [
        ("changed", "ConfigMap shop/settings")
    ]
    assert "+  colour: blue" in [
        f"{line.sign}{line.text}" for line in changes[0].lines or ()
    ]
    assert compare(past, "s0", "s1").same_resources == 1


@pytest.mark.parametrize("pair", ["p0..p1", "p2..p0", "s0..s1"])
def test_shows_the_comparison(viewer: Client, text_of: Fetch, pair: str) -> None:
    before, after = pair.split("..")

    page = text_of(viewer, f"/placements/web/compare/{pair}/")

    assert f'href="/placements/web/compare/{after}..{before}/"' in page


@pytest.mark.nightly
@pytest.mark.parametrize(
    "pair", ["p0..p9", "s0..s7", "d-00000000..p0", "x..y", "p0..p1..p2"]
)
def test_what_is_not_kept_is_not_there(viewer: Client, pair: str) -> None:
    assert viewer.get(f"/placements/web/compare/{pair}/").status_code == 404


def test_resources_are_not_compared_with_a_policy(viewer: Client) -> None:
    answer = viewer.get("/placements/web/compare/p0..s1/")

    assert answer.status_code == 422
    assert (
        "resource snapshots can only be compared with resource snapshots"
        in answer.content.decode().lower()
    )


def test_header_history_rest_and_event_have_one_number_that_no_pause_raises(
    viewer: Client, text_of: Fetch
) -> None:
    pause("web", by=None, now=LAST)
    resume("web", by=None, now=LAST)
    saved = Event.objects.filter(name="web", verb="changed").latest("id")

    assert "<strong>Revision 4</strong>" in text_of(viewer, "/placements/web/")
    assert _rows(text_of(viewer, "/placements/web/history/"))[0][0].startswith(
        "Revision 4 "
    )
    assert "· revision 4 ·" in text_of(viewer, f"/activity/{saved.pk}/")
    [listed] = viewer.get("/api/v1/placements").json()["items"]
    assert listed["revisionNumber"] == 4


def test_policy_and_resources_are_rolled_back_in_one_step(
    operator: Client, past: Placement, text_of: Fetch
) -> None:
    address = "/placements/web/roll-back/?number=1"
    Resource.objects.all().delete()  # the older snapshot is rolled out, whatever the hub has now
    page = text_of(operator, address)
    entered = {"number": "1", "revision": str(past.revision)}
    outdated = operator.post(address, {**entered, "revision": str(past.revision - 1)})
    unchanged = Placement.objects.get(pk=past.pk)

    done = operator.post(address, entered)

    assert "<h1>Roll back web to revision 1?</h1>" in page
    assert (
        "Revision 6 will have the policy and the rollout strategy and the resources"
        in page
    )
    assert "Clusters are not restored" in page
    assert ">Roll back to revision 1</button>" in page
    assert "2 of 2 clusters selected" in page
    assert "No resources are selected" not in page
    assert "<dt>1 deselected</dt>" in page
    assert re.search(r'class="went"><code>\s*numberOfClusters: <del>3</del>', page)
    assert "Changes of 1 resource" in page
    assert (outdated.status_code, unchanged.revision) == (409, past.revision)
    assert "web was changed while you reviewed this" in page_text(outdated)
    web = Placement.objects.get(pk=past.pk)
    assert done["Location"] == "/placements/web/"
    assert (
        web.document["spec"]["policy"]["numberOfClusters"],
        web.pinned_snapshot,
    ) == (2, 2)
    assert "topologySpreadConstraints" not in web.document["spec"]["policy"]
    run_due(after=LAST - NOW)
    assert (
        Placement.objects.get(pk=past.pk).resource_snapshots.get(is_latest=True).number
        == 2
    )
    assert "Rolling back web to revision 1, as revision 6." in text_of(
        operator, "/placements/web/"
    )
    assert "web cannot roll back to revision 7; earlier revisions: 1, 3, 4" in text_of(
        operator, address.replace("=1", "=7")
    )


def test_says_before_a_rollback_what_it_leaves_behind(
    operator: Client, past: Placement, text_of: Fetch
) -> None:
    def result(number: int) -> str:
        page = text_of(operator, f"/placements/web/roll-back/?number={number}")
        return words_of(page.partition('id="result"')[2].partition("</section>")[0])

    later = LAST + timedelta(minutes=1)
    red = config_map("settings", data={"colour": "red"})
    apply_resources([red], by=None, now=later)
    run_due(after=later - NOW)
    MemberCluster.objects.update(driver="simulated")
    before = result(4)
    placed = Binding.objects.filter(placement=past).order_by("cluster_name")[0]
    MemberCluster.objects.filter(name=placed.cluster_name).update(driver="")
    Placement.objects.filter(pk=past.pk).update(is_fulfilled=False)
    pause("web", by=None, now=later)

    after = result(4)

    assert "3 clusters in" in before
    assert "rolled back" not in before
    assert "No cluster is rolled back until you resume web." in after
    words = f"{placed.cluster_name} Unblocks when the cluster gets a driver."
    assert words in after
    assert "Not fulfilled The policy stays" in after


def test_rolling_back_to_a_policy_that_selects_no_cluster_is_confirmed_first(
    operator: Client, past: Placement
) -> None:
    nowhere = pick_n_spec(2, topologySpreadConstraints=[spread("moon")], **NOWHERE)
    at, then = (LAST + timedelta(minutes=one) for one in (1, 2))
    save_placement(placement_document("web", nowhere), by=None, now=at, confirmed=True)
    run_due(after=at - NOW)
    apply_resources([config_map("settings", data={"colour": "red"})], by=None, now=then)
    _save(past.document["spec"], at=then)
    address = "/placements/web/roll-back/?number=5"
    revision = Placement.objects.get(pk=past.pk).revision
    entered = {"number": "5", "revision": str(revision)}

    unaccepted = operator.post(address, entered)
    entered["accept"] = "yes"
    refused = operator.post(address, entered)
    unchanged = Placement.objects.get(pk=past.pk)
    done = operator.post(address, {**entered, "confirm": "unschedule-everything"})

    assert unaccepted.status_code == 422
    assert "No cluster has the label moon" in unaccepted.content.decode()
    assert (refused.status_code, unchanged.revision) == (409, revision)
    assert "web would leave all 3 clusters" in refused.content.decode()
    assert 'name="confirm" value="unschedule-everything"' in refused.content.decode()
    assert done["Location"] == "/placements/web/"
    assert Placement.objects.get(pk=past.pk).pinned_snapshot == 3


def test_a_former_number_of_clusters_is_offered_too(
    operator: Client, past: Placement, text_of: Fetch
) -> None:
    """Another number makes no policy snapshot, so no policy brings it back."""
    policy = pick_n_spec(2, topologySpreadConstraints=[spread("region", max_skew=2)])
    _save(policy, at=LAST + timedelta(minutes=1))

    page = text_of(operator, "/placements/web/history/")

    assert _offered(page) == ["4", "3", "1"]
    done = operator.post("/placements/web/roll-back/", {"number": "4"})
    assert done["Location"] == "/placements/web/"
    web = Placement.objects.get(pk=past.pk)
    assert web.document["spec"] == past.document["spec"]
    assert web.pinned_snapshot is None


@pytest.mark.nightly
def test_what_was_restored_is_the_old_policy_to_the_letter(past: Placement) -> None:
    old = past.policy_snapshots.get(number=1)

    restored = manifest_with(past, old, past.number_of_clusters)
    assert restored
    save_placement(restored, by=None, now=LAST)

    assert past.policy_snapshots.get(is_latest=True).content_hash == old.content_hash


def test_a_policy_that_wants_what_holds_today_is_not_offered(
    operator: Client, text_of: Fetch
) -> None:
    _save(
        pick_n_spec(2, topologySpreadConstraints=[REGION]),
        at=LAST + timedelta(minutes=1),
    )

    listed = text_of(operator, "/placements/web/history/")

    assert _offered(listed) == ["4", "1"]


def test_the_policy_of_a_placement_of_ocm_comes_back_as_it_was_written() -> None:
    first = with_resources(
        ocm_document("edge", numberOfClusters=1, tolerations=[]), NAMESPACE
    )
    changed = {
        **first,
        "spec": {
            "numberOfClusters": 2,
            "tolerations": [{"key": "gpu", "operator": "Exists"}],
        },
    }
    for minute, document in enumerate((first, changed)):
        save_placement(document, by=None, now=NOW + timedelta(minutes=minute))
        run_due(after=timedelta(minutes=minute))
    edge = Placement.objects.get(name="edge")

    restored = spec_restores(edge, revisions_of(edge))

    assert list(restored.values()) == [first]


@pytest.mark.nightly
def test_more_policies_take_no_more_queries(viewer: Client) -> None:
    query_counts = []
    for minute in (1, 2):
        for more in (1, 2):
            at = LAST + timedelta(minutes=10 * minute + more)
            skew = spread("region", max_skew=10 * minute + more)
            _save(pick_n_spec(2, topologySpreadConstraints=[skew]), at=at)
        compare_for_long()
        with CaptureQueriesContext(connection) as queries:
            viewer.get("/placements/web/history/")
        query_counts.append(len(queries))

    assert query_counts[0] == query_counts[1]
