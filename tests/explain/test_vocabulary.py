"""Every code has its words, and the words contain the facts."""

import pytest

from clusters.fleet import CORDON_KEY, CORDON_VALUE, EligibilityKind
from fleetui.apimachinery.model import Semantics
from fleetui.apimachinery.words import counted
from placements.engine.advice.changes import Change, ChangeKind
from placements.engine.checks import spread as spread_rules
from placements.engine.scheduling.decision import CycleKind, Decision
from placements.engine.scheduling.outcome import Outcomes
from placements.engine.scheduling.reason import ReasonCode
from placements.engine.scheduling.replay import Replay
from placements.engine.scheduling.round import NAME_COLUMN, SpreadScore
from placements.engine.scheduling.spread.base import MissingKeyPolicy, SpreadStrategy
from placements.engine.scheduling.spread.fleet import FleetSpread, KubeFleetSpread
from placements.engine.scheduling.spread.kubernetes import KubernetesSpread
from placements.engine.scheduling.spread.ocm import OcmSpread
from placements.explain import advice, decisions, vocabulary
from placements.explain.charts.figure import figure, number_axis
from placements.explain.vocabulary import verb
from placements.manifests.binding import BindingState, PlacedBinding
from placements.manifests.ocm_options import parse_ocm_options
from placements.templatetags.charts import cell
from placements.templatetags.fleet import moments, number
from tests.builders import (
    Document,
    binding,
    cluster,
    cycle,
    decide,
    expression,
    fleet,
    grouped,
    labelled,
    measured,
    pick_all,
    pick_fixed,
    pick_n,
    prefer,
    spread,
    taint,
)

STRATEGIES: list[SpreadStrategy] = [
    FleetSpread(),
    KubeFleetSpread(),
    KubernetesSpread(),
    *(OcmSpread(parse_ocm_options({"mode": mode})) for mode in ("strict", "weighted")),
]


def _reason_texts(decision: Decision, name: str) -> list[str]:
    return [
        vocabulary.reason_sentence(reason)
        for reason in Outcomes(decision).of(name).reasons
    ]


def test_a_cordon_is_no_taint_in_words() -> None:
    cordoned = taint(CORDON_KEY, CORDON_VALUE)
    clusters = [
        cluster("a", taints=[cordoned]),
        cluster("b", taints=[cordoned, taint("gpu")]),
    ]

    decision = decide(fleet(*clusters), pick_all())

    assert _reason_texts(decision, "a") == ["Cordoned"]
    assert _reason_texts(decision, "b") == ["Cordoned; untolerated taint: gpu"]


def test_every_code_has_words() -> None:
    assert vocabulary._SENTENCES.keys() == set(ReasonCode)
    assert advice._CHANGES.keys() == set(ChangeKind)
    assert vocabulary.ELIGIBILITY_WORDS.keys() == set(EligibilityKind)
    ranked = {name for rules in STRATEGIES for name in rules.rank_names}
    assert vocabulary.COLUMN_WORDS.keys() == {*ranked, NAME_COLUMN, None}
    assert advice._REPORTS.keys() == set(EligibilityKind)
    assert spread_rules._WITHOUT_KEY.keys() == set(MissingKeyPolicy)
    assert decisions._EFFECTS.keys() == set(Semantics)
    assert vocabulary._SCORED.keys() == set(Semantics)
    assert decisions._WORDS.keys() == ranked - {NAME_COLUMN}


@pytest.mark.parametrize("kind", CycleKind)
def test_every_kind_of_cycle_has_a_headline(kind: CycleKind) -> None:
    assert vocabulary.headline(Decision(cycle(fleet(), pick_n(0)), kind))


def test_a_required_term_is_reported_with_what_the_cluster_has_instead() -> None:
    terms = [
        labelled(env="prod", tier="edge"),
        expression("zone", "NotIn", "a", "b"),
        expression("zone", "DoesNotExist"),
        measured("cost", "Lt", "0.5"),
    ]
    one = cluster("c", env="dev", zone="a", properties={"cost": "2"})

    (text,) = _reason_texts(decide(fleet(one), pick_all(required=terms)), "c")

    assert text == (
        "Does not match required affinity: env=dev, required prod and no label tier, required edge; "
        "or zone=a, required any value except a or b; or zone=a, required no such label; "
        "or cost is 2, required < 0.5"
    )


def test_every_failing_filter_is_reported() -> None:
    one = cluster(
        "c", taints=[taint("gpu", "true"), taint("spot")], not_eligible="staleHeartbeat"
    )

    assert _reason_texts(decide(fleet(one), pick_all()), "c") == [
        "staleHeartbeat",
        "Untolerated taints: gpu=true and spot",
    ]


def test_a_full_group_is_reported_with_its_count_and_limit() -> None:
    decision = decide(
        fleet(*grouped("zone", a="a1 a2", b="b1")), pick_n(3, spread=[spread("zone")])
    )
    stuck = decide(
        fleet(*grouped("zone", a="a1 a2 a3", b="b1")),
        pick_n(4, spread=[spread("zone")]),
    )

    assert decision.is_fulfilled
    assert _reason_texts(stuck, "a1") == [
        "Step 4: selecting it would make zone=a 3 vs. minimum 1 (skew 2 > maxSkew 1)"
    ]


