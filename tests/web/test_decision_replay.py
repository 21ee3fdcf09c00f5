"""The replay on the page of a decision, why not, and its pictures; the two worked examples of the traps."""

import html
import json
import re
from collections.abc import Callable
from datetime import timedelta

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from fleetui.access.secret_values import plain_manifest
from fleetui.apimachinery.yaml import load_documents
from placements.engine.exact import record
from placements.models import Decision, Draft, Placement
from placements.services.decisions import exact
from placements.services.placements import save_placement
from placements.services.workqueue import enqueue_scheduling
from tests.engine.exact.random_problems import dead_end as exact_example
from tests.rows import (
    NOW,
    all_joined,
    decided,
    joined,
    pick_n_spec,
    placement_document,
    run_due,
)

pytestmark = pytest.mark.django_db

Fetch = Callable[[Client, str], str]
HARD = "DoNotSchedule"


def constraint(key: str, max_skew: int = 1) -> dict[str, object]:
    return {"topologyKey": key, "maxSkew": max_skew, "whenUnsatisfiable": HARD}


def required(**labels: str) -> dict[str, object]:
    terms = {"clusterSelectorTerms": [{"labelSelector": {"matchLabels": labels}}]}
    return {
        "clusterAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}
    }


def address(placement: Placement | str, query: str = "") -> str:
    name = placement if isinstance(placement, str) else placement.name
    latest = (
        Decision.objects.select_related("record")
        .filter(placement_name=name)
        .latest("number")
    )
    return f"/decisions/{latest.record.decision_id}/{query}"


@pytest.fixture
def pinned() -> Placement:
    """Make the first worked example: south can never be picked and holds the minimum at 0."""
    for name, region in (
        ("e1", "east"),
        ("e2", "east"),
        ("w1", "west"),
        ("w2", "west"),
    ):
        joined(name, region=region, env="prod")
    joined("s1", region="south", env="canary")
    policy = {
        "affinity": required(env="prod"),
        "topologySpreadConstraints": [constraint("region")],
    }
    return decided("shop", pick_n_spec(4, **policy))


@pytest.fixture
def dead_end() -> Placement:
    """Make the second worked example: a set of four exists, and picking one at a time does not find it."""
    for name, rack, power in (
        ("c0", "r0", "e0"),
        ("c1", "r2", "e0"),
        ("c2", "r2", "e1"),
        ("c3", "r0", "e1"),
        ("c4", "r0", "e1"),
    ):
        joined(name, region=rack, env=power)
    return decided(
        "lab",
        pick_n_spec(
            4, topologySpreadConstraints=[constraint("region"), constraint("env")]
        ),
    )


def plain(page: str) -> str:
    return " ".join(re.sub("<[^>]+>", " ", page).split())


@pytest.mark.usefixtures("nine")
def test_each_step_has_an_address_and_links_to_its_neighbours(
    viewer: Client, text_of: Fetch
) -> None:
    page = text_of(viewer, address("web", "?step=2"))
    words = plain(page)

    assert "Ranking of step 2" in words
    assert 'href="?step=1"' in page
    assert 'href="?step=3"' in page
    assert page.count('data-key="["') == page.count('data-key="]"') == 1
    assert "Step 2: why smartfish and not oldbadger" in words
    assert "env=canary: skew 1 → 0 (+1)." in words
    assert "by name, last of the alphabet first: smartfish, oldbadger" in words
    assert "4 have more affinity, but spread decides first." in words
    # Only of those with the best spread: others have +20.
    assert "all of these with affinity" in words


