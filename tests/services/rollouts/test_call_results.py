"""What answers of clusters lead to: pending calls, codes, drift, contested objects, differences."""

from dataclasses import asdict, replace
from datetime import datetime, timedelta
from itertools import pairwise
from typing import Any
from unittest.mock import create_autospec

import pytest
from django.test import override_settings

from clusters.drivers.base import (
    Applied,
    DiffResult,
    Driver,
    DriverPending,
    DriverRejected,
    DriverUnavailable,
    FieldDiff,
    ObjectDiff,
    ObjectRef,
    ObjectSeen,
    ObjectWarnings,
    Observation,
    PlacementSeen,
    Refusal,
    Removed,
)
from clusters.drivers.readiness import Readiness
from clusters.models import MemberCluster
from placements.engine.rollout.state import Phase
from placements.models import Binding
from placements.services.rollouts import worker
from placements.services.rollouts.call_results import (
    MOST_BYTES,
    CallResult,
    ClusterCall,
    kinds_result,
    to_result,
)
from placements.services.rollouts.worker import warning_words, with_warnings
from tests.rows import NOW, config_map

SETTINGS = ObjectRef("", "ConfigMap", "shop", "settings")
WEB = ObjectRef("apps", "Deployment", "shop", "web")
DRIFT = ObjectDiff(SETTINGS, "v1", 3, (FieldDiff("/data/a", '"2"', '"1"'),))


def binding(phase: Phase = Phase.AVAILABLE, **columns: Any) -> Binding:
    since = {"phase_changed_at": NOW, "applied_version": "v1", "was_applied": True}
    return Binding(pk=1, cluster_name="one", phase=phase, **{**since, **columns})


def result_of(
    row: Binding,
    answer: Any,
    *,
    after: int = 0,
    is_busy: bool = False,
    driver: str = "",
) -> dict[str, Any]:
    """Return the columns that an answer changes so many seconds after the phase began."""
    call = ClusterCall(row, "web", MemberCluster(pk=1, name="one", driver=driver), ())
    result = to_result(
        call, answer, now=NOW + timedelta(seconds=after), is_busy=is_busy
    )
    return result.updates()


def seen(**facts: Any) -> Observation:
    return Observation(
        is_healthy=True, placements=(PlacementSeen("web", "v1", "v1", **facts),)
    )


def test_a_pending_call_keeps_its_phase_and_is_continued_soon_while_it_makes_progress() -> (
    None
):
    row = binding(Phase.APPLYING, was_applied=False)
    changed = result_of(
        row, DriverPending("5 of 20 objects applied; continuing", done=5, total=20)
    )

    assert "phase" not in changed
    assert (changed["objects_done"], changed["was_applied"], changed["failure"]) == (
        5,
        True,
        "",
    )
    assert changed["next_call_at"] == NOW + timedelta(seconds=1)


@pytest.mark.parametrize(("after", "pause"), [(4, 2), (20, 10), (600, 30)])
def test_a_pending_call_without_progress_is_continued_later_and_later(
    after: int, pause: int
) -> None:
    row = binding(Phase.APPLYING, objects_done=5)

    changed = result_of(row, DriverPending("5 of 20", done=5, total=20), after=after)

    assert changed["next_call_at"] == NOW + timedelta(seconds=after + pause)


def test_an_unavailable_cluster_is_called_when_it_says_so_and_the_code_goes_with_the_next_answer() -> (
    None
):
    error = DriverUnavailable("too many requests", code="http-429", retry_after=45)

    changed = result_of(binding(), error)

    assert changed["next_call_at"] == NOW + timedelta(seconds=45)
    assert (changed["failure"], changed["unavailable_code"]) == (
        "unreachable",
        "http-429",
    )
    answered = result_of(binding(unavailable_code="http-429"), seen())
    assert (answered["unavailable_code"], answered["failure"]) == ("", "")


def test_a_missing_object_is_applied_again() -> None:
    changed = result_of(binding(), seen(missing=(WEB,)))

    assert (changed["phase"], changed["next_call_at"]) == (Phase.APPLYING, NOW)
    assert "Deployment shop/web" in changed["message"]


