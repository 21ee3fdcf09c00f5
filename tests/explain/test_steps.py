"""The steps of a decision: the strip of picks, the lanes of domains, the ranking, one cluster through all."""

import json

import numpy as np
import pytest

from placements.engine.scheduling.outcome import BLOCKED, Outcome, Outcomes
from placements.engine.scheduling.replay import Replay
from placements.explain.charts.lanes import lanes_figure
from placements.explain.decision_tables import NAMED, ranking_of
from placements.explain.decisions import (
    course_sentences,
    rank_order_words,
    step_sentences,
    step_title,
)
from placements.explain.lanes import (
    BAND_WORDS,
    MARK_WORDS,
    Mark,
    dividing_key,
    final_skews,
    lane_panels,
    legend_of,
    placed_panels,
)
from placements.explain.preview import passed_over
from placements.explain.steps import MOST_COLUMNS, cluster_steps, skew_courses, strip_of
from placements.explain.vocabulary import (
    OUTCOME_WORDS,
    candidate_words,
    change_of_clusters,
    outcome_sentences,
    round_sentence,
)
from placements.manifests.policy import PlacementPolicy
from tests.builders import (
    binding,
    cluster,
    decide,
    expression,
    fleet,
    grouped,
    labelled,
    pick_all,
    pick_fixed,
    pick_n,
    prefer,
    spread,
    taint,
)

GUIDE = fleet(
    *grouped("region", east="bravelion smartfish", west="flyingpenguin jumpingcat")
)
TWO = decide(GUIDE, pick_n(2, spread=[spread("region")]))
"""The example of the guide: two of four clusters, at most 1 apart across region."""
LARGE = decide(
    fleet(
        *(
            cluster(
                f"c{number:03}",
                zone=f"z{number % 80:02}",
                tier="a" if number % 3 else "b",
            )
            for number in range(400)
        )
    ),
    pick_n(30, spread=[spread("zone")], prefer=[prefer(10, labelled(tier="a"))]),
)


def test_the_strip_says_what_each_step_did_to_the_skew_and_what_decided() -> None:
    strip = strip_of(TWO, 2)

    first, second = strip.chips
    assert (first.cluster, first.domains, first.decided_by) == (
        "smartfish",
        ("east",),
        "name",
    )
    assert (second.rival, second.decided) == ("flyingpenguin", "")
    assert [
        (bar.before, bar.after, bar.limit) for bar in (*first.skews, *second.skews)
    ] == [
        (0, 1, 1),
        (1, 0, 1),
    ]
    assert [bar.after for bar in strip.start] == [0]
    assert (first.is_current, second.is_current, strip.earlier, strip.later) == (
        False,
        True,
        0,
        0,
    )


def test_many_steps_show_those_around_the_current_one() -> None:
    strip = strip_of(LARGE, 15)

    assert len(strip.chips) == MOST_COLUMNS
    assert (strip.earlier, strip.later) == (8, 30 - 8 - MOST_COLUMNS)
    assert strip.start == ()
    assert [step.number for step in strip.hidden] == list(range(1, 9))
    assert strip.more == strip.later
    first = LARGE.picked_names[0]
    domain = LARGE.cycle.fleet.clusters[LARGE.cycle.fleet.positions[first]].labels
    assert strip.hidden[0].cluster == first
    assert (strip.hidden[0].domains, strip.hidden[0].skews) == (
        domain["zone"],
        "skew 1",
    )


def test_the_first_pick_is_explained_against_all_others() -> None:
    policy = pick_n(
        2, spread=[spread("region")], prefer=[prefer(20, labelled(region="east"))]
    )
    replay = Replay(decide(GUIDE, policy))

    sentences = step_sentences(replay, replay.step(1))

    assert step_title(replay.step(1)) == (
        "Step 1: why smartfish and not bravelion or 2 others"
    )
    assert sentences[0] == (
        "4 candidates: all with spread −1; 2 with the best affinity +20 (next 0);"
        " by name, last of the alphabet first: smartfish, bravelion."
    )


def test_a_step_says_how_its_candidates_come_about() -> None:
    assert ranking_of(Replay(TWO), 2).count_words == (
        "4 candidates − 1 selected = 3: 2 ranked, 1 blocked"
    )


