"""Every page uses the terms of the rules that decided: no word of another system, none of the code's."""

import re
from collections.abc import Iterator

import pytest

from clusters.fleet import Fleet, SeenNamespaces
from fleetui.apimachinery.model import Semantics
from placements.engine.scheduling.cycle import Batch, Cycle
from placements.engine.scheduling.decision import Decision
from placements.engine.scheduling.outcome import Outcomes
from placements.engine.scheduling.reason import ReasonCode
from placements.engine.scheduling.replay import Replay
from placements.engine.scheduling.scheduler import schedule
from placements.explain.charts.outcomes import RULES
from placements.explain.decision_tables import ranking_of
from placements.explain.decisions import (
    course_sentences,
    deciding_words,
    explain_rank,
    rank_order_words,
    step_sentences,
)
from placements.explain.lanes import final_skews, lane_panels, placed_panels
from placements.explain.preview import beginning, rescheduling_words
from placements.explain.terminal import decision_text
from placements.explain.vocabulary import (
    TIMES,
    headline,
    policy_sentence,
    reason_sentence,
    round_sentence,
)
from placements.manifests.binding import PlacedBinding
from placements.manifests.policy import PlacementPolicy, parse_policy
from tests.builders import (
    Document,
    binding,
    cluster,
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
from tests.engine.scheduling.other_cycles import kubernetes, ocm

FLEET, KUBEFLEET, OCM, KUBERNETES = Semantics
FOREIGN = {
    FLEET: r"sibling|\bgap|\(unset\)|Steady|Balance|preference|minDomains|u [x×]",  # noqa: RUF001
    KUBEFLEET: r"sibling|\bgap|\(unset\)|Steady|Balance|preference|minDomains|u [x×]",  # noqa: RUF001
    OCM: r"(?<!max )skew \d|the skew|\bkept\b(?! out)|was here|minDomains|largest minus",
    KUBERNETES: r"the skew|(?<!max )skew \d|sibling|\(unset\)|Steady|Balance|preference|was here|u [x×]",  # noqa: RUF001
}
"""Words that no page of a decision under these rules may use; "max skew" is the name of a field in all."""
INTERNAL = re.compile(
    r"topologySpreadScore|decidedBy|own-group|steadyWeight|balanceWeight|\bNone\b|StrEnum|_"
)


def _fleet() -> Fleet:
    sizes = {
        ("aws", "us-east"): 4,
        ("aws", "us-west"): 2,
        ("alibaba", "cn-hangzhou"): 2,
    }
    spread_out = [
        cluster(f"{region}-{number}", provider=provider, region=region, env="prod")
        for (provider, region), size in sizes.items()
        for number in range(size)
    ]
    return fleet(
        *spread_out,
        cluster("keyless-1", env="prod"),
        cluster("keyless-2", env="prod"),
        cluster(
            "tainted", provider="aws", region="eu", env="prod", taints=[taint("broken")]
        ),
        cluster("elsewhere", provider="aws", region="us-east", env="test"),
    )


def _policy(number: int, *constraints: Document) -> PlacementPolicy:
    return pick_n(
        number,
        required=[expression("env", "In", "prod")],
        prefer=[prefer(30, labelled(region="us-east"))],
        spread=list(constraints),
    )


HARD_SOFT = (spread("provider"), spread("region", hard=False))
DECISIONS: dict[str, tuple[PlacementPolicy, dict[str, object]]] = {
    "hard and soft": (_policy(9, *HARD_SOFT), {}),
    "two soft": (
        _policy(5, spread("provider", hard=False), spread("region", hard=False)),
        {},
    ),
    "two hard": (_policy(9, spread("provider"), spread("region")), {}),
    "no spread": (_policy(3), {}),
}
OF_OCM: dict[str, dict[str, object]] = {
    "weighted": {"mode": "weighted", "u": 0.5},
    "weights of domains": {"domainWeights": {"region": {"us-east": 2}}},
    "exclude": {"unsetPolicy": "exclude"},
    "free": {"unsetPolicy": "free"},
    "flat": {"nested": False},
    "resources": {"cpuWeight": 1, "memoryWeight": 2},
}
OF_KUBERNETES: dict[str, dict[str, object]] = {
    "minDomains": {"minDomains": 7},
    "policies": {"nodeTaintsPolicy": "Honor", "nodeAffinityPolicy": "Ignore"},
}
PLACED = ("us-east-0", "us-east-1", "tainted")


def _decisions() -> Iterator[tuple[str, Decision]]:
    for semantics in Semantics:
        for name, (policy, options) in DECISIONS.items():
            for placed in ((), PLACED):
                cycle = Cycle(
                    _fleet(), policy, tuple(map(binding, placed)), semantics, options
                )
                yield f"{semantics} {name}, {len(placed)} placed", schedule(cycle)
        yield f"{semantics} all", schedule(Cycle(_fleet(), pick_all(), (), semantics))
    for name, options in OF_OCM.items():
        yield (
            f"ocm {name}",
            schedule(Cycle(_fleet(), _policy(6, *HARD_SOFT), (), OCM, options)),
        )
    for name, fields in OF_KUBERNETES.items():
        raw = {
            **_policy(9).to_plain(),
            "topologySpreadConstraints": [{**spread("region"), **fields}],
        }
        policy = parse_policy(raw, semantics=KUBERNETES)
        yield f"kubernetes {name}", schedule(Cycle(_fleet(), policy, (), KUBERNETES))


DECIDED = dict(_decisions())


def _texts_of(decision: Decision) -> Iterator[str]:
    """Return all that is said about a decision: its head, each step, each cluster, each chart."""
    cycle, replay = decision.cycle, Replay(decision)
    yield headline(decision)
    yield policy_sentence(cycle.policy, cycle.semantics, cycle.options)
    for step in replay:
        yield from step_sentences(replay, step)
        ranking = ranking_of(replay, step.number)
        yield from (*ranking.columns, *ranking.notes)
        yield from (row.words for row in (*ranking.rows, *ranking.forbidden))
        yield from deciding_words(replay, step)
    for outcome in Outcomes(decision):
        yield from map(reason_sentence, outcome.reasons)
        yield from course_sentences(decision, outcome.cluster)
    yield rank_order_words(decision)
    yield from (f"{skew.words} ({skew.limit})" for skew in final_skews(decision))
    for panel in lane_panels(decision):
        yield from (panel.note, panel.band, panel.measure)
    yield decision_text(decision, placement="web")


@pytest.mark.nightly
@pytest.mark.parametrize("name", DECIDED)
def test_a_decision_is_reported_in_the_words_of_its_rules(name: str) -> None:
    decision = DECIDED[name]
    foreign = re.compile(FOREIGN[decision.cycle.semantics])

    texts = [line for words in _texts_of(decision) for line in words.splitlines()]

    assert [
        line for line in texts if foreign.search(line) or INTERNAL.search(line)
    ] == []


def _rare() -> Iterator[Decision]:
    """Decide what seldom happens: removals only, nothing to do, names, a failing cycle."""
    clusters = fleet(
        "a",
        "b",
        cluster("gone", not_eligible="leaving"),
        cluster("bad", properties={"cores": "x"}),
    )
    placed = tuple(map(binding, ("a", "b", "gone")))
    odd = pick_n(2, required=[measured("cores", "Gt", "1")])
    for semantics in Semantics:
        for policy, bindings in (
            (pick_n(1), placed),
            (pick_n(2), placed[:2]),
            (pick_n(1), (*map(_obsolete, "ab"), placed[2])),
            (pick_fixed("a"), ()),
            (pick_fixed(), ()),
            (odd, ()),
        ):
            yield schedule(Cycle(clusters, policy, bindings, semantics))
        if semantics in (FLEET, KUBEFLEET):
            batch = Batch(("a",), ("b",))
            yield schedule(
                Cycle(clusters, pick_n(1), placed[:1], semantics, batch=batch)
            )
        if semantics is not OCM:
            seen = cluster("a").with_changes(namespaces=SeenNamespaces(frozenset()))
            yield schedule(
                Cycle(
                    fleet(seen, "b"), pick_n(2), semantics=semantics, namespace="shop"
                )
            )
    five = pick_n(5, spread=[spread("region")])
    several = [*grouped("region", east="a b c", west="d"), cluster("keyless")]
    for options in ({"unsatisfiable": "error"}, {"unsetPolicy": "exclude"}):
        yield schedule(Cycle(fleet(*several), five, (), OCM, options))
    yield schedule(Cycle(fleet(*several), five, (), OCM, cluster_sets={"prod": {}}))


def _obsolete(name: str) -> PlacedBinding:
    return binding(name, obsolete=True)


BY_PLAN = {"picked-by-plan", "moved-by-plan", "not-in-batch"}
OCM_ONLY = {"missing-topology-key", "not-in-cluster-set"}
NEVER_GIVEN = {
    FLEET: {"already-placed", "chosen-again", "cycle-failed", *OCM_ONLY},
    KUBEFLEET: {"already-placed", "chosen-again", *OCM_ONLY},
    OCM: BY_PLAN
    | {
        "already-placed",
        "kept",
        "namespace-missing",
        "nothing-to-do",
        "scaled-down",
        "scaling-down",
    },
    KUBERNETES: BY_PLAN | {"already-placed", "chosen-again", "cycle-failed", *OCM_ONLY},
}
"""What each set of rules does not use: no outcome has the reason that a cluster is placed already."""


def test_every_reason_has_words_under_all_rules_that_can_give_it() -> None:
    seen: dict[Semantics, set[str]] = {one: set() for one in Semantics}
    for decision in (*DECIDED.values(), *_rare()):
        semantics = decision.cycle.semantics
        foreign = re.compile(FOREIGN[semantics])
        for outcome in Outcomes(decision):
            seen[semantics] |= {str(reason.code) for reason in outcome.reasons}
            texts = [reason_sentence(reason) for reason in outcome.reasons]
            assert [
                words for words in texts if not words or foreign.search(words)
            ] == []

    assert {
        one: {*map(str, ReasonCode)} - codes for one, codes in seen.items()
    } == NEVER_GIVEN


def test_the_chart_of_rules_knows_every_code_that_keeps_a_cluster_out() -> None:
    placed = {
        "picked",
        "picked-all",
        "picked-by-name",
        "picked-by-plan",
        "kept",
        "already-placed",
    }

    assert {*map(str, ReasonCode)} - {*map(str, RULES)} == placed


def test_a_cycle_that_wants_all_or_none_says_so() -> None:
    one = fleet(*grouped("region", east="a b c", west="d"))
    policy = pick_n(4, spread=[spread("region")])

    decision = schedule(Cycle(one, policy, (), OCM, {"unsatisfiable": "error"}))

    assert (
        headline(decision)
        == "No cluster selected: fewer than 4 clusters can be, and all are required"
    )
    assert reason_sentence(Outcomes(decision).of("a").reasons[0]) == (
        "Not selected: fewer clusters than requested can be, and all are required"
    )


@pytest.mark.parametrize(
    ("semantics", "kept", "words"),
    [
        (Semantics.FLEET, "incremental", "existing placements only win ties"),
        (Semantics.KUBEFLEET, "incremental", "existing placements only win ties"),
        (Semantics.KUBERNETES, "incremental", "existing placements have no effect"),
        (Semantics.OCM, "selects again", "Steady alone scores for existing placements"),
    ],
)
def test_what_being_placed_is_worth(
    semantics: Semantics, kept: str, words: str
) -> None:
    cycle = Cycle(fleet("a"), pick_n(1), (), semantics)

    assert beginning(cycle, is_incremental=True).name == kept
    assert words in beginning(cycle, is_incremental=False).words
    assert words in rescheduling_words(cycle)


def _step_words(decision: Decision) -> list[str]:
    replay = Replay(decision)
    return [words for step in replay for words in step_sentences(replay, step)]


def _two_keys(*, hard: bool) -> Decision:
    """Spread over two labels; one cluster has the first of them only."""
    one = fleet(cluster("a", region="east", zone="1"), cluster("y", region="west"))
    limits = [spread("region", hard=hard), spread("zone", hard=hard)]
    return schedule(Cycle(one, pick_n(2, spread=limits), (), KUBERNETES))


def test_a_label_that_a_cluster_has_is_not_reported_as_missing() -> None:
    soft, hard = _two_keys(hard=False), _two_keys(hard=True)

    steps = _step_words(soft)
    assert "y has no label zone: its spread score is 0, the lowest." in steps
    assert (
        "y does not count for region, without another label: its spread score is 0."
        in steps
    )
    steps = _step_words(hard)
    assert (
        "1 cluster blocked without the label zone, which a hard limit requires."
        in steps
    )
    assert "without the label region" not in " ".join(steps)
    (row,) = ranking_of(Replay(hard), 1).forbidden
    assert row.words == "no label zone, which the hard limit requires"
    assert course_sentences(hard, "y") == [
        "Candidate in 2 of 2 steps: blocked in 2 by its missing label zone, first in step 1."
    ]


def test_a_missing_label_breaks_no_limit() -> None:
    last = Replay(_two_keys(hard=True)).step(2)
    assert (
        round_sentence(last) == "no candidate can be selected: none has the label zone"
    )

    one = fleet(*grouped("zone", a="a1 a2 a3", b="b1"), "y")
    both = schedule(Cycle(one, pick_n(5, spread=[spread("zone")]), (), KUBERNETES))
    assert round_sentence(Replay(both).step(4)) == (
        "no candidate can be selected: every one would break zone (max skew 1, hard),"
        " or the cluster has no label zone"
    )


def test_a_skew_that_another_group_makes_is_not_blamed_on_this_one() -> None:
    one = fleet(*grouped("zone", a="a1 a2 a3 a4", b="b1 b2", c="c1"))
    placed = tuple(map(binding, ("a1", "a2", "a3")))
    policy = pick_n(4, spread=[spread("zone", 2, hard=False)])
    soft = schedule(Cycle(one, policy, placed, KUBEFLEET))

    assert course_sentences(soft, "b1")[-1] == (
        "Last ranked in step 1: lost to c1; every score is the same,"
        " and the last name of the alphabet wins."
    )


def test_having_been_here_stands_only_where_it_ranks() -> None:
    for semantics in Semantics:
        cycle = Cycle(fleet("a", "b"), pick_n(1), (_obsolete("b"),), semantics)
        ranks = semantics in (FLEET, KUBEFLEET)

        assert ("placed before" in rank_order_words(schedule(cycle))) == ranks
        assert (
            "placed before" in ranking_of(Replay(schedule(cycle)), 1).columns
        ) == ranks
        assert (
            "previously placed"
            in decision_text(schedule(cycle), placement="web", step=1)
        ) == ranks


def test_a_label_and_a_claim_of_one_name_have_shares_of_their_own() -> None:
    one = fleet(
        *(cluster(claim, site="x", properties={"site": claim}) for claim in "pq")
    )
    by_label = spread("site", hard=False)
    constraints = [by_label, {**by_label, "topologyKeyType": "Claim"}]
    raw = {**pick_n(1).to_plain(), "topologySpreadConstraints": constraints}
    policy = parse_policy(raw, semantics=OCM)
    decision = schedule(
        Cycle(one, policy, (), OCM, {"domainWeights": {"site": {"p": 2}}})
    )

    assert course_sentences(decision, "q")[-1] == (
        "Last ranked in step 1: lost to p; site=x/p has 0 for its weight 2,"
        " site=x/q has 0 for its weight 1."
    )


def test_a_cluster_that_has_the_label_is_not_without_it_in_a_preview() -> None:
    one = fleet(
        cluster("a", region="east", taints=[taint("gpu")]), cluster("b", region="east")
    )
    constraint = {**spread("region"), "nodeTaintsPolicy": "Honor"}
    raw = {**pick_n(2).to_plain(), "topologySpreadConstraints": [constraint]}
    decision = schedule(
        Cycle(one, parse_policy(raw, semantics=KUBERNETES), (binding("a"),), KUBERNETES)
    )

    (panel,) = placed_panels(decision)

    assert [lane.name for lane in panel.lanes] == ["east", "no domain"]


def test_what_being_placed_is_worth_is_shown_only_where_clusters_are_ranked() -> None:
    for semantics in Semantics:
        for policy in (pick_all(), pick_fixed("a")):
            cycle = Cycle(fleet("a"), policy, (), semantics)
            said = [
                beginning(cycle, is_incremental=False).words,
                rescheduling_words(cycle),
            ]

            assert not re.search("ties|Steady|no effect", " ".join(said))


@pytest.mark.parametrize(
    ("weight", "words"), [(0, "have no effect"), (-50, "scores against existing")]
)
def test_steady_speaks_as_it_is_weighed(weight: int, words: str) -> None:
    cycle = Cycle(fleet("a"), pick_n(1), (), OCM, {"steadyWeight": weight})

    assert words in beginning(cycle, is_incremental=True).words


def test_a_pick_into_the_emptiest_group_is_not_above_it_afterwards() -> None:
    one = fleet(*grouped("region", east="a b", west="c"))
    for decision in (
        ocm(one, 3, [spread("region")]),
        kubernetes(one, 3, [spread("region")]),
    ):
        words = _step_words(schedule(decision))

        assert any(
            "region=west goes from 0 to 1; measured before the selection that is 1 above the emptiest"
            " domain (0), limit 1" in line
            for line in words
        )


def test_sums_that_tie_are_not_called_scores_that_do() -> None:
    likes = [
        prefer(100, labelled(zone="a")),
        prefer(100, expression("zone", "In", "a")),
    ]
    zoned = fleet(*grouped("zone", a="a1 a2", b="b1"))
    by_sum = schedule(
        Cycle(
            zoned,
            pick_n(2, prefer=likes, spread=[spread("zone", hard=False)]),
            (binding("a1"),),
            KUBERNETES,
        )
    )
    crossed = fleet(
        cluster("p", x="1", y="1"),
        cluster("c", x="1", y="2"),
        cluster("d", x="2", y="1"),
    )
    both = pick_n(2, spread=[spread("x", hard=False), spread("y", hard=False)])
    by_parts = schedule(Cycle(crossed, both, (binding("p"),), FLEET))

    assert explain_rank(by_sum, by_sum.round(1), "a2", "b1") == (
        f"2 {TIMES} spread + affinity is the same, and the first name of the alphabet wins"
    )
    assert (
        f"2 candidates: all with 2 {TIMES} spread + affinity +200;"
        " by name, first of the alphabet first: a2, b1." in _step_words(by_sum)
    )
    assert explain_rank(by_parts, by_parts.round(1), "d", "c") == (
        "the sum of the scores is the same, and the last name of the alphabet wins"
    )
    assert (
        "2 candidates: all with spread −999; all with affinity 0;"
        " by name, last of the alphabet first: d, c." in _step_words(by_parts)
    )
