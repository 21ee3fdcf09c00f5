"""A stored decision shows the same as the original."""

import pytest
from hypothesis import given

from clusters.fleet import ResourceUsage
from placements.engine.scheduling.decision import ENGINE_VERSION, Decision
from placements.engine.scheduling.outcome import Outcomes
from placements.engine.scheduling.record import (
    UnreadableRecordError,
    pack,
    pack_fleet,
    unpack,
    unpack_fleet,
)
from placements.engine.scheduling.replay import Replay
from tests.builders import (
    binding,
    cluster,
    decide,
    fleet,
    measured,
    pick_all,
    pick_fixed,
    pick_n,
    prefer,
    sorted_by,
    taint,
)
from tests.effort import examples
from tests.engine.advice.test_advice import decisions


def _answers(decision: Decision) -> tuple[object, ...]:
    replay = Replay(decision)
    rounds = [(step, replay.candidates(step.number)) for step in replay]
    return (
        decision.id,
        decision.picked,
        decision.bindings_after,
        list(Outcomes(decision)),
        rounds,
    )


@examples(50)
@given(decision=decisions())
def test_a_record_read_back_shows_the_same(decision: Decision) -> None:
    again = unpack(pack(decision), decision.cycle.fleet)

    assert _answers(again) == _answers(decision)
    assert pack(again) == pack(decision)


@pytest.mark.parametrize(
    "decision",
    [
        decide(fleet("a", "b"), pick_fixed("b", "c"), binding("a", obsolete=True)),
        decide(fleet("a", cluster("b", not_eligible="noAgent")), pick_all()),
        decide(fleet("a"), pick_n(0), binding("a")),
        decide(fleet("a"), pick_fixed()),
        decide(
            fleet(
                cluster("a", properties={"x": "many"}),
                cluster("b", properties={"x": "3"}),
            ),
            pick_n(
                2,
                required=[measured("x", "Gt", "1")],
                prefer=[prefer(10, sorted_by("x"))],
            ),
        ),
    ],
    ids=["fixed", "all", "scale-down", "no-names", "malformed"],
)
def test_every_kind_of_cycle_can_be_stored(decision: Decision) -> None:
    assert _answers(unpack(pack(decision), decision.cycle.fleet)) == _answers(decision)


def test_a_record_of_another_fleet_is_refused() -> None:
    record = pack(decide(fleet("a", "b"), pick_n(1)))

    with pytest.raises(UnreadableRecordError, match="2 clusters, this fleet has 1"):
        unpack(record, fleet("a"))


def test_a_record_of_another_engine_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    record = pack(decide(fleet("a"), pick_n(1)))
    monkeypatch.setattr("placements.engine.scheduling.record.ENGINE_VERSION", "0")

    with pytest.raises(
        UnreadableRecordError, match=f"record of engine {ENGINE_VERSION}, this one is 0"
    ):
        unpack(record, fleet("a"))


def test_a_fleet_read_back_is_the_same_whatever_order_it_was_given_in() -> None:
    usage = ResourceUsage(capacity={"cpu": "4"}, available={"cpu": "500m"})
    members = [
        cluster(
            "b",
            region="east",
            taints=[taint("gpu", "true")],
            properties={"cost": "1"},
            usage=usage,
        ),
        cluster("a", not_eligible="staleHeartbeat"),
    ]

    blob = pack_fleet(fleet(*members))

    assert unpack_fleet(blob).clusters == fleet(*members).clusters
    assert blob == pack_fleet(fleet(*reversed(members)))