@pytest.mark.parametrize(
    ("names", "preferred", "spreads", "sentence"),
    [
        (
            "a b",
            [],
            [],
            "Rank 2 in step 1; lost to b on name (affinity equal), last of the alphabet first",
        ),
        (
            "a b",
            [prefer(5, labelled(zone="b"))],
            [],
            "Rank 2 in step 1; lost to b on affinity (0 vs. 5)",
        ),
        (
            "a b c",
            [],
            [spread("zone")],
            "Rank 3 in step 1; lost to c on topology spread (-1 vs. 0)",
        ),
    ],
)
def test_outranked_is_reported_by_what_decided(
    names: str, preferred: list[Document], spreads: list[Document], sentence: str
) -> None:
    clusters = [
        cluster(name) if name == "c" else cluster(name, zone=name)
        for name in names.split()
    ]

    assert _reason_texts(
        decide(fleet(*clusters), pick_n(1, prefer=preferred, spread=spreads)), "a"
    ) == [sentence]


@pytest.mark.parametrize(
    ("removed", "kept", "sentence"),
    [
        (
            binding("a", BindingState.SCHEDULED, scores=(0, 9)),
            binding("b", scores=(0, 0)),
            "as it was not rolled out yet",
        ),
        (
            binding("a", scores=(-1, 9)),
            binding("b", scores=(0, 0)),
            "on the stored topology spread (-1 vs. 0)",
        ),
        (
            binding("a", scores=(0, 5)),
            binding("b", scores=(0, 9)),
            "on the stored affinity (5 vs. 9), topology spread 0 equal",
        ),
        (
            binding("a", scores=(0, 5)),
            binding("b", scores=(0, 5)),
            "on name (stored topology spread 0 and affinity 5 equal), first of the alphabet first",
        ),
    ],
)
def test_a_removed_cluster_has_the_rule_that_removed_it(
    removed: PlacedBinding, kept: PlacedBinding, sentence: str
) -> None:
    decision = decide(fleet("a", "b"), pick_n(1), removed, kept)

    words = "Fewer clusters are requested; removed before b"
    assert _reason_texts(decision, "a") == [f"{words} {sentence}"]
    assert decisions.removal_words(decision, "a") == f"{words} {sentence}"


def test_without_a_kept_cluster_no_rule_chose_the_removed_ones() -> None:
    decision = decide(fleet("a", "b"), pick_n(0), binding("a"), binding("b"))

    assert _reason_texts(decision, "a") == [
        "Fewer clusters are requested; none is kept"
    ]


def test_a_kept_cluster_has_no_word_on_its_rollout() -> None:
    placed = binding("a", BindingState.SCHEDULED)

    assert _reason_texts(decide(fleet("a"), pick_n(1), placed), "a") == [
        "Already placed; existing placements are kept"
    ]


@pytest.mark.parametrize(
    ("decision", "text"),
    [
        (
            decide(fleet("a", "b"), pick_n(2, spread=[spread("zone")])),
            [
                "b before a on name (topology spread and affinity equal)",
                "a, the only candidate",
            ],
        ),
        (
            decide(fleet("a", "b"), pick_n(1)),
            ["the best 1 of one ranking; b before a on name (affinity equal)"],
        ),
        (
            decide(fleet("a"), pick_n(1)),
            ["all clusters that pass the filters, ranked once"],
        ),
        (
            decide(fleet(), pick_n(1)),
            ["no candidates left: no cluster passes the filters"],
        ),
    ],
)
def test_a_round_is_reported_in_a_sentence(decision: Decision, text: list[str]) -> None:
    assert [vocabulary.round_sentence(step) for step in Replay(decision)] == text


def test_a_round_that_picked_no_cluster_names_the_limits() -> None:
    zones = fleet(*grouped("zone", a="a1 a2 a3", b="b1"))

    *_, last = Replay(
        decide(zones, pick_n(4, spread=[spread("zone"), spread("rack", hard=False)]))
    )

    assert (
        vocabulary.round_sentence(last)
        == "no candidate can be selected: every one would break zone (max skew 1, hard)"
    )


def test_a_round_that_picked_no_cluster_counts_what_is_placed() -> None:
    [step] = Replay(
        decide(fleet("a"), pick_n(2, spread=[spread("zone")]), binding("a"))
    )

    assert (
        vocabulary.round_sentence(step)
        == "no candidates left: no other cluster passes the filters"
    )


def test_a_round_without_candidates_does_not_blame_a_limit() -> None:
    *_, last = Replay(decide(fleet("a"), pick_n(2, spread=[spread("zone")])))

    assert (
        vocabulary.round_sentence(last)
        == "no candidates left: every cluster that passes the filters is selected"
    )