def test_a_lane_holds_the_placed_then_the_others_before_the_step() -> None:
    [panel] = lane_panels(TWO, 2)

    lanes = {
        lane.name: [
            (segment.words, segment.mark, segment.number) for segment in lane.segments
        ]
        for lane in panel.lanes
    }
    assert lanes == {
        "east": [("smartfish", Mark.PLACED, 1), ("bravelion", Mark.BLOCKED, 0)],
        "west": [("jumpingcat", Mark.NEW, 2), ("flyingpenguin", Mark.CANDIDATE, 0)],
    }
    assert (panel.note, panel.band, panel.skew) == (
        "emptiest 0 + max skew 1 = at most 1",
        "at most 1",
        0,
    )
    [start] = lane_panels(TWO, 1, is_start=True)
    assert start.marks == {Mark.CANDIDATE}


def test_at_the_end_everybody_else_is_not_selected() -> None:
    [panel] = lane_panels(TWO)

    assert panel.marks == {Mark.PLACED, Mark.REST}
    assert [lane.placed for lane in panel.lanes] == [1, 1]


def test_a_soft_limit_marks_candidates_that_would_break_it() -> None:
    soft = decide(GUIDE, pick_n(3, spread=[spread("region", hard=False)]))

    assert Mark.COSTLY in lane_panels(soft, 2)[0].marks


def test_large_fleets_count_candidates_and_show_domains_near_the_limits() -> None:
    [panel] = lane_panels(LARGE, 30)
    [whole] = lane_panels(LARGE, 30, every=True)

    assert panel.hidden + len(panel.lanes) == len(whole.lanes) == 80
    assert whole.hidden == 0
    added = [
        lane
        for lane in panel.lanes
        if any(segment.mark is Mark.NEW for segment in lane.segments)
    ]
    assert len(added) == 1
    assert added[0].others.partition(" ")[2].startswith("candidates")


def test_clusters_without_the_label_have_a_lane_of_their_own() -> None:
    one = decide(
        fleet(cluster("a", region="east"), cluster("z")),
        pick_n(1, spread=[spread("region")]),
    )

    lane = lane_panels(one, 1)[0].lanes[-1]

    assert (lane.name, lane.placed, lane.added) == ("no region", 0, 1)
    assert lane.others == "no limit"


def test_the_domain_that_ends_a_decision_is_marked_at_its_last_step() -> None:
    members = fleet(
        *grouped("region", east="bravelion", west="flyingpenguin jumpingcat"),
        cluster("smartfish", region="south", tier="x"),
    )
    required = [expression("tier", "DoesNotExist")]
    policy = pick_n(3, required=required, spread=[spread("region")])
    decision = decide(members, policy)
    assert decision.number_of_rounds == 3

    marks = [
        {lane.name for lane in panel.lanes if lane.others}
        for step in (1, 3, None)
        for panel in lane_panels(decision, step)
    ]
    drawn = json.loads(lanes_figure(lane_panels(decision, 3), width=500).to_json())

    assert marks == [set(), {"south"}, {"south"}]
    [mark] = [
        annotation
        for annotation in drawn["layout"]["annotations"]
        if annotation["text"] == "blocking domain"
    ]
    assert mark["font"]["weight"] == 600


def test_the_figure_draws_the_lanes_with_the_limit_at_its_number() -> None:
    drawn = json.loads(lanes_figure(lane_panels(TWO, 2), width=500).to_json())

    bars = {
        one["name"]: (one["x"], one["base"], one["y"])
        for one in drawn["data"]
        if one["type"] == "bar"
    }
    assert bars["this step"] == ([0.96], [0.02], [1])
    assert bars["candidate, blocked"] == ([0.96], [1.02], [0])
    [band] = [shape for shape in drawn["layout"]["shapes"] if shape["type"] == "rect"]
    assert (band["x0"], band["x1"]) == (0, 1)
    assert "at most 1" in [
        annotation["text"] for annotation in drawn["layout"]["annotations"]
    ]
    assert [
        one["customdata"] for one in drawn["data"] if one.get("name") == "candidate"
    ] == [["flyingpenguin"]]


