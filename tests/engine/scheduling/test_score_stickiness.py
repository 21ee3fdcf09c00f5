"""The score *was here*: 1 for an obsolete binding of this placement."""

import pytest

from placements.engine.scheduling.scores.preferred_affinity import stickiness
from tests.builders import binding, cluster, cycle, decide, fleet, pick_n, spread


def test_scores_obsolete_bindings_only() -> None:
    bindings = [
        binding("a", "Bound", obsolete=True),
        binding("b", "Scheduled", obsolete=True),
        binding("c", "Bound"),
        binding("d", "Unscheduled", obsolete=True),
        binding("e", "Bound", obsolete=True, deleting=True),
    ]

    assert stickiness(
        cycle(fleet("a", "b", "c", "d", "e", "f"), None, *bindings)
    ).tolist() == [
        1,
        1,
        0,
        0,
        0,
        0,
    ]


def test_does_not_score_a_binding_whose_cluster_leaves_or_is_gone() -> None:
    one = fleet(cluster("a", not_eligible="leaving"))

    scores = stickiness(
        cycle(one, None, binding("a", obsolete=True), binding("gone", obsolete=True))
    )

    assert scores.tolist() == [0]


@pytest.mark.parametrize("semantics", ["fleet", "kubefleet"])
def test_breaks_a_tie_before_the_name_does(semantics: str) -> None:
    decision = decide(
        fleet("a", "b", "c"),
        pick_n(1),
        binding("a", obsolete=True),
        semantics=semantics,
    )

    assert decision.picked_names == ("a",)


@pytest.mark.parametrize(
    ("semantics", "picked"), [("fleet", ("b", "a")), ("kubefleet", ("b", "z"))]
)
def test_counts_in_the_first_round_only_under_kubefleet_with_spread(
    semantics: str, picked: tuple[str, str]
) -> None:
    obsolete = [binding("a", obsolete=True), binding("b", obsolete=True)]
    policy = pick_n(2, spread=[spread("region")])

    assert (
        decide(
            fleet("a", "b", "z"), policy, *obsolete, semantics=semantics
        ).picked_names
        == picked
    )


@pytest.mark.parametrize("semantics", ["fleet", "kubefleet"])
def test_counts_for_all_picks_where_there_is_one_round(semantics: str) -> None:
    obsolete = [binding("a", obsolete=True), binding("b", obsolete=True)]

    assert decide(
        fleet("a", "b", "z"), pick_n(2), *obsolete, semantics=semantics
    ).picked_names == ("b", "a")
