"""What a rolling update says of itself: the arithmetic, why a cluster waits, and what would free it."""

import pytest

from placements.engine.rollout.actions import BlockedRemovals, StartUpdate, UpdateReason
from placements.engine.rollout.budget import Concurrency, MaxTotal, MinAvailable
from placements.engine.rollout.rolling_update import next_actions
from placements.engine.rollout.state import Deletion, Phase, RolloutState, Suspension
from placements.explain.rollouts import (
    action_words,
    blocked_groups,
    blocked_removals_sentence,
    blocked_sentence,
    budget_sentences,
    concurrency_sentence,
    in_progress_sentence,
    max_total_sentence,
    min_available_sentence,
    phase_sentence,
    result_document,
    result_from_document,
    unblock_sentence,
    with_names,
)
from placements.explain.run_pages import (
    Part,
    state_counts,
    verdict_words,
    with_troubles,
)
from tests.builders import pick_n
from tests.engine.rollout.states import (
    NEW,
    NOON,
    after,
    available,
    budget,
    cluster,
    done,
    empty,
    gone,
    leaving,
    lost,
    state,
)

SETTLING = cluster("palemoth", Phase.APPLIED, runs=NEW, untrackable_since=after(0))
REMOVING = leaving("palemoth", Phase.REMOVING)
FAILED = cluster("quiet", Phase.FAILED, runs=NEW, attempts=2, retry_at=after(20))
ONE, NO_SURGE, UP_ONLY = budget(1), budget(1, 0), budget(0, 1)


def test_writes_the_numbers_of_the_budgets() -> None:
    assert min_available_sentence(MinAvailable(5, 2, 4)) == (
        "Can take down 1 more cluster (4 available, minimum 3)"
    )
    assert min_available_sentence(MinAvailable(5, 2, 4, 1)) == (
        "Cannot take down any cluster (4 available, 1 being taken down, minimum 3)"
    )
    assert min_available_sentence(MinAvailable(5, 2, 2)) == (
        "Cannot take down any cluster (2 available, minimum 3)"
    )
    assert (
        max_total_sentence(MaxTotal(5, 2, 5, 1))
        == "Can add 1 more cluster (6 placed, maximum 7)"
    )
    assert concurrency_sentence(Concurrency(3, 2)) == (
        "Can remove from 1 more cluster (2 in progress, maximum 3)"
    )


def test_an_initial_deployment_hides_what_may_be_taken_down() -> None:
    assert budget_sentences(next_actions(state(empty("a"), strategy=ONE)).budgets) == [
        "Can add 1 more cluster (1 placed, maximum 2)"
    ]


def test_says_which_removals_are_blocked() -> None:
    few = BlockedRemovals(0, 5, ("a", "b", "c"), is_permanent=True)

    assert blocked_removals_sentence(few) == (
        "0 of 5 clusters selected. 3 placements are kept until replacements are available. To release them,"
        " reduce numberOfClusters."
    )
    assert blocked_removals_sentence(
        BlockedRemovals(1, 1, ("a",), is_permanent=False)
    ) == ("1 placement is kept until replacements are available.")


@pytest.mark.parametrize(
    ("rollout", "why", "freed_by"),
    [
        (
            state(SETTLING, available("x"), strategy=ONE),
            "On v1, waiting for v2. Cannot take down any cluster (1 available, minimum 1).",
            "palemoth is available at 2026-08-20 12:01:00 UTC",
        ),
        (
            state(available("a"), available("x"), strategy=ONE),
            "On v1, waiting for v2. Cannot take down any cluster (2 available, 1 being taken down, minimum"
            " 1).",
            "a is available",
        ),
        (
            state(FAILED, lost(done("y")), available("x"), strategy=ONE),
            "On v1, waiting for v2. Cannot take down any cluster (1 available, minimum 2).",
            "the retry on quiet succeeds and y reconnects",
        ),
        (
            state(available("x"), strategy=UP_ONLY),
            "On v1, waiting for v2. Cannot take down any cluster (1 available, minimum 1) because"
            " maxUnavailable is 0.",
            "maxUnavailable is increased",
        ),
        (
            state(leaving("x"), policy=pick_n(5), strategy=ONE),
            "On v1, pending removal. Cannot take down any cluster (1 available, minimum 4).",
            "numberOfClusters is reduced, more clusters are selected, or maxUnavailable is increased",
        ),
        (
            state(SETTLING, leaving("x"), strategy=UP_ONLY),
            "On v1, pending removal. Cannot take down any cluster (1 available, minimum 1).",
            "palemoth is available at 2026-08-20 12:01:00 UTC",
        ),
        (
            state(REMOVING, empty("x"), strategy=NO_SURGE),
            "Not placed yet, waiting for v2. Cannot add any cluster (1 placed, maximum 1).",
            "the removal from palemoth completes",
        ),
        (
            state(available("x"), suspension=Suspension.PAUSED),
            "On v1, waiting for v2. The placement is paused.",
            "the placement is resumed",
        ),
        (
            state(available("x"), suspension=Suspension.STOPPED),
            "On v1, waiting for v2. The rollout was stopped.",
            "a new rollout starts",
        ),
        (
            state(lost(available("x"))),
            "On v1, waiting for v2. Unreachable since 2026-08-20 12:00:00 UTC.",
            "the cluster reconnects",
        ),
        (
            state(lost(leaving("x")), deletion=Deletion(NOON, 1)),
            "On v1, pending removal. Unreachable since 2026-08-20 12:00:00 UTC.",
            "the cluster reconnects, or is force-removed after 2026-08-20 12:15:00 UTC",
        ),
        (
            state(
                cluster("x", Phase.APPLIED, runs=NEW, phase_changed_at=after(0)),
                at=after(61),
            ),
            "Applied v2, not available since 2026-08-20 12:00:00 UTC.",
            "the cluster is available, or a newer version is applied",
        ),
        (
            state(
                cluster("a", Phase.APPLIED, runs=NEW, phase_changed_at=after(0)),
                available("x"),
                strategy=ONE,
                at=after(61),
            ),
            "On v1, waiting for v2. Cannot take down any cluster (1 available, minimum 1).",
            "a is available",
        ),
        (
            state(gone(available("x"))),
            "On v1, waiting for v2. No longer in the fleet.",
            "the placement is scheduled again",
        ),
        (
            state(cluster("x", Phase.REMOVING)),
            "Waiting for v2. The previous version is being removed.",
            "the removal completes",
        ),
        (
            state(REMOVING, leaving("x"), deletion=Deletion(NOON, 2)),
            "Pending removal. Cannot remove from any cluster (1 in progress, maximum 1).",
            "the removal from palemoth completes",
        ),
        (
            state(cluster("x", Phase.FAILED, runs=NEW, attempts=2, retry_at=after(20))),
            "Failed 2 times. Next retry at 2026-08-20 12:00:20 UTC.",
            "the retry succeeds, or a newer version is applied",
        ),
    ],
)
def test_says_why_a_cluster_waits_and_what_would_free_it(
    rollout: RolloutState, why: str, freed_by: str
) -> None:
    answer = next_actions(rollout)
    (waiting,) = (
        blocked_cluster
        for blocked_cluster in answer.blocked
        if blocked_cluster.cluster == "x"
    )

    assert blocked_sentence(waiting, answer) == why
    assert unblock_sentence(waiting, answer) == freed_by