@pytest.mark.parametrize(
    ("width", "text"),
    [
        (500, "      <b>jumpingcat</b>"),
        (290, "&nbsp;<br><b>jumpingcat</b>"),
        (250, "&nbsp;<br><b>jumping…</b>"),
        (160, "&nbsp;<br><b></b>"),
    ],
)
def test_a_name_is_whole_or_cut_at_its_end(width: int, text: str) -> None:
    drawn = json.loads(lanes_figure(lane_panels(TWO, 2), width=width).to_json())

    [new] = [one for one in drawn["data"] if one.get("name") == "this step"]
    assert new["hovertext"] == ["jumpingcat: this step"]
    assert new["text"] == [text]


def test_the_figure_has_every_cluster_of_a_few() -> None:
    policy = pick_n(1, required=[labelled(region="west")], spread=[spread("region")])
    decision = decide(GUIDE, policy)

    drawn = json.loads(lanes_figure(lane_panels(decision, 1), width=500).to_json())

    named = [name for one in drawn["data"] for name in one.get("customdata", ())]
    assert sorted(named) == sorted(GUIDE.names)


def test_names_are_whole_where_numbers_of_candidates_leave_them_room() -> None:
    members = fleet(
        *(
            cluster(
                f"leopard{number:02}",
                region=f"ap-southeast-{number % 9}",
                provider="aws" if number % 4 else "azure",
            )
            for number in range(40)
        )
    )
    keys = [spread("region"), spread("provider", 2)]
    panels = lane_panels(decide(members, pick_n(7, spread=keys)), 7)

    drawn = json.loads(lanes_figure(panels, width=640).to_json())

    texts = [text for one in drawn["data"] for text in one.get("text", ())]
    words = {annotation["text"] for annotation in drawn["layout"]["annotations"]}
    assert sum("leopard" in text for text in texts) == 2 * 7
    assert not [text for text in texts if "…" in text]
    assert any("beside: candidates" in word for word in words)
    assert [panel.columns for panel in panels] == [2, 1]
    assert drawn["layout"]["margin"]["r"] > len("4 + 1 of 30") * 6


def test_a_figure_of_many_domains_has_columns() -> None:
    panels = lane_panels(LARGE, 30)

    drawn = json.loads(lanes_figure(panels, width=600).to_json())

    assert panels[0].columns == 2
    assert {"xaxis", "xaxis2"} <= set(drawn["layout"])
    assert drawn["layout"]["height"] < 600


@pytest.mark.parametrize("policy", [pick_all(), pick_fixed("smartfish"), pick_n(2)])
def test_nothing_is_spread_without_constraints(policy: PlacementPolicy) -> None:
    decision = decide(GUIDE, policy)

    assert lane_panels(decision) == ()
    assert list(final_skews(decision)) == []


def test_the_ranking_has_scores_reasons_and_the_numbers_of_the_limit() -> None:
    ranking = ranking_of(Replay(TWO), 2, "bravelion")

    assert ranking.columns == ("spread", "affinity")
    assert [(row.rank, row.cluster, row.words) for row in ranking.rows] == [
        (1, "jumpingcat", "Selected"),
        (2, "flyingpenguin", "Same scores: by name"),
    ]
    [blocked] = ranking.forbidden
    assert blocked.words == "east would be 2 against 0: skew 2 > 1 (hard)"
    assert blocked.cells[0].text == "blocked"
    assert blocked.is_highlighted
    assert (
        ranking.order
        == "spread, then affinity, then the name (last of the alphabet first)"
    )


def test_candidates_with_equal_scores_share_a_row_that_names_ten() -> None:
    ranking = ranking_of(Replay(LARGE), 2, "c200")

    shared = max(ranking.rows, key=lambda row: (row.last or 0) - (row.rank or 0))
    assert sum(len(names) for _, names in shared.names) == NAMED
    assert shared.hidden == (shared.last or 0) - (shared.rank or 0) + 1 - NAMED
    assert [
        row.cluster for row in (*ranking.rows, *ranking.forbidden) if row.is_highlighted
    ] == ["c200"]
    ranks = [row.rank for row in ranking.rows if row.rank]
    assert ranks == sorted(ranks)