def test_a_message_is_not_repeated_for_each_object_that_is_rejected_for_it() -> None:
    rejected = [*(replace(SETTINGS, name=name) for name in "abcde"), WEB]
    messages = [*["no namespace shop"] * 5, "quota exceeded"]
    refusals = [
        Refusal(ref, "ManifestApplyFailed", text)
        for ref, text in zip(rejected, messages, strict=True)
    ]

    changed = result_of(
        binding(), DriverRejected("6 objects rejected", tuple(refusals))
    )

    assert changed["message"] == (
        "ConfigMap shop/a, ConfigMap shop/b, ConfigMap shop/c and 2 more: no namespace shop; "
        "Deployment shop/web: quota exceeded"
    )


def test_an_interrupted_apply_is_continued() -> None:
    answer = Observation(
        is_healthy=True, placements=(PlacementSeen("web", "v1", "v0"),)
    )

    assert result_of(binding(), answer)["phase"] == Phase.APPLYING


def test_a_drift_keeps_the_time_at_which_it_was_first_seen() -> None:
    (first,) = result_of(binding(), seen(drifted=(DRIFT,)))["drifted_objects"]
    (again,) = result_of(
        binding(drifted_objects=[first]), seen(drifted=(DRIFT,)), after=60
    )["drifted_objects"]

    assert first["fields"] == [["/data/a", '"2"', '"1"']]
    assert (again["since"], again["observed"]) == (
        first["since"],
        (NOW + timedelta(seconds=60)).isoformat(),
    )
    assert result_of(binding(drifted_objects=[first]), seen())["drifted_objects"] == []


def test_a_drift_is_left_where_the_strategy_says_so() -> None:
    row = binding(apply_strategy={"whenToApply": "IfNotDrifted"})

    changed = result_of(row, seen(drifted=(DRIFT,)))

    assert changed["phase"] == Phase.FAILED
    assert [failed_object["code"] for failed_object in changed["failed_objects"]] == [
        "FoundDrifts"
    ]
    assert len(changed["drifted_objects"]) == 1


def observed_times(row: Binding, *, driver: str, hours: float) -> list[datetime]:
    """Turn the clock from one observation that finds nothing new to the next; return their times."""
    now, times = NOW, []
    while now < NOW + timedelta(hours=hours):
        call = ClusterCall(
            row, "web", MemberCluster(pk=7, name="one", driver=driver), ()
        )
        result = to_result(call, seen(), now=now + timedelta(seconds=1), is_busy=False)
        assert result is not None
        now = result.updates()["next_call_at"]
        times.append(now)
    return times


def minutes_between(times: list[datetime]) -> list[float]:
    return [(after - before).total_seconds() / 60 for before, after in pairwise(times)]


def test_at_rest_the_pauses_between_observations_grow_to_fifteen_minutes() -> None:
    times = observed_times(binding(), driver="kubernetes", hours=4)

    early = [time for time in times if time <= NOW + timedelta(minutes=10)]
    assert 4 <= len(early) <= 6
    assert set(minutes_between(early)) == {2}
    pauses = minutes_between(times[len(early) :])
    assert all(1 < pause <= 15 for pause in pauses)
    assert pauses[-10:] == [15] * 10
    assert pauses.index(15) in range(4, 9)


def test_a_change_is_observed_at_the_short_period_again() -> None:
    long_ago: dict[str, Any] = {"phase_changed_at": NOW - timedelta(days=1)}
    at_rest = result_of(binding(**long_ago), seen(), driver="kubernetes")
    ready_again = result_of(
        binding(Phase.APPLIED, **long_ago), seen(), driver="kubernetes"
    )
    busy = result_of(binding(**long_ago), seen(), driver="kubernetes", is_busy=True)
    unready = seen(unready=(ObjectSeen(WEB, Readiness.NOT_YET, "0 of 1 pods"),))
    just_unready = result_of(binding(**long_ago), unready, driver="kubernetes")
    long_unready = result_of(
        binding(Phase.APPLIED, **long_ago), unready, driver="kubernetes"
    )

    assert at_rest["next_call_at"] - NOW > timedelta(minutes=3)
    assert ready_again["next_call_at"] - NOW <= timedelta(minutes=3)
    assert busy["next_call_at"] - NOW == timedelta(seconds=15)
    assert just_unready["next_call_at"] - NOW == timedelta(seconds=1)
    assert long_unready["next_call_at"] - NOW == timedelta(seconds=15)