@pytest.mark.usefixtures("nine")
def test_the_first_viewport_answers_who_was_selected_where_and_why(
    viewer: Client, text_of: Fetch
) -> None:
    page = text_of(viewer, address("web"))
    words = plain(page)

    verdict = words[words.index("web: 5 of 5 clusters selected") :][:160]
    assert "region skew 1 (max 1, hard) env skew 1 (max 2, soft)" in verdict
    assert "Rescheduled: 5 were placed before, 3 stay, 2 new, 2 deselected." in words
    picks = re.findall(
        r'class="chip[^"]*"[^>]*>\s*<span class="step-number">(\d)</span> <strong>(\w+)<',
        page,
    )
    order = ["quietheron", "smartfish", "nimblefox", "palemoth", "oldbadger"]
    assert picks == [(str(number), name) for number, name in enumerate(order, start=1)]
    assert "region max skew 1, hard · emptiest 1 + max skew 1 = at most 2" in words
    assert (
        "Higher wins: spread, then affinity, then placed before, then the name" in words
    )
    assert "prod 4 against 1: 3 > 2 (soft)" in html.unescape(words)
    assert "Step 5: why oldbadger and not flyingpenguin" in words
    assert "Step 1: why quietheron and not nimblefox" in words


@pytest.mark.usefixtures("nine")
def test_the_first_and_the_last_step_lead_nowhere_further(
    viewer: Client, text_of: Fetch
) -> None:
    first, last = (text_of(viewer, address("web", query)) for query in ("?step=1", ""))

    assert 'data-key="["' not in first
    assert 'data-key="]"' in first
    assert "Step 5 of 5" in plain(last)
    assert 'data-key="]"' not in last


@pytest.mark.nightly
@pytest.mark.usefixtures("nine")
@pytest.mark.parametrize("step", ["0", "6", "x", "-1", "99999999999"])
def test_a_step_that_there_was_not_is_not_found(viewer: Client, step: str) -> None:
    assert viewer.get(address("web", f"?step={step}")).status_code == 404


@pytest.mark.usefixtures("nine")
def test_the_candidates_stand_with_their_scores_and_what_decided(
    viewer: Client, text_of: Fetch
) -> None:
    page = text_of(viewer, address("web", "?step=2&cluster=bravelion"))
    table = page[page.index('<table class="ranking"') :].partition("</table>")[0]
    rows = [plain(row) for row in table.split("<tr")[1:]]

    assert "Candidate region env = spread affinity Why" in rows[0]
    assert any("1 smartfish east, canary 0 +1 +1 −10 Selected" in row for row in rows)
    assert any(
        "4 bravelion east, prod 0 −1 −1 +20 Spread −1 against +1" in row for row in rows
    )
    assert any(
        "jumpingcat" in row and "west would be 2 against 0: skew 2" in row
        for row in rows
    )
    assert re.search(
        r'class="score deciding" data-column="= spread"><span class="value loss">−1<',
        table,
    )
    named = re.search(r"Same scores: by name", table)
    assert named
    assert "deciding" not in table[: named.start()].rpartition("<tr")[2]


@pytest.mark.usefixtures("nine")
def test_a_cluster_is_explained_through_all_steps_without_an_empty_form(
    viewer: Client, text_of: Fetch
) -> None:
    closed, opened = (
        text_of(viewer, address("web", query)) for query in ("", "?cluster=bravelion")
    )
    course = plain(
        opened.partition('class="cluster-steps"')[2].partition("</table>")[0]
    )

    assert 'id="why"' not in closed
    assert "1 −2 +20 rank 4" in course
    assert "3 – +20 blocked: east would be 2 against 0" in course  # noqa: RUF001 -- the dash of tables
    assert "5 −1001 +20 rank 4" in course


@pytest.mark.usefixtures("nine")
@pytest.mark.parametrize("name", ["groups", "step-1", "start"])
def test_the_figure_of_the_domains_is_fetched_by_itself(
    viewer: Client, name: str
) -> None:
    answer = viewer.get(address("web", f"?figure={name}"))

    assert answer["Content-Type"] == "application/json"
    assert {"data", "layout"} <= set(answer.json())
    assert viewer.get(address("web", "?figure=step-9")).status_code == 404
    assert viewer.get(address("web", "?figure=other")).status_code == 404