def test_every_candidate_is_listed_or_counted() -> None:
    for number in (1, 7, 30):
        ranking = ranking_of(Replay(LARGE), number)
        listed = sum(len(names) for row in ranking.rows for _, names in row.names)
        hidden = sum(row.hidden + row.gap for row in ranking.rows)
        one = LARGE.round(number)

        ranked = int(np.count_nonzero(one.contends))
        assert listed + hidden + ranking.more == ranked
        assert ranking.candidates == ranked + ranking.blocked


def test_the_domains_count_as_many_candidates_as_the_ranking() -> None:
    for number in (1, 30):
        [panel] = lane_panels(LARGE, number, every=True)

        counts = [
            int(lane.others.split()[0].replace("no", "0")) for lane in panel.lanes
        ]
        assert sum(counts) == ranking_of(Replay(LARGE), number).candidates


def test_equal_candidates_are_named_in_the_order_of_rank() -> None:
    clusters = [
        cluster(f"c{number:02}", region="east" if number % 2 else "west")
        for number in range(20)
    ]
    one = decide(fleet(*clusters), pick_n(1, spread=[spread("region")]))

    last = ranking_of(Replay(one), 1).rows[-1]

    listed = [name for _, names in last.names for name in names]
    assert len(last.names) > 2
    assert listed == sorted(listed, reverse=True)


def test_blocked_rows_say_the_highest_affinity_of_several() -> None:
    plain = [cluster(f"e{number}", region="east") for number in range(6)]
    preferred = [cluster(name, region="east", tier="a") for name in ("e6", "e7")]
    west = cluster("w1", region="west")
    policy = pick_n(
        2, spread=[spread("region")], prefer=[prefer(10, labelled(tier="a"))]
    )
    decision = decide(fleet(*plain, *preferred, west), policy)

    [row] = ranking_of(Replay(decision), 2).forbidden

    assert row.is_highest
    assert row.cells[-1].text == "+10"


def test_a_deselected_cluster_without_the_label_has_a_lane() -> None:
    smaller = decide(
        fleet(*grouped("region", east="a"), "z"),
        pick_n(1, spread=[spread("region")]),
        binding("a", scores=(0, 9)),
        binding("z", scores=(0, 1)),
    )

    lane = lane_panels(smaller)[0].lanes[-1]

    assert lane.name == "no region"
    assert [segment.mark for segment in lane.segments] == [Mark.GONE]


def test_many_deselected_clusters_of_a_domain_are_counted() -> None:
    names = [f"e{number:02}" for number in range(14)]
    smaller = decide(
        fleet(*grouped("region", east=" ".join(names))),
        pick_n(8, spread=[spread("region")]),
        *(binding(name, scores=(0, 0)) for name in names),
    )

    [lane] = lane_panels(smaller)[0].lanes

    blocks = [(segment.mark, segment.words, segment.size) for segment in lane.segments]
    assert blocks == [(Mark.PLACED, "8", 8), (Mark.GONE, "6", 6)]


def test_a_blocked_cluster_is_a_candidate_everywhere() -> None:
    one = fleet(*grouped("region", east="e1 e2", west="w1"), "other")
    policy = pick_n(3, required=[labelled(region="east")], spread=[spread("region")])
    blocked = decide(one, policy, binding("e1"))

    ranking = ranking_of(Replay(blocked), 1)
    [panel] = lane_panels(blocked, 1)

    assert candidate_words(blocked).startswith("1 of 4 clusters was a candidate")
    assert ranking.count_words == "1 candidate: 0 ranked, 1 blocked"
    assert MARK_WORDS[Mark.BLOCKED].startswith("candidate")
    assert ("band-key", BAND_WORDS) in legend_of([panel])
    assert round_sentence(Replay(blocked).step(1)) == (
        "no candidate can be selected: every one would break region (max skew 1, hard)"
    )