@pytest.mark.parametrize(
    ("driver", "minutes", "period"),
    [("simulated", 15, 2), ("kubernetes", 5, 5), ("kubernetes", 1, 1)],
)
def test_the_longest_pause_is_a_setting_for_clusters_that_act_on_the_strategy(
    driver: str, minutes: int, period: int
) -> None:
    with override_settings(LONGEST_OBSERVATION=timedelta(minutes=minutes)):
        times = observed_times(binding(), driver=driver, hours=2)

    assert minutes_between(times)[-5:] == [period] * 5
    assert max(minutes_between(times)) <= period


def test_placements_at_rest_on_one_cluster_are_observed_together() -> None:
    ages = [timedelta(minutes=30), timedelta(hours=2), timedelta(days=3)]
    rows = [binding(phase_changed_at=NOW - age) for age in ages]
    last = {observed_times(row, driver="kubernetes", hours=2)[-1] for row in rows}

    assert len(last) == 1


def test_contested_objects_are_repaired_ever_more_rarely() -> None:
    """The clock is turned from one observation, every two minutes or when due, to the next for two hours."""
    row, now, repaired = binding(), NOW, list[datetime]()
    while now < NOW + timedelta(hours=2):
        call = ClusterCall(row, "web", MemberCluster(pk=1, name="one"), ())
        result = to_result(call, seen(drifted=(DRIFT,)), now=now, is_busy=False)
        assert result is not None
        changed = result.updates()
        for name, value in changed.items():
            setattr(row, name, value)
        if changed.get("phase") == Phase.APPLYING:
            repaired.append(now)
            row.phase = Phase.AVAILABLE
            now += timedelta(seconds=10)
        else:
            now = changed["next_call_at"]

    pauses = [(after - before).total_seconds() for before, after in pairwise(repaired)]
    assert pauses[:3] == [10, 10, 30]
    assert pauses == sorted(pauses)
    assert max(pauses) == 900
    assert row.contested_since is not None


def test_a_refusal_keeps_the_differences_for_which_it_was_refused() -> None:
    refusal = Refusal(SETTINGS, "FailedToTakeOver", "differs")

    changed = result_of(
        binding(Phase.APPLYING, was_applied=False),
        DriverRejected("1 refused", (refusal,), diffs=(DRIFT,)),
    )

    assert (changed["phase"], changed["was_applied"]) == (Phase.FAILED, True)
    assert [diffed_object["name"] for diffed_object in changed["diffed_objects"]] == [
        "settings"
    ]


def test_a_complete_report_of_differences_counts_as_available_and_an_incomplete_one_does_not() -> (
    None
):
    row = binding(Phase.APPLYING, apply_strategy={"type": "ReportDiff"})
    failure = Refusal(WEB, "FailedToReportDiff", "no")

    complete = result_of(row, DiffResult("v1", (DRIFT,)))
    incomplete = result_of(row, DiffResult("v1", (), (failure,)))

    assert (complete["phase"], len(complete["diffed_objects"])) == (Phase.AVAILABLE, 1)
    assert incomplete["phase"] == Phase.APPLIED
    assert [
        failed_object["code"] for failed_object in incomplete["failed_objects"]
    ] == ["FailedToReportDiff"]


def test_differences_are_bounded() -> None:
    large = (FieldDiff("/data/a", "x" * 1_000, "y" * 1_000),) * 20
    many = tuple(
        ObjectDiff(ObjectRef("", "ConfigMap", "shop", f"c{n:03}"), "v1", 1, large)
        for n in range(105)
    )

    changed = result_of(
        binding(apply_strategy={"type": "ReportDiff"}), DiffResult("v1", many)
    )

    rows = changed["diffed_objects"]
    assert [row["name"] for row in rows] == [f"c{number:03}" for number in range(100)]
    assert rows[0]["fields"]
    assert (rows[-1]["fields"], rows[-1]["isTruncated"]) == ([], True)
    assert sum(len(str(row)) for row in rows) < MOST_BYTES + 40_000