@pytest.mark.nightly
@pytest.mark.usefixtures("nine")
def test_htmx_gets_the_record_alone(viewer: Client) -> None:
    answer = viewer.get(address("web", "?step=3"), headers={"HX-Request": "true"})
    text = answer.content.decode()

    assert text.lstrip().startswith('<div class="record" id="record"')
    assert "<html" not in text
    assert "HX-Request" in answer["Vary"]


@pytest.mark.nightly
@pytest.mark.usefixtures("nine")
def test_panels_of_a_fulfilled_decision_load_by_themselves_and_have_links(
    viewer: Client, text_of: Fetch
) -> None:
    page = text_of(viewer, address("web"))
    issues, view = (
        viewer.get(
            address("web", f"?panel={one}"), headers={"HX-Request": "true"}
        ).content.decode()
        for one in ("issues", "view")
    )

    assert re.search(
        r'id="issues"[^>]* hx-get="\?panel=issues" hx-trigger="load"', page
    )
    assert re.search(
        r'id="view"[^>]* hx-get="\?panel=view" hx-trigger="revealed"', page
    )
    assert 'href="?panel=issues"' in page
    assert 'href="?view=clusters#view"' in page
    assert issues.lstrip().startswith('<div id="issues">')
    assert view.lstrip().startswith('<section id="view"')
    assert (
        view.count("<tr>") == 20
    )  # the clusters through all steps, and with their reasons
    assert 'hx-push-url="?view=affinity"' in view


@pytest.mark.usefixtures("nine")
def test_what_a_decision_ran_into_is_in_sight(viewer: Client, text_of: Fetch) -> None:
    page = text_of(viewer, address("ledger", "?panel=issues"))

    assert "<details>" not in page
    words = plain(page)
    assert "Smallest corrections: region maxSkew 2" in words
    assert (
        "palemoth with label system=critical (now none). "
        "This newly selects palemoth and gives up nothing, if the label is true. 7 changes"
    ) in words
    assert "Joined since: palemoth (south)." in words
    # The clusters that it keeps come first, as steps of the decision that selected them.
    kept = [
        "1 quietheron west selected by decision 1",
        "2 nimblefox north selected by decision 1",
        "3 bravelion east selected by decision 1",
        "Start 3 kept",
        "1 no cluster all blocked",
    ]
    order = [words.index(one) for one in kept]
    assert order == sorted(order)
    assert "name over nimblefox" in words[order[0] : order[1]]
    assert "Kept" not in words
    assert "Decision 1. Step 1: why quietheron and not nimblefox or 2 others" in words
    first = Decision.objects.get(placement_name="ledger", number=1).record.decision_id
    assert f'href="/decisions/{first}/?step=2"' in page
    assert plain(page).count("◀ Decision 1") == 1
    # In the order of what an operator would accept.
    ways = [
        "1 more cluster: 1 in region=south",
        "prefer system=critical instead of requiring it",
        "region whenUnsatisfiable ScheduleAnyway",
        "numberOfClusters 3 (now 4)",
    ]
    places = [words.index(way) for way in ways]
    assert places == sorted(places)
    assert "possible with 1 more cluster" not in words


@pytest.mark.usefixtures("nine")
def test_each_change_that_helps_leads_to_where_it_is_done(
    operator: Client, viewer: Client, text_of: Fetch
) -> None:
    page = text_of(operator, address("ledger"))
    table = page.partition('id="fixes-title"')[2].partition("</table>")[0]
    rows = [plain(part) for part in table.split("<tr>")[2:]]

    assert "/clusters/palemoth/edit/?label=system%3Dcritical" in table
    assert len(rows) == 7
    assert [row.rpartition("  ")[2].split()[-3:] for row in rows[2:]] == [
        ["Open", "as", "draft"]
    ] * 5
    assert "maxSkew: 2" in table
    assert "numberOfClusters: 3" in table
    of_viewer = text_of(viewer, address("ledger"))
    assert "Open as draft" not in of_viewer.partition('id="fixes-title"')[2]