def test_a_blocked_cluster_is_not_called_filtered_out() -> None:
    outcome = Outcomes(decide(GUIDE, pick_n(3, spread=[spread("region")]))).of(
        "bravelion"
    )
    blocked = Outcomes(TWO).of("bravelion")

    assert (outcome.outcome, outcome.state) == (Outcome.OUTRANKED, Outcome.OUTRANKED)
    assert (blocked.outcome, blocked.state) == (Outcome.FILTERED, BLOCKED)
    assert OUTCOME_WORDS[blocked.state] == "Blocked by the spread limit"
    assert outcome_sentences(blocked) == [
        "Rank 4 in step 1; lost to smartfish on name (topology spread and affinity equal), last of the alphabet "
        "first. Step 2: selecting it would make region=east 2 vs. minimum 0 (skew 2 > maxSkew 1)"
    ]
    assert dict(passed_over(TWO)) == {Outcome.OUTRANKED: 1, BLOCKED: 1}


def test_every_blocked_cluster_of_many_is_listed() -> None:
    zones = {f"z{number}": f"a{number} b{number} c{number}" for number in range(10)}
    decision = decide(
        fleet(*grouped("zone", **zones)), pick_n(10, spread=[spread("zone")])
    )

    ranking = ranking_of(Replay(decision), 10)

    listed = [
        name
        for row in ranking.forbidden
        for name in (*row.rest, *(name for _, names in row.names for name in names))
    ]
    assert len({*listed, *ranking.more_forbidden}) == ranking.blocked == 18


def test_a_cluster_has_a_summary_over_all_steps() -> None:
    decision = decide(GUIDE, pick_n(3, spread=[spread("region")]))

    assert course_sentences(decision, "bravelion")[0] == (
        "Candidate in 3 of 3 steps: lost 2 on name,"
        " blocked in 1 by a hard limit, first in step 2."
    )


def test_cordoned_clusters_are_named_beside_the_tainted() -> None:
    cordoned = cluster("b", taints=[taint("cordon-key", "cordon-value")])
    one = fleet(cluster("a"), cordoned, cluster("c", taints=[taint("gpu")]))

    assert candidate_words(decide(one, pick_n(1))) == (
        "1 of 3 clusters was a candidate; others: 2 cordoned or with an untolerated taint"
    )


def test_a_cluster_has_a_line_through_all_steps() -> None:
    line = cluster_steps(TWO, "bravelion", 2)

    assert [(cell.spread, cell.words) for cell in line.cells] == [
        ("−1", "rank 4"),
        ("–", "blocked: east would be 2 against 0: skew 2 > 1 (hard)"),  # noqa: RUF001 -- the dash of tables
    ]
    winner = cluster_steps(TWO, "smartfish", 2)
    assert [cell.words for cell in winner.cells] == ["selected", "selected in step 1"]


def test_a_kept_cluster_is_already_placed_in_each_step() -> None:
    kept = decide(GUIDE, pick_n(2, spread=[spread("region")]), binding("smartfish"))

    assert [cell.words for cell in cluster_steps(kept, "smartfish", 1).cells] == [
        "already placed"
    ]


def test_the_course_of_the_skew_has_a_point_for_each_step() -> None:
    [course] = skew_courses(TWO)

    assert (course.key, course.limit, course.final) == ("region", 1, 0)
    assert len(course.points.split()) == 2


def test_the_order_of_scores_comes_from_the_rules() -> None:
    words = {
        semantics: rank_order_words(
            decide(GUIDE, pick_n(1, spread=[spread("region")]), semantics=semantics)
        )
        for semantics in ("fleet", "ocm", "kubernetes")
    }

    assert words["fleet"].startswith("spread, then affinity")
    assert (
        words["ocm"]
        == "spread, then preference, then the name (first of the alphabet first)"
    )
    assert words["kubernetes"].startswith("2 × spread + affinity")  # noqa: RUF001 -- the sign of a product


def test_says_who_was_a_candidate_and_what_became_of_those_placed_before() -> None:
    policy = pick_n(2, required=[labelled(region="east")])
    anew = decide(
        GUIDE,
        policy,
        binding("jumpingcat", obsolete=True),
        binding("smartfish", obsolete=True),
    )

    assert (
        candidate_words(anew)
        == "2 of 4 clusters were candidates; others: 2 do not match the required affinity"
    )
    assert (
        change_of_clusters(anew)
        == "Rescheduled: 2 were placed before, 1 stay, 1 new, 1 deselected."
    )
    assert change_of_clusters(TWO) == ""