def test_what_a_cluster_answers_to_an_apply_is_an_observation() -> None:
    answer = Applied("v1", changed=True, placement=PlacementSeen("web", "v1", "v1"))

    assert result_of(binding(Phase.APPLYING), answer)["phase"] == Phase.AVAILABLE
    assert (
        result_of(binding(Phase.APPLYING), Applied("v1", changed=True))["phase"]
        == Phase.APPLIED
    )


def test_a_cluster_is_asked_for_a_missing_kind_less_and_less_often_until_it_has_it() -> (
    None
):
    refusal = Refusal(
        ObjectRef("example.com", "Tab", "shop", "a"), "KindNotServed", "no Tab"
    )
    failed = result_of(binding(Phase.APPLYING), DriverRejected("refused", (refusal,)))
    assert failed["next_call_at"] - NOW == timedelta(seconds=15)

    fault = {
        "group": "example.com",
        "version": "v1",
        "kind": "Tab",
        "code": "KindNotServed",
    }
    other = {
        "group": "",
        "version": "v1",
        "kind": "Secret",
        "code": "ManifestApplyFailed",
    }
    row = binding(Phase.FAILED, failed_objects=[fault, other], failure="refused")
    call = ClusterCall(row, "web", MemberCluster(pk=1, name="one"), ())
    assert call.missing_kinds == {("example.com/v1", "Tab")}
    assert not call.is_observation
    silent = DriverUnavailable("no answer", code="timeout")
    for after, pause, answer in ((0, 15, False), (300, 30, silent), (3600, 60, False)):
        now = NOW + timedelta(seconds=after)
        columns = kinds_result(call, answer, now=now).updates()
        assert columns == {
            "next_call_at": now + timedelta(seconds=pause)
        }  # what failed stays
    assert kinds_result(call, True, now=NOW).updates() == {
        "retry_at": NOW,
        "next_call_at": None,
    }
    assert not ClusterCall(
        binding(Phase.APPLYING, failed_objects=[fault]), "web", call.cluster, ()
    ).missing_kinds


def test_a_report_that_lacks_a_kind_asks_for_it_and_compares_at_its_own_pace() -> None:
    refusal = Refusal(
        ObjectRef("example.com", "Tab", "shop", "a"), "KindNotServed", "no Tab"
    )
    strategy = {"type": "ReportDiff"}
    report = result_of(
        binding(Phase.APPLYING, apply_strategy=strategy),
        DiffResult("v1", (), (refusal,)),
        after=3600,
    )
    assert (report["phase"], report["observed_at"]) == (
        Phase.APPLIED,
        NOW + timedelta(hours=1),
    )

    fault = {
        "group": "example.com",
        "version": "v1",
        "kind": "Tab",
        "code": "KindNotServed",
    }
    row = binding(
        Phase.APPLIED,
        apply_strategy=strategy,
        failed_objects=[fault],
        observed_at=NOW + timedelta(hours=1),
    )
    later = result_of(row, DiffResult("v1", (), (refusal,)), after=3700)
    assert later["next_call_at"] == NOW + timedelta(seconds=3760)
    call = ClusterCall(row, "web", MemberCluster(pk=1, name="one"), ())
    assert call.missing_kinds == {("example.com/v1", "Tab")}
    assert not call.is_comparison_due(NOW + timedelta(hours=1, minutes=14, seconds=59))
    assert call.is_comparison_due(NOW + timedelta(hours=1, minutes=15))
    looked = kinds_result(call, False, now=NOW + timedelta(seconds=3700)).updates()
    assert looked == {
        "next_call_at": NOW + timedelta(seconds=3760)
    }  # what was compared stays


