"""Affinity scores: the sum over preferred terms (`rules/scheduler.md#scores-and-ranking`)."""

import pytest

from clusters.fleet import Fleet, ResourceUsage
from placements.engine.scheduling.candidates import malformed_properties
from placements.engine.scheduling.scores.preferred_affinity import (
    affinity,
    observed_range,
)
from placements.engine.scheduling.selectors import Malformed
from tests.builders import (
    Document,
    cluster,
    cycle,
    fleet,
    labelled,
    pick_n,
    prefer,
    sorted_by,
)


def _scores(one: Fleet, *terms: Document) -> list[int]:
    return affinity(cycle(one, pick_n(1, prefer=terms))).tolist()


def _with_cpu(*values: str | None) -> Fleet:
    """Make clusters c0, c1, … with this much of the property `cpu`; None means that it is absent."""
    given = [{} if value is None else {"cpu": value} for value in values]
    return fleet(
        *(
            cluster(f"c{index}", properties=document)
            for index, document in enumerate(given)
        )
    )


def test_without_terms_every_score_is_zero() -> None:
    assert _scores(fleet("a", "b")) == [0, 0]


def test_a_matching_cluster_gets_the_full_weight() -> None:
    one = fleet(cluster("a", region="west"), cluster("b", region="east"), "c")

    assert _scores(one, prefer(20, labelled(region="west"))) == [20, 0, 0]


def test_weights_add_up_and_may_be_negative() -> None:
    one = fleet(cluster("n"), cluster("p", env="prod"), cluster("w", region="west"))
    both = one.with_cluster(cluster("wp", region="west", env="prod"))

    scores = _scores(
        both, prefer(20, labelled(region="west")), prefer(-20, labelled(env="prod"))
    )

    assert scores == [0, -20, 20, 0]


def test_a_term_without_requirements_gives_its_weight_to_all() -> None:
    assert _scores(fleet("a", "b"), prefer(7)) == [7, 7]


@pytest.mark.parametrize(
    ("order", "scores"), [("Descending", [0, 5, 10, 0]), ("Ascending", [10, 5, 0, 0])]
)
def test_a_sorter_interpolates_between_smallest_and_largest(
    order: str, scores: list[int]
) -> None:
    one = _with_cpu("2", "4", "6", None)

    assert _scores(one, prefer(10, sorted_by("cpu", order))) == scores


def test_a_sorter_scores_only_clusters_that_the_labels_match() -> None:
    one = fleet(
        cluster("a", tier="edge", properties={"cpu": "4"}),
        cluster("b", properties={"cpu": "2"}),
        cluster("c", properties={"cpu": "6"}),
    )

    assert _scores(one, prefer(10, labelled(tier="edge"), sorted_by("cpu"))) == [
        5,
        0,
        0,
    ]


@pytest.mark.parametrize(
    ("weight", "scores"),
    [(1, [0, 1, 1]), (3, [0, 2, 3]), (-1, [0, -1, -1]), (-3, [0, -2, -3])],
)
def test_rounds_halves_away_from_zero(weight: int, scores: list[int]) -> None:
    assert _scores(_with_cpu("0", "1", "2"), prefer(weight, sorted_by("cpu"))) == scores


def test_equal_values_score_zero() -> None:
    assert _scores(_with_cpu("4", "4000m", None), prefer(10, sorted_by("cpu"))) == [
        0,
        0,
        0,
    ]


def test_a_property_that_no_cluster_has_scores_zero() -> None:
    assert _scores(_with_cpu(None, None), prefer(10, sorted_by("cpu"))) == [0, 0]


def test_a_malformed_value_counts_as_absent() -> None:
    assert _scores(_with_cpu("2", "lots", "6"), prefer(10, sorted_by("cpu"))) == [
        0,
        0,
        10,
    ]


@pytest.mark.parametrize("kind", ["unhealthy", "leaving", "noAgent"])
def test_smallest_and_largest_count_every_listed_cluster(kind: str) -> None:
    one = fleet(
        cluster("a", properties={"cpu": "0"}),
        cluster("b", properties={"cpu": "5"}),
        cluster("c", properties={"cpu": "10"}, not_eligible=kind),
    )

    assert observed_range("cpu", one) == (0, 10)
    assert _scores(one, prefer(10, sorted_by("cpu")))[1] == 5


def test_computes_in_doubles_in_the_order_that_the_rules_give() -> None:
    one = _with_cpu("0", "290m", "2")
    share = (290 * 1e-3 - 0.0) / (2.0 - 0.0)

    assert share * 100 < 14.5
    assert _scores(one, prefer(100, sorted_by("cpu")))[1] == 14


def test_a_term_of_weight_zero_is_skipped_except_on_a_released_hub() -> None:
    one = _with_cpu("lots", "1")
    terms = [prefer(0, sorted_by("cpu")), prefer(0, labelled(region="east"))]
    policy = pick_n(1, prefer=terms)

    assert _scores(one, *terms) == [0, 0]
    assert malformed_properties(cycle(one, policy)) == ()
    assert malformed_properties(cycle(one, policy, semantics="kubefleet")) == (
        Malformed("c0", "cpu", "lots"),
    )


def test_lists_each_malformed_value_of_a_sorter_once() -> None:
    one = _with_cpu("lots", "1")
    terms = [prefer(5, sorted_by("cpu")), prefer(6, sorted_by("cpu", "Ascending"))]

    malformed = malformed_properties(cycle(one, pick_n(1, prefer=terms)))

    assert malformed == (Malformed("c0", "cpu", "lots"),)


def test_reads_reported_resources() -> None:
    usages = [ResourceUsage(available={"cpu": amount}) for amount in ("1", "3", "2")]
    one = fleet(
        *(cluster(f"c{index}", usage=usage) for index, usage in enumerate(usages))
    )

    scores = _scores(
        one, prefer(10, sorted_by("resources.kubernetes-fleet.io/available-cpu"))
    )

    assert scores == [0, 10, 5]
