"""The affinity filter: who passes, and which requirements the others miss."""

from placements.engine.scheduling.filters.affinity import AffinityFilter
from placements.engine.scheduling.reason import Reason, ReasonCode
from tests.builders import (
    cluster,
    cycle,
    expression,
    fleet,
    labelled,
    measured,
    pick_all,
    pick_n,
    prefer,
)

FILTER = AffinityFilter()


def test_passes_clusters_that_match_any_term() -> None:
    one = fleet(
        cluster("a", region="east"),
        cluster("b", region="west"),
        cluster("c", region="north"),
    )
    policy = pick_all(required=[labelled(region="east"), labelled(region="west")])

    assert FILTER.passes(cycle(one, policy)).tolist() == [True, True, False]


def test_does_not_apply_without_required_terms() -> None:
    policy = pick_n(1, prefer=[prefer(20, labelled(region="east"))])

    assert FILTER.passes(cycle(fleet("a"), policy)).tolist() == [True]


def test_lists_what_each_term_misses_and_what_is_there_instead() -> None:
    one = fleet(cluster("a", region="west", properties={"cpu": "2"}))
    policy = pick_all(required=[labelled(region="east"), measured("cpu", "Ge", "4")])

    reason = FILTER.reason(cycle(one, policy), 0)

    label = {"label": "region", "operator": "In", "values": ["east"], "actual": "west"}
    measure = {"property": "cpu", "operator": "Ge", "values": ["4"], "actual": "2"}
    assert reason == Reason(
        ReasonCode.REQUIRED_AFFINITY, {"terms": [[label], [measure]]}
    )


def test_leaves_out_the_requirements_that_hold() -> None:
    one = fleet(cluster("a", region="east"))
    policy = pick_all(
        required=[
            {**labelled(region="east", tier="edge"), **measured("cpu", "Lt", "4")}
        ]
    )

    reason = FILTER.reason(cycle(one, policy), 0)

    label = {"label": "tier", "operator": "In", "values": ["edge"], "actual": None}
    measure = {"property": "cpu", "operator": "Lt", "values": ["4"], "actual": None}
    assert reason.facts == {"terms": [[label, measure]]}


def test_names_every_operator_that_fails() -> None:
    one = fleet(cluster("a", region="east"))
    wanted = [
        ("region", "NotIn", "east"),
        ("region", "DoesNotExist"),
        ("tier", "Exists"),
        ("tier", "In", "edge"),
    ]
    terms = [expression(*each) for each in wanted]

    reason = FILTER.reason(cycle(one, pick_all(required=terms)), 0)

    missed = reason.facts["terms"]
    assert isinstance(missed, list)
    assert [[part["operator"] for part in term] for term in missed] == [
        ["NotIn"],
        ["DoesNotExist"],
        ["Exists"],
        ["In"],
    ]