@pytest.mark.nightly
@pytest.mark.usefixtures("nine")
def test_why_not_shows_the_course_and_offers_drafts(
    operator: Client, viewer: Client, text_of: Fetch
) -> None:
    words = plain(text_of(operator, address("web", "?cluster=bravelion")))

    assert (
        "Candidate in 5 of 5 steps: lost 1 on name, lost 2 on topology spread, blocked in 2 by a hard limit, "
        "first in step 3." in words
    )
    assert "one more in env=prod raises the skew to 3, over the soft limit 2," in words
    assert re.search(
        r"numberOfClusters 7 \(now 5\) . then selected: flyingpenguin, bravelion Open as draft",
        words,
    )
    advice = words.partition("Changes that would select it")[2].partition(
        "Changes that would not"
    )[0]
    assert advice.partition("more change")[0].count("then selected") == 5
    assert "no spread constraint on env" in advice
    assert "Open as draft" not in plain(
        text_of(viewer, address("web", "?cluster=bravelion"))
    )


@pytest.mark.usefixtures("nine")
def test_many_suggestions_read_the_placement_once(viewer: Client) -> None:
    page = address("web", "?cluster=bravelion")
    viewer.get(page)

    with CaptureQueriesContext(connection) as queries:
        viewer.get(page)

    read = 'SELECT "placements_placement"."id"'
    assert sum(query["sql"].startswith(read) for query in queries) == 1


@pytest.mark.nightly
@pytest.mark.usefixtures("nine")
def test_a_draft_opens_in_the_editor_and_nothing_is_saved(
    operator: Client, text_of: Fetch
) -> None:
    page = text_of(operator, address("web", "?cluster=bravelion"))
    manifests = [
        html.unescape(one)
        for one in re.findall(r'name="manifest" value="([^"]+)"', page)
    ]
    manifests = [
        manifest for manifest in manifests if "numberOfClusters: 7" in manifest
    ]
    before = Placement.objects.get(name="web")

    answer = operator.post(
        "/placements/web/edit/",
        {"manifest": manifests[0], "do": "draft", "revision": str(before.revision)},
    )

    draft = Draft.objects.get(placement=before)
    assert "numberOfClusters: 7" in manifests[0]
    assert (
        load_documents(plain_manifest(draft.text))[0].data["spec"]["policy"][
            "numberOfClusters"
        ]
        == 7
    )
    address_of_draft = f"/drafts/{draft.pk}/?errors=all"
    assert (answer.status_code, answer["Location"]) == (302, address_of_draft)
    assert Placement.objects.get(name="web").revision == before.revision
    assert Placement.objects.get(name="web").document == before.document


@pytest.mark.nightly
@pytest.mark.usefixtures("nine")
def test_a_draft_that_was_begun_before_stays_and_the_page_says_so(
    operator: Client, text_of: Fetch
) -> None:
    page = text_of(operator, address("web", "?cluster=bravelion"))
    first, second = [
        html.unescape(one)
        for one in re.findall(r'name="manifest" value="([^"]+)"', page)
    ][:2]
    operator.post("/placements/web/edit/", {"manifest": first, "do": "draft"})

    answer = operator.post(
        "/placements/web/edit/", {"manifest": second, "do": "draft"}, follow=True
    )

    policies = [
        load_documents(one)[0].data["spec"]["policy"] for one in (first, second)
    ]
    assert policies[0] != policies[1]
    assert (
        load_documents(plain_manifest(Draft.objects.get().text))[0].data["spec"][
            "policy"
        ]
        == policies[0]
    )
    assert "What you wanted to open is not in it" in answer.content.decode()


