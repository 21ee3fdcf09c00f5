"""Every code has its words, and the words tell the facts."""

import pytest

from placements.explain import advice_wording, contest_wording, ranking, step_wording, wording
from placements.explain.charts.chart import figure, whole_ticks
from placements.explain.wording import counted, verb
from placements.scheduling import fleet_caveats
from placements.scheduling.advice.changes import Change, ChangeKind
from placements.scheduling.decision import CycleKind, Decision
from placements.scheduling.door.ocm_options import parse_ocm_options
from placements.scheduling.fleet import EligibilityKind
from placements.scheduling.outcomes import Outcomes
from placements.scheduling.reasons import ReasonCode
from placements.scheduling.replay import Replay
from placements.scheduling.rounds import NAME_COLUMN, SpreadScore
from placements.scheduling.semantics import Semantics
from placements.scheduling.spread.base import Keyless, SpreadStrategy
from placements.scheduling.spread.fleet import FleetSpread
from placements.scheduling.spread.kubefleet import KubeFleetSpread
from placements.scheduling.spread.kubernetes import KubernetesSpread
from placements.scheduling.spread.ocm import OcmSpread
from placements.templatetags.charts import cell
from placements.templatetags.fleet import number
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


def _said(decision: Decision, name: str) -> list[str]:
    return [wording.reason_sentence(reason) for reason in Outcomes(decision).of(name).reasons]


def test_every_code_has_words() -> None:
    assert wording._SENTENCES.keys() == set(ReasonCode)
    assert advice_wording._CHANGES.keys() == set(ChangeKind)
    assert wording.ELIGIBILITY_WORDS.keys() == set(EligibilityKind)
    ranked = {name for rules in STRATEGIES for name in rules.rank_names}
    assert wording.COLUMN_WORDS.keys() == {*ranked, NAME_COLUMN, None}
    assert advice_wording._REPORTS.keys() == set(EligibilityKind)
    assert fleet_caveats._WITHOUT_KEY.keys() == set(Keyless)
    assert contest_wording._NOTES.keys() == step_wording._EFFECTS.keys() == set(Semantics)
    assert ranking._NOTES.keys() == wording._SCORED.keys() == set(Semantics)
    told = {(rules.name, name) for rules in STRATEGIES for name in rules.rank_names if name != NAME_COLUMN}
    assert {(str(one), column) for one, column in contest_wording._WORDS} == told


@pytest.mark.parametrize("kind", CycleKind)
def test_every_kind_of_cycle_has_a_headline(kind: CycleKind) -> None:
    assert wording.headline(Decision(cycle(fleet(), pick_n(0)), kind))


def test_a_required_term_is_told_with_what_the_cluster_has_instead() -> None:
    terms = [
        labelled(env="prod", tier="edge"),
        expression("zone", "NotIn", "a", "b"),
        expression("zone", "DoesNotExist"),
        measured("cost", "Lt", "0.5"),
    ]
    one = cluster("c", env="dev", zone="a", properties={"cost": "2"})

    (said,) = _said(decide(fleet(one), pick_all(required=terms)), "c")

    assert said == (
        "matches no required term: env=dev, wanted prod and no label tier, wanted edge; "
        "or zone=a, wanted anything but a or b; or zone=a, wanted no such label; or cost is 2, wanted < 0.5"
    )


def test_every_failing_filter_is_told() -> None:
    one = cluster("c", taints=[taint("gpu", "true"), taint("spot")], not_eligible="staleHeartbeat")

    assert _said(decide(fleet(one), pick_all()), "c") == [
        "staleHeartbeat",
        "has taints that nothing tolerates: gpu=true and spot",
    ]


def test_a_full_group_is_told_with_its_count_and_limit() -> None:
    decision = decide(fleet(*grouped("zone", a="a1 a2", b="b1")), pick_n(3, spread=[spread("zone")]))
    stuck = decide(fleet(*grouped("zone", a="a1 a2 a3", b="b1")), pick_n(4, spread=[spread("zone")]))

    assert decision.is_fulfilled
    assert _said(stuck, "a1") == [
        "in step 4 zone=a has 2, the emptiest group 1: one more makes the skew 2, limit 1"
    ]


@pytest.mark.parametrize(
    ("names", "preferred", "spreads", "told"),
    [
        ("a b", [], [], "place 2 in step 1, behind b, by name"),
        ("a b", [prefer(5, labelled(zone="b"))], [], "place 2 in step 1, behind b on affinity (0 against 5)"),
        ("a b c", [], [spread("zone")], "place 3 in step 1, behind c on topology spread (-1 against 0)"),
    ],
)
def test_outranked_is_told_by_what_decided(
    names: str, preferred: list[Document], spreads: list[Document], told: str
) -> None:
    clusters = [cluster(name) if name == "c" else cluster(name, zone=name) for name in names.split()]

    assert _said(decide(fleet(*clusters), pick_n(1, prefer=preferred, spread=spreads)), "a") == [told]