def test_bars_of_affinity_stay_within_their_cells() -> None:
    weighed = decide(
        GUIDE,
        pick_n(
            2, spread=[spread("region")], prefer=[prefer(20, labelled(region="east"))]
        ),
    )
    ranking = ranking_of(Replay(weighed), 2)

    bars = [
        cell.bar
        for row in (*ranking.rows, *ranking.forbidden)
        for cell in row.cells
        if cell.bar
    ]
    assert len(bars) == 3
    assert all(start + width <= 100 for start, width, _ in bars)


def test_without_a_spread_clusters_are_divided_by_region_else_by_a_shared_label() -> (
    None
):
    regions = fleet(cluster("a", app="x", region="east"), cluster("b", region="west"))
    shared = fleet(cluster("a", app="x", env="prod"), cluster("b", app="x", env="test"))

    assert dividing_key(decide(regions, pick_all())) == "region"
    assert dividing_key(decide(shared, pick_all())) == "env"
    [panel] = placed_panels(decide(shared, pick_all()))
    assert [(lane.name, lane.placed) for lane in panel.lanes] == [
        ("prod", 1),
        ("test", 1),
    ]
    assert (panel.is_limited, panel.lanes[0].high) == (False, None)


def test_small_multiples_have_no_room_for_clusters_that_are_no_candidates() -> None:
    policy = pick_n(1, required=[labelled(region="west")], spread=[spread("region")])
    decision = decide(GUIDE, policy)

    [panel] = lane_panels(decision, 1, is_multiple=True)

    named = [segment.cluster for lane in panel.lanes for segment in lane.segments]
    assert sorted(named) == ["flyingpenguin", "jumpingcat"]
    assert Mark.OUT not in panel.marks
    assert [lane.size for lane in panel.lanes] == [2, 2]


def test_a_cluster_that_lost_its_place_is_marked_in_each_step() -> None:
    members = fleet(
        *grouped("region", east="bravelion", west="flyingpenguin jumpingcat"),
        cluster("smartfish", region="east", taints=[taint("off")]),
    )
    decision = decide(members, pick_n(1, spread=[spread("region")]))

    [panel] = lane_panels(decision, 1, lost=["smartfish", "left the fleet"])

    marks = {
        segment.cluster: segment.mark
        for lane in panel.lanes
        for segment in lane.segments
    }
    assert marks["smartfish"] is Mark.GONE
    assert marks["bravelion"] is Mark.CANDIDATE


def test_the_skew_before_the_first_step_has_room_in_its_bar() -> None:
    members = fleet(*grouped("region", east="a b c", west="w"))
    policy = pick_n(4, spread=[spread("region")])
    decision = decide(members, policy, *map(binding, "abc"))

    [start] = strip_of(decision, 1).start

    assert (start.after, start.limit) == (3, 1)
    assert start.height <= 26


def test_a_number_of_clusters_is_at_the_end_of_its_bar() -> None:
    members = fleet(*(cluster(f"c{number:02}", region="east") for number in range(30)))
    soft = [spread("region", hard=False)]
    panels = placed_panels(decide(members, pick_n(29, spread=soft)))

    drawn = json.loads(lanes_figure(panels, width=600).to_json())

    [bar] = [one for one in drawn["data"] if one.get("name") == "placed"]
    assert (bar["text"], bar["insidetextanchor"]) == (["29"], "end")
    assert panels[0].note == "skew 0"


def test_a_row_of_several_domains_names_none_of_them_in_its_reason() -> None:
    sizes = {"north": 8, "south": 1, "west": 8}
    clusters = [
        cluster(f"c{place}{region}", region=region)
        for region, size in sizes.items()
        for place in range(size)
    ]
    soft = pick_n(3, spread=[spread("region", hard=False)])
    decision = decide(fleet(*clusters), soft)

    selected, *others = ranking_of(Replay(decision), 3).rows

    assert selected.cluster == "c0south"
    for row in others:
        words = "region skew over 1 (soft)"
        if len(row.names) == 1:
            words = f"{row.names[0][0]} 2 against 0: 2 > 1 (soft)"
        assert row.words == words
    assert max(len(row.names) for row in others) > 1
