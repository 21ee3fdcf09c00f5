"""Cycles that are due at once are written together, and decide what each would decide alone."""

from datetime import datetime
from typing import Any

import pytest
from django.db import DatabaseError, connection, transaction
from django.test.utils import CaptureQueriesContext
from hypothesis import given, settings
from hypothesis import strategies as st

from clusters.models import MemberCluster
from clusters.operations.edit import change_labels
from clusters.operations.join import ClusterSpec, upsert_clusters
from fleetui.models import Event
from placements.models import Binding, Decision, Placement
from placements.services import scheduling
from placements.services.fleet_events import enqueue_affected_placements
from placements.services.workqueue import enqueue_scheduling
from tests.database import forget_caches
from tests.rows import (
    NOW,
    decided,
    joined,
    member_document,
    pick_n_spec,
    placed,
    run_due,
    saved,
    spec,
)

pytestmark = [pytest.mark.django_db, pytest.mark.servers]
_REGIONS = ("east", "west")


@pytest.fixture(autouse=True)
def _no_time_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a busy machine does slowly is left to cycles of its own, which these tests are not about."""
    monkeypatch.setattr(scheduling, "monotonic", lambda: 0.0)


def _fleet(count: int) -> list[str]:
    names = [f"c{number}" for number in range(count)]
    members = [
        member_document(name, {"region": _REGIONS[place % 2], "tier": "silver"})
        for place, name in enumerate(names)
    ]
    upsert_clusters([ClusterSpec(member) for member in members], by=None, now=NOW)
    return names


def _gold(number: int | None) -> dict[str, Any]:
    terms = [{"labelSelector": {"matchLabels": {"tier": "gold"}}}]
    required = {
        "requiredDuringSchedulingIgnoredDuringExecution": {
            "clusterSelectorTerms": terms
        }
    }
    policy: dict[str, Any] = {"affinity": {"clusterAffinity": required}}
    if number is None:
        return spec({"placementType": "PickAll", **policy})
    keys = [{"topologyKey": "region", "maxSkew": 1}]
    return spec(
        {
            "placementType": "PickN",
            "numberOfClusters": number,
            "topologySpreadConstraints": keys,
            **policy,
        }
    )


def _all_due() -> list[int]:
    pks = list(Placement.objects.order_by("pk").values_list("pk", flat=True))
    enqueue_scheduling(pks, trigger="the fleet changed")
    return pks


def _rows() -> list[Any]:
    """Return all that cycles write, without keys and the time that they took."""
    placements = Placement.objects.order_by("name").values_list(
        "name",
        "observed_generation",
        "scheduled",
        "decisions_made",
        "is_fulfilled",
        "placed_count",
        "lease_token",
        "lease_expires_at",
    )
    bindings = Binding.objects.order_by("placement__name", "cluster_name").values_list(
        "placement__name",
        "cluster_name",
        "state",
        "previous_state",
        "topology_spread_score",
        "affinity_score",
        "decision__number",
        "policy_snapshot__number",
    )
    decisions = Decision.objects.order_by("placement_name", "number").values_list(
        "placement_name",
        "number",
        "record__decision_id",
        "fleet_digest",
        "joins",
        "leaves",
        "picked_count",
        "kept_count",
        "unscheduled_count",
    )
    events = Event.objects.filter(verb="decided").order_by("name", "pk")
    members = set(MemberCluster.objects.values_list("name", "pk"))
    assert members.issuperset(Binding.objects.values_list("cluster_name", "member_id"))
    facts = events.values_list("name", "after")
    return [*placements, *bindings, *decisions, *facts]


def _played(numbers: list[int | None], changes: list[tuple[int, str]]) -> list[Any]:
    """Place over six clusters, change their labels one after another; return the rows, and undo it."""
    with transaction.atomic():
        clusters = _fleet(6)
        for place, number in enumerate(numbers):
            decided(f"p{place}", _gold(number))
        for place, tier in changes:
            change_labels([clusters[place]], put={"tier": tier}, by=None, now=NOW)
            enqueue_affected_placements()
            run_due()
        rows = _rows()
        transaction.set_rollback(True)
    forget_caches()
    return rows


@settings(max_examples=12, deadline=None)
@given(
    numbers=st.lists(st.sampled_from([None, 0, 1, 2, 3]), min_size=2, max_size=5),
    changes=st.lists(
        st.tuples(st.integers(0, 5), st.sampled_from(["gold", "silver"])),
        min_size=1,
        max_size=5,
    ),
)
def test_they_write_what_each_would_write_alone(
    numbers: list[int | None], changes: list[tuple[int, str]]
) -> None:
    together = _played(numbers, changes)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(scheduling, "_schedule_together", lambda claimed, **_now: claimed)
        alone = _played(numbers, changes)

    assert together == alone


def test_more_placements_take_no_more_statements() -> None:
    _fleet(4)
    counts = []
    for number in range(12):
        decided(f"p{number}", pick_n_spec(2))
        if number in (3, 11):
            change_labels(["c0"], put={"tier": f"t{number}"}, by=None, now=NOW)
            _all_due()
            with CaptureQueriesContext(
                connection,
            ) as captured:
                scheduling.schedule_due(now=NOW)
            counts.append(len(captured))

    assert counts[0] == counts[1]


def test_a_cycle_that_raises_delays_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    _fleet(2)
    for name in ("bad", "good", "fine"):
        decided(name, pick_n_spec(0))
    Placement.objects.update(number_of_clusters=1)
    _all_due()
    decide = scheduling.decide

    def decide_most(inputs: scheduling.CycleInputs) -> scheduling.CycleResult:
        if inputs.placement.name == "bad":
            raise ZeroDivisionError
        return decide(inputs)

    monkeypatch.setattr(scheduling, "decide", decide_most)

    with pytest.raises(ZeroDivisionError):
        scheduling.schedule_due(now=NOW)

    due = [row.name for row in Placement.objects.all() if row.is_due]
    assert due == ["bad"]
    assert Binding.objects.count() == 2


def test_where_they_cannot_be_written_together_each_is_written_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    _fleet(2)
    for name in ("one", "other"):
        decided(name, pick_n_spec(0))
    Placement.objects.update(number_of_clusters=1)
    _all_due()
    record_all = scheduling.record_all

    def record_one(events: Any, **options: Any) -> None:
        listed = list(events)
        if len(listed) > 1:
            raise DatabaseError
        record_all(listed, **options)

    monkeypatch.setattr(scheduling, "record_all", record_one)
    scheduling.schedule_due(now=NOW)

    assert Binding.objects.count() == 2
    assert not any(row.is_due for row in Placement.objects.all())


def test_one_that_is_changed_meanwhile_is_decided_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    _fleet(3)
    changed, other = (decided(name, pick_n_spec(1)) for name in ("changed", "other"))
    _all_due()
    write = scheduling.write_decisions

    def write_after_a_change(results: Any, **options: Any) -> Any:
        if len(results) > 1:
            saved("changed", pick_n_spec(2))
        return write(results, **options)

    monkeypatch.setattr(scheduling, "write_decisions", write_after_a_change)
    run_due()

    assert len(placed(changed)) == 2
    assert len(placed(other)) == 1


def test_of_balanced_placements_each_sees_what_was_decided_before() -> None:
    for name in ("c0", "c1"):
        joined(name)
    both = [decided(name, pick_n_spec(0), semantics="ocm") for name in ("a", "b")]
    Placement.objects.update(number_of_clusters=1)
    _all_due()

    scheduling.schedule_due(now=NOW)

    assert sorted(placed(both[0]) + placed(both[1])) == ["c0", "c1"]


def test_decisions_on_new_placements_are_written_together() -> None:
    _fleet(4)
    counts = []
    for batch, size in enumerate((2, 4, 12)):
        for number in range(size):
            saved(f"p{batch}-{number}", pick_n_spec(2))
        with CaptureQueriesContext(connection) as captured:
            scheduling.schedule_due(now=NOW)
        tables = ("placements_decision", "placements_binding", "fleetui_event")
        of_decisions = [
            document
            for document in captured
            if any(table in document["sql"] for table in tables)
        ]
        counts.append(len(of_decisions))

    assert Binding.objects.count() == 36
    assert counts[1] == counts[2]


def test_what_is_selected_slowly_is_decided_together(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("a", "b", "c"):
        saved(name, pick_n_spec(0))
    passed, written = [0.0], list[int]()
    refresh, write = scheduling.refresh_resources, scheduling.write_decisions

    def refresh_slowly(placement: Placement, *, now: datetime) -> bool:
        passed[0] += 2
        return refresh(placement, now=now)

    def write_counted(results: Any, **options: Any) -> Any:
        written.append(len(results))
        return write(results, **options)

    monkeypatch.setattr(scheduling, "monotonic", lambda: passed[0])
    monkeypatch.setattr(scheduling, "refresh_resources", refresh_slowly)
    monkeypatch.setattr(scheduling, "write_decisions", write_counted)

    scheduling.schedule_due(now=NOW)

    assert written == [2, 1]  # after 4 s the third is left to a cycle of its own


def test_rows_are_written_once_where_the_fleet_changes_during_the_decisions(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clusters = _fleet(3)
    for name in ("a", "b"):
        decided(name, _gold(None))
    _all_due()
    decide, write, written = scheduling.decide, scheduling.write_decisions, []

    def decide_during_a_change(inputs: Any) -> scheduling.CycleResult:
        change_labels(clusters[:1], put={"tier": "gold"}, by=None, now=NOW)
        return decide(inputs)

    def write_counted(results: Any, **options: Any) -> Any:
        written.append(len(results))
        return write(results, **options)

    monkeypatch.setattr(scheduling, "decide", decide_during_a_change)
    monkeypatch.setattr(scheduling, "write_decisions", write_counted)
    scheduling.schedule_due(now=NOW)

    assert written == [2]
    assert Binding.objects.count() == 2


def test_the_fleet_is_read_again_when_all_rows_are_written() -> None:
    _fleet(4)
    for number in range(3):
        saved(f"p{number}", pick_n_spec(2))
    with CaptureQueriesContext(connection) as captured:
        scheduling.schedule_due(now=NOW)

    statements = [document["sql"] for document in captured]
    written = [
        place
        for place, sql in enumerate(statements)
        if sql.startswith(("INSERT", "UPDATE", "DELETE"))
    ]
    reads = [sql for sql in statements[written[-1] :] if "clusters_fleetstate" in sql]
    assert len(reads) == 1