def test_a_report_is_made_again_as_soon_as_a_kind_that_it_lacked_is_served(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fault = {
        "group": "example.com",
        "version": "v1",
        "kind": "Tab",
        "code": "KindNotServed",
    }
    row = binding(
        Phase.APPLIED,
        apply_strategy={"type": "ReportDiff"},
        failed_objects=[fault],
        phase_changed_at=NOW - timedelta(hours=1),
        observed_at=NOW,
        call_lease_expires_at=NOW + timedelta(hours=1),
    )
    call = ClusterCall(row, "web", MemberCluster(pk=1, name="one"), ())
    driver = create_autospec(Driver, instance=True)
    driver.diff.return_value = DiffResult("v1")
    monkeypatch.setattr(worker, "driver_for", lambda *_args, **_options: driver)

    def answer(served: bool, *, minutes: int) -> Any:
        driver.serves.return_value = served
        return worker.call_cluster((call,), lambda: NOW + timedelta(minutes=minutes))

    assert answer(False, minutes=1) is False
    assert not driver.diff.called
    assert answer(True, minutes=1) == DiffResult("v1")
    driver.serves.reset_mock()
    assert answer(False, minutes=15) == DiffResult("v1")
    assert not driver.serves.called


def test_a_finished_removal_keeps_the_warnings_of_all_its_calls() -> None:
    stored = {**asdict(SETTINGS), "messages": ["old"]}
    call = ClusterCall(
        binding(Phase.REMOVING, warnings=[stored]),
        "web",
        MemberCluster(pk=1, name="one"),
        (),
    )
    answer = Removed(existed=True, warnings=(ObjectWarnings(WEB, ("older",)),))

    result = with_warnings(
        call, answer, to_result(call, answer, now=NOW, is_busy=False)
    )

    assert result.is_removed
    rows = result.updates()["warnings"]
    assert [(row["name"], row["messages"]) for row in rows] == [
        ("settings", ["old"]),
        ("web", ["older"]),
    ]
    assert warning_words(rows) == (
        "Warnings of the API server: ConfigMap shop/settings: old; Deployment shop/web: older"
    )


def test_the_warnings_of_an_apply_are_kept_until_the_object_is_written_without_any() -> (
    None
):
    manifests = tuple(config_map(name) for name in ("settings", "other"))
    other = ObjectRef("", "ConfigMap", "shop", "other")
    gone = ObjectRef("", "ConfigMap", "shop", "gone")

    def kept(row: Binding, answer: Any) -> list[tuple[str, list[str]]] | None:
        call = ClusterCall(row, "web", MemberCluster(pk=1, name="one"), manifests)
        changed = with_warnings(call, answer, CallResult(())).updates()
        rows = changed.get("warnings")
        return (
            None if rows is None else [(one["name"], one["messages"]) for one in rows]
        )

    first = (
        ObjectWarnings(SETTINGS, ("old",)),
        ObjectWarnings(other),
        ObjectWarnings(gone, ("bye",)),
    )
    row = binding(Phase.APPLYING)
    assert kept(row, Applied("v1", changed=True, warnings=first)) == [
        ("gone", ["bye"]),
        ("settings", ["old"]),
    ]
    stored = {**asdict(SETTINGS), "messages": ["old"]}
    row = binding(
        Phase.APPLYING, warnings=[stored, {**asdict(gone), "messages": ["bye"]}]
    )
    assert kept(row, Applied("v1", changed=False)) == [
        ("settings", ["old"])
    ]  # written by an earlier call
    row = binding(Phase.APPLYING, warnings=[stored])
    assert kept(row, Applied("v1", changed=False)) is None
    assert (
        kept(row, Applied("v1", changed=True, warnings=(ObjectWarnings(SETTINGS),)))
        == []
    )
    assert kept(row, seen()) is None
    rejected = DriverRejected("refused")
    rejected.warnings = tuple(
        ObjectWarnings(ObjectRef("", "ConfigMap", "shop", f"c{number:03}"), ("old",))
        for number in range(150)
    )
    assert len(kept(binding(Phase.APPLYING), rejected) or ()) == 100