def test_says_what_a_cluster_is_busy_with() -> None:
    phases = (Phase.APPLYING, Phase.REMOVING, Phase.APPLIED)
    facts = [cluster(phase.value, phase, runs=NEW) for phase in phases]

    answer = next_actions(state(SETTLING, *facts))

    assert [in_progress_sentence(cluster) for cluster in answer.in_progress] == [
        "applying",
        "waiting for availability until 2026-08-20 12:01:00 UTC",
        "removing",
        "waiting for availability",
    ]


def test_updates_and_retries_are_waited_for() -> None:
    assert (
        phase_sentence(next_actions(state(SETTLING, strategy=ONE)))
        == "Waiting for running updates"
    )
    assert (
        phase_sentence(next_actions(state(FAILED, strategy=ONE)))
        == "Waiting for the next retry"
    )


def test_several_that_wait_alike_are_one_group() -> None:
    answer = next_actions(
        state(available("a"), available("b"), suspension=Suspension.PAUSED)
    )

    [one] = blocked_groups(answer)

    assert (one.clusters, one.why) == (
        ("a", "b"),
        "On v1, waiting for v2. The placement is paused.",
    )


def test_those_that_run_different_versions_are_distinguished() -> None:
    answer = next_actions(
        state(available("a"), empty("b"), suspension=Suspension.PAUSED)
    )

    assert {group.clusters: group.why for group in blocked_groups(answer)} == {
        ("a",): "On v1, waiting for v2. The placement is paused.",
        ("b",): "Not placed yet, waiting for v2. The placement is paused.",
    }


def test_other_overrides_of_one_revision_are_another_version() -> None:
    names = {"v1": "r1", "v2": "r1"}
    result = next_actions(state(FAILED, available("x"), suspension=Suspension.PAUSED))

    expected = "On r1, waiting for r1 with changed overrides or apply strategy. The placement is paused."
    for named in (
        with_names(result, names),
        result_from_document(result_document(result), names),
    ):
        (waiting,) = (
            blocked_cluster
            for blocked_cluster in named.blocked
            if blocked_cluster.cluster == "x"
        )
        assert blocked_sentence(waiting, named) == expected


def test_an_update_of_the_overrides_alone_is_no_installation() -> None:
    update = StartUpdate("x", "v2", UpdateReason.UPDATE)

    assert action_words(update, "v1", {"v1": "r1", "v2": "r1"}) == (
        "Update r1 → r1 with changed overrides or apply strategy"
    )
    assert action_words(update, "v1", {"v1": "r1", "v2": "r2"}) == "Update r1 → r2"
    assert action_words(update, None, {"v2": "r1"}) == "Install r1"


def test_versions_without_a_name_have_the_same_words() -> None:
    result = next_actions(state(available("x"), suspension=Suspension.PAUSED))

    assert [
        blocked_cluster.wanted for blocked_cluster in with_names(result, {}).blocked
    ] == ["an older revision"]


def test_counts_of_a_rollout_sum_and_name_what_does_not_answer() -> None:
    clusters = [
        lost(done("a")),
        done("b"),
        cluster("c", Phase.FAILED, runs=NEW, attempts=3, retry_at=after(60)),
        lost(empty("d")),
    ]
    parts = dict.fromkeys("ab", Part.UPDATED)
    parts |= {"c": Part.FAILED, "d": Part.PENDING, "e": Part.REMOVED}

    shown = with_troubles(parts, next_actions(state(*clusters)))
    counts = state_counts(shown.values())

    assert [f"{count.number} {count.words}" for count in counts] == [
        "1 updated, of 4",
        "1 removed",
        "0 updating",
        "1 failed",
        "2 not available",
        "0 pending",
    ]
    assert verdict_words(shown.values()).startswith("1 of 4 clusters updated")