@pytest.mark.nightly
@pytest.mark.usefixtures("nine")
def test_no_draft_is_offered_once_the_policy_is_another(
    operator: Client, text_of: Fetch
) -> None:
    old = address("web", "?cluster=bravelion")
    document = Placement.objects.get(name="web").document
    changed = json.loads(json.dumps(document))
    changed["spec"]["policy"]["numberOfClusters"] = 6
    save_placement(changed, by=None, now=NOW)

    assert "Open as draft" not in text_of(operator, old)


@pytest.mark.nightly
@pytest.mark.usefixtures("nine")
def test_a_cluster_in_a_decision_has_an_address_of_its_own(
    viewer: Client, text_of: Fetch
) -> None:
    page = text_of(viewer, address("web", "clusters/bravelion/"))

    assert "Why bravelion was not selected" in page
    assert viewer.get(address("web", "clusters/missing/")).status_code == 404
    short = viewer.get(f"{address('web')[:20]}/clusters/bravelion/")
    assert short["Location"] == address("web", "clusters/bravelion/")


@pytest.mark.nightly
@pytest.mark.usefixtures("nine")
def test_part_of_a_name_finds_clusters(viewer: Client, text_of: Fetch) -> None:
    assert "?cluster=nimblefox#why" in text_of(viewer, address("web", "?cluster=fox"))


@pytest.mark.nightly
@pytest.mark.usefixtures("nine")
@pytest.mark.parametrize(
    ("view", "chart"),
    [("funnel", "funnel"), ("affinity", "affinity")],
)
def test_a_view_draws_its_chart_and_no_other(
    viewer: Client, text_of: Fetch, view: str, chart: str
) -> None:
    page = text_of(viewer, address("web", f"?view={view}"))

    assert re.findall(r'data-figure="plot-(\w+)"', page) == [chart]
    assert viewer.get(address("web", f"?table={chart}")).status_code == 200


@pytest.mark.nightly
@pytest.mark.usefixtures("nine")
def test_each_stage_of_the_funnel_leads_to_its_clusters(
    viewer: Client, text_of: Fetch
) -> None:
    page = text_of(viewer, address("ledger", "?view=funnel"))
    link = re.search(r'href="(\?[^"]+)">5 removed: required affinity', page)

    assert link
    listed = text_of(
        viewer, address("ledger", link[1].split("#")[0].replace("&amp;", "&"))
    )
    assert "1\N{EN DASH}5 of 5" in listed


@pytest.mark.nightly
@pytest.mark.usefixtures("nine")
def test_the_clusters_are_filtered_by_group_and_name(
    viewer: Client, text_of: Fetch
) -> None:
    east = text_of(viewer, address("web", "?group=region:east"))
    none = text_of(viewer, address("web", "?group=region:moon&q=x"))

    assert "1\N{EN DASH}3 of 3" in east
    assert "No clusters match. 9 without this filter." in plain(none)


@pytest.mark.nightly
@pytest.mark.usefixtures("nine")
def test_one_ranking_has_a_cut_and_no_steps(viewer: Client, text_of: Fetch) -> None:
    placement = decided("flat", pick_n_spec(3))
    page = text_of(viewer, address(placement, ""))

    assert "Ranking of step 1" in page
    assert page.count('<tr class="selected') == 3
    assert '<tr class=" cut' in page
    assert 'data-key="]"' not in page


@pytest.mark.nightly
def test_a_pinned_group_is_called_by_name(
    viewer: Client, text_of: Fetch, pinned: Placement
) -> None:
    words = plain(text_of(viewer, address(pinned, "")))

    assert "2 of 4 clusters selected" in words
    assert (
        "Blocking domain: region=south has 0 selected clusters and no candidates, so the minimum stays at 0"
        in words
    )
    assert "Step 3: why no cluster" in words
    assert "every one would break region (max skew 1, hard)" in words
    assert "region maxSkew 2" in words
    assert "region whenUnsatisfiable ScheduleAnyway (now DoNotSchedule)" in words
    assert "s1 removed from the fleet" not in words
    assert "s1 without the label region" not in words