@pytest.mark.parametrize(
    ("kind", "facts", "words"),
    [
        (ChangeKind.NUMBER, {"number": 7, "today": 5}, "numberOfClusters 7 (now 5)"),
        (
            ChangeKind.LABEL,
            {"cluster": "a", "key": "z", "value": "y", "today": None},
            "a with label z=y (now none)",
        ),
        (
            ChangeKind.REPORT,
            {"cluster": "a", "kind": "noAgent", "reason": ""},
            "a first report of the member agent of a (now: Never reported (agent offline))",
        ),
        (
            ChangeKind.TOLERATION,
            {"key": "gpu", "value": "true"},
            "a toleration for the taint gpu=true",
        ),
        (
            ChangeKind.TOLERATION,
            {"key": "gpu", "value": ""},
            "a toleration for the taint gpu",
        ),
        (ChangeKind.NAME, {"name": "a"}, "a added to clusterNames"),
    ],
)
def test_a_change_is_named(
    kind: ChangeKind, facts: dict[str, object], words: str
) -> None:
    assert advice.change_words(Change(kind, facts, lambda: cycle(fleet()))) == words


def test_traps_are_called_by_name() -> None:
    clusters = [
        *grouped("region", east="e1 e2", west="w1"),
        cluster("s", region="south", not_eligible="noAgent"),
    ]
    placed = decide(fleet(*clusters), pick_n(3, spread=[spread("region")]))

    assert list(advice.trap_sentences(placed)) == [
        "blocking domain: region=south has 0 selected clusters and no candidates, so the minimum stays at 0",
        "maximum with the current fleet: 2",
    ]


def test_domains_that_block_alike_share_a_sentence() -> None:
    clusters = [
        *grouped("region", east="e1 e2", west="w1"),
        cluster("n", region="north", not_eligible="noAgent"),
        cluster("s", region="south", not_eligible="noAgent"),
    ]
    placed = decide(fleet(*clusters), pick_n(3, spread=[spread("region")]))

    assert next(advice.trap_sentences(placed)) == (
        "blocking domains: region=north, region=south have 0 selected clusters"
        " and no candidates, so the minimum stays at 0"
    )


def test_a_stale_pick_is_called_by_name() -> None:
    edge = fleet("a", cluster("b", tier="edge"))
    decision = decide(edge, pick_n(1, required=[labelled(tier="edge")]), binding("a"))

    words = "outdated at this decision, would not be selected if rescheduled: a"
    assert list(advice.trap_sentences(decision)) == [words]
    assert not list(
        advice.trap_sentences(decide(fleet("a", "b"), pick_n(1), binding("a")))
    )


def test_after_a_change_of_the_policy_clusters_that_were_selected_are_no_new_ones() -> (
    None
):
    before = (binding("a", obsolete=True), binding("b", obsolete=True))
    changed = decide(fleet("a", "b", "c"), pick_n(3), *before)
    more = decide(fleet("a", "b", "c"), pick_n(3), binding("a"), binding("b"))

    assert vocabulary.headline(changed) == "3 of 3 clusters selected (1 new, 2 again)"
    assert vocabulary.headline(more) == "3 of 3 clusters selected (1 new, 2 kept)"


def test_pick_fixed_speaks_of_names() -> None:
    decision = decide(fleet("a", "b"), pick_fixed("b"))

    assert vocabulary.headline(decision) == "1 of 1 named clusters selected"
    assert _reason_texts(decision, "a") == ["Not in the list of cluster names"]


@pytest.mark.parametrize(
    ("score", "text"),
    [
        (None, "–"),  # noqa: RUF001
        (0, "0"),
        (-1001, "-1001"),
        (2.386, "2.39"),
        (100.0, "100"),
        ((0, -1), "0/-1"),
        ((), "–"),  # noqa: RUF001
    ],
)
def test_scores_read_alike_everywhere(score: SpreadScore | None, text: str) -> None:
    assert vocabulary.score_text(score) == text


def test_thousands_are_reported_with_a_comma_wherever_they_stand() -> None:
    assert (number(5000), cell(5000), cell(-1234567)) == (
        "5,000",
        "5,000",
        "−1,234,567",
    )
    assert counted(5000, "cluster") == "5,000 clusters"
    assert figure(height=100).layout.separators == ".,"
    assert number_axis(0, 5000, "clusters")["ticktext"][1] == "1,000"


def test_a_verb_goes_with_how_many_do_it() -> None:
    assert [verb(1, word) for word in ("is", "has", "runs")] == ["is", "has", "runs"]
    assert [verb(2, word) for word in ("is", "has", "runs")] == ["are", "have", "run"]


def test_the_times_of_a_sentence_are_elements_as_all_times_of_a_page() -> None:
    words = moments("On <r1>. Unreachable since 2026-08-20 12:00:00 UTC: c1.")

    assert words == (
        "On &lt;r1&gt;. Unreachable since"
        ' <time datetime="2026-08-20T12:00:00+00:00" title="2026-08-20 12:00:00 UTC"'
        ' data-moment="Y-m-d H:i:s">2026-08-20 12:00:00 UTC</time>: c1.'
    )