@pytest.mark.parametrize(
    ("decision", "said"),
    [
        (
            decide(fleet("a", "b"), pick_n(2, spread=[spread("zone")])),
            ["b before a, by name", "a, the only one left"],
        ),
        (decide(fleet("a", "b"), pick_n(1)), ["the best 1 of one ranking; b before a, by name"]),
        (decide(fleet("a"), pick_n(1)), ["all that pass the filters, ranked once"]),
        (decide(fleet(), pick_n(1)), ["nobody left: no cluster passes the filters"]),
    ],
)
def test_a_round_is_told_in_a_sentence(decision: Decision, said: list[str]) -> None:
    assert [wording.round_sentence(step) for step in Replay(decision)] == said


def test_a_round_that_found_nobody_names_the_limits() -> None:
    zones = fleet(*grouped("zone", a="a1 a2 a3", b="b1"))

    *_, last = Replay(decide(zones, pick_n(4, spread=[spread("zone"), spread("rack", hard=False)])))

    assert wording.round_sentence(last) == "nobody left: every pick would break zone (max skew 1, hard)"


def test_a_round_that_found_nobody_does_not_forget_who_is_placed() -> None:
    [step] = Replay(decide(fleet("a"), pick_n(2, spread=[spread("zone")]), binding("a")))

    assert wording.round_sentence(step) == "nobody left: no other cluster passes the filters"


def test_a_round_that_found_nobody_left_does_not_blame_a_limit() -> None:
    *_, last = Replay(decide(fleet("a"), pick_n(2, spread=[spread("zone")])))

    assert wording.round_sentence(last) == "nobody left: every cluster that passes the filters is picked"


@pytest.mark.parametrize(
    ("kind", "facts", "words"),
    [
        (ChangeKind.NUMBER, {"number": 7, "today": 5}, "numberOfClusters 7 (now 5)"),
        (ChangeKind.LEAVE, {"cluster": "a"}, "a leaving the fleet"),
        (
            ChangeKind.LABEL,
            {"cluster": "a", "key": "z", "value": None, "today": "x"},
            "a without the label z (now x)",
        ),
        (
            ChangeKind.LABEL,
            {"cluster": "a", "key": "z", "value": "y", "today": None},
            "a labelled z=y (now none)",
        ),
        (
            ChangeKind.REPORT,
            {"cluster": "a", "kind": "noAgent", "reason": ""},
            "a first report of the member agent of a "
            "(now: has never reported: its member agent is not online)",
        ),
        (ChangeKind.TOLERATION, {"key": "gpu", "value": "true"}, "a toleration for the taint gpu=true"),
        (ChangeKind.TOLERATION, {"key": "gpu", "value": ""}, "a toleration for the taint gpu"),
        (ChangeKind.NAME, {"name": "a"}, "a added to clusterNames"),
    ],
)
def test_a_change_is_named(kind: ChangeKind, facts: dict[str, object], words: str) -> None:
    assert advice_wording.change_words(Change(kind, facts, lambda: cycle(fleet()))) == words


def test_traps_are_called_by_name() -> None:
    clusters = [
        *grouped("region", east="e1 e2", west="w1"),
        cluster("s", region="south", not_eligible="noAgent"),
    ]
    placed = decide(fleet(*clusters), pick_n(3, spread=[spread("region")]))

    assert list(advice_wording.trap_sentences(placed)) == [
        "pinned group: region=south holds the minimum at 0: no cluster of it can be picked",
        "at most 2 possible on this fleet",
    ]


def test_a_stale_pick_is_called_by_name() -> None:
    decision = decide(fleet("a", "b"), pick_n(1), binding("a"))

    assert list(advice_wording.trap_sentences(decision)) == [
        "stale, placed still though a run from scratch would pass over: a"
    ]


def test_pick_fixed_speaks_of_names() -> None:
    decision = decide(fleet("a", "b"), pick_fixed("b"))

    assert wording.headline(decision) == "1 of 1 named clusters placed"
    assert _said(decision, "a") == ["the list of cluster names leaves it out"]


@pytest.mark.parametrize(
    ("score", "text"),
    [(None, "–"), (0, "0"), (-1001, "-1001"), (2.386, "2.39"), (100.0, "100"), ((0, -1), "0/-1"), ((), "–")],  # noqa: RUF001
)
def test_scores_read_alike_everywhere(score: SpreadScore | None, text: str) -> None:
    assert wording.score_text(score) == text


def test_thousands_are_told_with_a_comma_wherever_they_stand() -> None:
    assert (number(5000), cell(5000), cell(-1234567)) == ("5,000", "5,000", "−1,234,567")
    assert counted(5000, "cluster") == "5,000 clusters"
    assert figure(height=100).layout.separators == ".,"
    assert whole_ticks(5000)["tickformat"] == ",d"


def test_a_verb_goes_with_how_many_do_it() -> None:
    assert [verb(1, word) for word in ("is", "has", "runs")] == ["is", "has", "runs"]
    assert [verb(2, word) for word in ("is", "has", "runs")] == ["are", "have", "run"]