@pytest.mark.nightly
def test_a_dead_end_is_distinguished_from_the_impossible(
    viewer: Client, text_of: Fetch, dead_end: Placement
) -> None:
    words = plain(text_of(viewer, address(dead_end)))

    assert "3 of 4 clusters selected" in words
    assert "4 of 4 are possible without any change." in words
    assert "Greedy compared with exact" in plain(
        text_of(viewer, address(dead_end, "?view=compare"))
    )
    assert "Show the set Plan the moves" in words
    assert "What would help" not in words


@pytest.mark.nightly
def test_a_large_problem_is_searched_when_its_section_is_opened(
    viewer: Client, text_of: Fetch, dead_end: Placement, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (record, exact):
        monkeypatch.setattr(module, "is_small", lambda _model: False)
    closed = text_of(viewer, address(dead_end, "?view=compare"))
    opened = plain(text_of(viewer, address(dead_end, "?panel=exact")))

    assert 'panel=exact#exact"' in closed
    assert "Greedy compared with exact" not in closed
    assert "4 of 4 are possible without any change." in opened
    assert "Show the set (4 clusters)" in opened


@pytest.mark.nightly
def test_eight_of_eight_are_possible_on_the_page_and_over_rest(
    viewer: Client, text_of: Fetch
) -> None:
    decision = exact_example(8)
    for cluster in decision.cycle.fleet:
        joined(cluster.name, **cluster.labels)
    policy = decision.cycle.policy.to_plain()
    page = address(decided("dead", {**pick_n_spec(8), "policy": policy}))
    words = plain(text_of(viewer, f"{page}?view=compare"))
    exact_over_rest = viewer.post(
        f"/api/v1{page}exact", {}, content_type="application/json"
    ).json()
    clusters = [
        {"name": cluster.name, "labels": dict(cluster.labels)}
        for cluster in decision.cycle.fleet
    ]
    placement = placement_document("dead", {**pick_n_spec(8), "policy": policy})
    simulated = viewer.post(
        "/api/v1/simulate",
        {"clusters": clusters, "placement": placement, "exact": True},
        content_type="application/json",
    ).json()

    assert "5 of 8 clusters selected" in words
    assert "8 of 8 are possible without any change." in words
    assert (
        "Show the set (8 clusters) In an order in which every selection keeps the hard limits"
        in words
    )
    assert "What would help" not in words
    for cluster in (exact_over_rest, simulated["exact"]):
        assert (cluster["verdict"], cluster["most"], cluster["order"]) == (
            "optimal",
            [8, 8],
            "possible",
        )
        assert sorted(cluster["sequence"]) == cluster["picks"]
        assert cluster["corrections"] == []


def test_a_better_set_is_searched_although_all_are_selected(
    viewer: Client, text_of: Fetch
) -> None:
    for name, labels in {
        "c0": "r0 e0",
        "c1": "r2 e0",
        "c2": "r2 e1",
        "c3": "r0 e1",
        "c4": "r0 e1",
    }.items():
        joined(name, region=labels.split()[0], env=labels.split()[1])
    soft = [
        {**constraint(key), "whenUnsatisfiable": "ScheduleAnyway"}
        for key in ("region", "env")
    ]
    policy = pick_n_spec(4, topologySpreadConstraints=soft)
    page = address(decided("lab", policy))
    closed, opened = (
        text_of(viewer, f"{page}?view=compare"),
        plain(text_of(viewer, f"{page}?panel=exact")),
    )

    assert "Search for a better set" in plain(closed)
    assert (
        "A better set exists: excess of soft limits 0 instead of 1, skew 0 instead of 2."
        in opened
    )
    assert "Plan the moves" in opened
    joined("c5", region="r1", env="e0")
    enqueue_scheduling(
        Placement.objects.values_list("pk", flat=True), trigger="one more cluster"
    )
    run_due()
    assert "Plan the moves" not in plain(text_of(viewer, f"{page}?panel=exact"))


@pytest.mark.nightly
def test_rules_without_exact_search_say_so(viewer: Client, text_of: Fetch) -> None:
    joined("aa", region="east")
    placement = decided("lab", pick_n_spec(2), semantics="kubernetes")
    words = plain(text_of(viewer, address(placement)))

    assert (
        "Not determined: exact search does not support these scheduling rules." in words
    )
    assert "Maximum with the current fleet: 1." in words


@pytest.mark.nightly
def test_what_no_order_reaches_is_called_impossible(
    viewer: Client, text_of: Fetch
) -> None:
    joined("aa", region="east", env="x")
    joined("bb", region="east", env="x")
    joined("cc", region="west", env="x")
    limits = [constraint("region"), constraint("env")]
    joined("zz", region="west", env="y")
    placement = decided("lab", pick_n_spec(4, topologySpreadConstraints=limits))
    words = plain(text_of(viewer, address(placement)))

    assert "At most 3 of 4 are possible." in words
    assert "Conflict: env spread (maxSkew 1)" in words
    assert "Dead end" not in words


def test_the_advantage_of_a_missing_label_is_reported(
    viewer: Client, text_of: Fetch
) -> None:
    joined("aa", region="east")
    joined("bb", region="west")
    joined("zz")
    placement = decided(
        "shop", pick_n_spec(1, topologySpreadConstraints=[constraint("region")])
    )
    words = plain(text_of(viewer, address(placement, "?panel=issues&step=1")))

    assert (
        "Selected without the label region, so the constraint was not enforced: zz"
        in words
    )
    alone = "zz has no label region: this constraint does not limit it, and scores 0"
    assert alone in words


@pytest.mark.nightly
def test_a_stale_pick_is_called_by_name(viewer: Client, text_of: Fetch) -> None:
    joined("aa", tier="edge")
    decided("shop", pick_n_spec(1, affinity=required(tier="edge")))
    joined("aa", tier="core")
    joined("bb", tier="edge")
    placement = decided("shop", pick_n_spec(2, affinity=required(tier="edge")))
    words = plain(text_of(viewer, address(placement, "?panel=issues")))

    assert (
        "Outdated at this decision, would not be selected if rescheduled: aa." in words
    )


def test_kept_clusters_are_listed_once_in_the_order_of_their_selection(
    viewer: Client, text_of: Fetch
) -> None:
    all_joined("a", "b")
    for number, moment in ((1, 0), (2, 1), (1, 2), (2, 3)):
        later = timedelta(minutes=moment)
        save_placement(
            placement_document("web", pick_n_spec(number)), by=None, now=NOW + later
        )
        run_due(after=later)
    joined("c")
    later = timedelta(minutes=4)
    save_placement(placement_document("web", pick_n_spec(3)), by=None, now=NOW + later)
    run_due(after=later)

    page = plain(text_of(viewer, address("web")))

    assert "Kept, in order of selection b a · selected by" in page


def test_scores_of_kept_clusters_are_those_of_the_decisions_that_selected_them(
    viewer: Client, text_of: Fetch
) -> None:
    all_joined("a", "b", "c")
    for number, moment in ((1, 0), (3, 1), (2, 2)):
        later = timedelta(minutes=moment)
        save_placement(
            placement_document("web", pick_n_spec(number)), by=None, now=NOW + later
        )
        run_due(after=later)

    page = plain(text_of(viewer, address("web")))

    words = "(scores of the decisions that selected them: topology spread, affinity)"
    assert f"{words} c 0, 0 b 0, 0 · selected by decision 2 , decision 1" in page
    table = plain(text_of(viewer, "/placements/web/"))
    assert "Scores of kept clusters are those of the decision that selected" in table
