"""Assertions of placements: each predicate, the checks after changes, and saves that are refused."""

import json
import random
from dataclasses import replace
from datetime import timedelta
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError

from clusters.drivers.base import Observation
from clusters.operations.edit import change_labels
from clusters.operations.heartbeat import report
from fleetui.apimachinery.errors import InvalidManifest
from fleetui.apimachinery.model import Semantics
from fleetui.concurrency import RevisionConflict
from fleetui.models import Event
from placements.engine.checks.predicates import (
    AssertionFacts,
    AssertionState,
    evaluate_assertions,
)
from placements.engine.scheduling.scheduler import schedule
from placements.manifests.assertions import Assertion, assertions_in, assertions_problem
from placements.manifests.policy import PlacementType
from placements.models import AssertionCheck, Placement
from placements.services.assertions import (
    at_rest,
    check_due,
    is_due,
    save_checks_file,
    stored_file,
)
from placements.services.checks import current_report
from placements.services.fleet_events import enqueue_affected_placements
from placements.services.placements import save_placement
from tests.builders import binding, cluster, cycle, fleet, pick_n
from tests.commands import call_command
from tests.load.problems import large_world
from tests.rows import (
    NOW,
    assertion_entry,
    checks_file,
    joined,
    member_document,
    pick_n_spec,
    placement_document,
    run_due,
    save_entries,
)

LABELS = {
    "a": {"region": "east", "env": "prod"},
    "b": {"region": "east"},
    "c": {"region": "west"},
}
KNOWN = AssertionFacts(
    {"web": {"a", "b"}, "none": None}, {"region": True, "cluster": False}, churn=4
)
CASES: list[tuple[dict[str, Any], str, tuple[str, ...]]] = [
    ({"never": {"env": "canary"}}, "holds", ()),
    ({"never": {"env": "prod", "region": "west"}}, "holds", ()),
    ({"never": {"env": "prod"}}, "broken", ("a",)),
    ({"spread": {"region": {"atLeast": 1}}}, "holds", ()),
    ({"spread": {"region": {"atLeast": 2}}}, "broken", ("region: 1 of 2",)),
    ({"together": "web"}, "holds", ()),
    ({"apart": "web"}, "broken", ("a", "b")),
    ({"apart": "none"}, "unknown", ()),
    ({"survives": "region"}, "holds", ()),
    ({"survives": ["region", "cluster"]}, "broken", ("cluster",)),
    ({"survives": "zone"}, "unknown", ()),
    ({"maxShare": {"region": "100%"}}, "holds", ()),
    ({"maxShare": {"region": "99%"}}, "broken", ("region=east: 2 of 2",)),
    ({"minFree": 1}, "holds", ()),
    ({"minFree": 2}, "broken", ("3 of 4 clusters are possible",)),
    ({"churn": {"perWeek": 4}}, "holds", ()),
    ({"churn": {"perWeek": 3}}, "broken", ("4 changes in 7 days",)),
]


def states(
    listed: list[dict[str, Any]], *placed: str
) -> list[tuple[str, tuple[str, ...]]]:
    clusters = fleet(*(cluster(name, labels) for name, labels in LABELS.items()))
    policy = pick_n(len(placed)) if placed else pick_n(1)
    decision = at_rest(cycle(clusters, policy, *map(binding, placed)))
    results = evaluate_assertions(assertions_in(listed), decision, KNOWN)
    return [(str(result.state), result.evidence) for result in results]


def test_every_predicate_holds_and_breaks() -> None:
    results = states([document for document, _, _ in CASES], "a", "b")
    for (assertion, state, evidence), result in zip(CASES, results, strict=True):
        assert result == (state, evidence), assertion


def test_with_nothing_placed_only_what_needs_clusters_breaks() -> None:
    listed: list[dict[str, Any]] = [
        {"never": {"env": "prod"}},
        {"apart": "web"},
        {"maxShare": {"region": "1%"}},
        {"spread": {"region": {"atLeast": 1}}},
        {"survives": "region"},
    ]
    assert [state for state, _ in states(listed)] == [
        "holds",
        "holds",
        "holds",
        "broken",
        "broken",
    ]


def test_a_cluster_that_is_picked_again_counts_once() -> None:
    clusters = fleet(*(cluster(name, labels) for name, labels in LABELS.items()))
    decision = schedule(cycle(clusters, pick_n(3), binding("a", obsolete=True)))
    assert "a" in decision.picked_names
    items = assertions_in([{"maxShare": {"region": "67%"}}, {"never": {"env": "prod"}}])
    assert [
        assertion.evidence for assertion in evaluate_assertions(items, decision, KNOWN)
    ] == [
        (),
        ("a",),
    ]


@pytest.mark.nightly
def test_free_clusters_are_those_that_a_larger_number_finds() -> None:
    states = set()
    _, cycles = large_world(random.Random(5), 60, 60)
    for one in cycles:
        for semantics in Semantics:
            decision = schedule(replace(one, semantics=semantics))
            if decision.cycle.policy.placement_type is not PlacementType.PICK_N:
                continue
            for more in (1, 2):
                number = (one.policy.number_of_clusters or 0) + more
                policy = one.policy.model_copy(update={"number_of_clusters": number})
                expected = schedule(replace(decision.cycle, policy=policy))
                [result] = evaluate_assertions(
                    [Assertion("minFree", more)], decision, KNOWN
                )
                assert (result.state is AssertionState.HOLDS) is expected.is_fulfilled
                states.add((semantics, result.state))
    assert len(states) == 2 * len(Semantics)


@pytest.mark.parametrize(
    ("value", "path"),
    [
        ("{", ()),
        (7, ()),
        ([{"never": {}}], (0, "never")),
        ([{"always": 1}], (0, "always")),
        ({"assert": [{"maxShare": {"a": "101%"}}]}, ("assert", 0, "maxShare")),
        ({"assert": [], "onBreak": "explode"}, ("onBreak",)),
        ([{"minFree": 1}] * 33, ()),
    ],
)
def test_invalid_assertions_have_a_path(value: Any, path: tuple[Any, ...]) -> None:
    problem = assertions_problem(value if isinstance(value, str) else json.dumps(value))
    assert problem is not None
    assert problem.keys == path


def _save(name: str, listed: Any, number: int = 1) -> Any:
    document = placement_document(
        name, pick_n_spec(number), assertions=json.dumps(listed)
    )
    return save_placement(document, by=None, now=NOW)


@pytest.mark.nightly
@pytest.mark.django_db
def test_a_change_of_the_fleet_raises_one_event_for_a_broken_assertion() -> None:
    joined("a", env="prod")
    _save("web", [{"never": {"env": "canary"}}])
    run_due()
    assert check_due(now=NOW) == 1
    assert not is_due(now=NOW)
    for labels in (
        {"env": "canary"},
        *({"env": "canary", "n": str(at)} for at in range(9)),
    ):
        change_labels(["a"], put=labels, replaces=True, by=None, now=NOW)
        run_due()
        assert is_due(now=NOW)
        check_due(now=NOW)
    check = AssertionCheck.objects.get()
    assert (check.broken, check.results[0]["evidence"]) == (1, ["a"])
    assert [
        event.verb for event in Event.objects.filter(verb__startswith="assertion")
    ] == ["assertion broken"]
    change_labels(["a"], put={"env": "prod"}, replaces=True, by=None, now=NOW)
    check_due(now=NOW)
    assert Event.objects.filter(verb="assertion holds again").count() == 1


@pytest.mark.django_db
def test_a_decision_of_another_placement_is_a_reason_to_check_again() -> None:
    joined("a")
    _save("web", [{"apart": "shop"}])
    run_due()
    check_due(now=NOW)
    assert AssertionCheck.objects.get().unknown == 1
    save_placement(placement_document("shop", pick_n_spec(1)), by=None, now=NOW)
    run_due()
    assert check_due(now=NOW) == 1
    assert AssertionCheck.objects.get().broken == 1


@pytest.mark.django_db
def test_changes_of_clusters_stop_to_count_after_a_week() -> None:
    joined("a")
    _save("web", [{"churn": {"perWeek": 0}}])
    run_due()
    check_due(now=NOW)
    week = NOW + timedelta(days=7, seconds=1)
    assert (AssertionCheck.objects.get().broken, is_due(now=NOW), is_due(now=week)) == (
        1,
        False,
        True,
    )
    assert check_due(now=week) == 1
    assert (AssertionCheck.objects.get().broken, is_due(now=week)) == (0, False)


@pytest.mark.django_db
def test_a_property_that_the_policy_reads_is_a_reason_to_check_again() -> None:
    for name in ("a", "b"):
        joined(name)
        report(
            name,
            Observation(is_healthy=True, properties={"nodes": "3"}),
            by=None,
            now=NOW,
        )
    large = {"matchExpressions": [{"name": "nodes", "operator": "Ge", "values": ["3"]}]}
    affinity = {
        "requiredDuringSchedulingIgnoredDuringExecution": {
            "clusterSelectorTerms": [{"propertySelector": large}]
        }
    }
    wanted = pick_n_spec(1, affinity={"clusterAffinity": affinity})
    save_placement(
        placement_document("web", wanted, assertions=json.dumps([{"minFree": 1}])),
        by=None,
        now=NOW,
    )
    enqueue_affected_placements()
    run_due()
    check_due(now=NOW)
    assert AssertionCheck.objects.get().broken == 0
    report(
        "a", Observation(is_healthy=True, properties={"nodes": "1"}), by=None, now=NOW
    )
    enqueue_affected_placements()
    assert (run_due(), check_due(now=NOW)) == (0, 1)
    assert AssertionCheck.objects.get().broken == 1


@pytest.mark.django_db
def test_an_entry_asserts_of_the_placements_that_it_selects_or_names_or_of_all() -> (
    None
):
    joined("a", env="prod")
    for name, tier in (
        ("web", "gold"),
        ("shop", "gold"),
        ("docs", "lab"),
        ("wiki", "lab"),
    ):
        document = placement_document(name, pick_n_spec(1))
        document["metadata"]["labels"] = {"tier": tier}
        save_placement(document, by=None, now=NOW)
    run_due()
    never = {"never": {"env": "prod"}}
    gold = {"selector": {"matchLabels": {"tier": "gold"}}}
    save_entries(assertion_entry("gold", never, placements=["docs"], **gold))
    assert check_due(now=NOW) == 3
    assert not is_due(now=NOW)
    broken = {("web", 1), ("shop", 1), ("docs", 1)}
    assert (
        set(AssertionCheck.objects.values_list("placement__name", "broken")) == broken
    )
    found = {
        (name, finding.rule, finding.severity)
        for name, finding in current_report().findings_of("", "P01")
    }
    assert found == {(name, "P01", "warning") for name, _ in broken}
    save_entries(assertion_entry("gold", {"minFree": 0}, **gold))
    assert check_due(now=NOW) == 2
    assert not is_due(now=NOW)
    save_entries(assertion_entry("every", {"minFree": 0}))
    assert check_due(now=NOW) == 4
    save_entries()
    assert not is_due(now=NOW)
    assert not current_report().findings_of("", "P01")


@pytest.mark.django_db
def test_a_file_is_saved_once_with_its_errors_at_their_lines() -> None:
    text = checks_file(assertion_entry("gold", {"minFree": 0}))
    first = save_checks_file(text, by=None, now=NOW)
    again = save_checks_file(text, by=None, now=NOW)
    assert (first.revision, again.revision, stored_file().text) == (1, 1, text)
    with pytest.raises(InvalidManifest) as refused:
        save_checks_file(
            "assertions:\n- name: gold\n  assert: [{always: 1}]\n", by=None, now=NOW
        )
    assert [(error.path, error.line) for error in refused.value.errors] == [
        ("assertions[0].assert[0].always", 3)
    ]
    with pytest.raises(RevisionConflict):
        save_checks_file("", by=None, now=NOW, expected=7)
    [event] = Event.objects.filter(kind="checks file")
    assert (event.verb, event.before, event.after) == (
        "changed",
        {"text": ""},
        {"text": text},
    )


def _command(*arguments: str) -> tuple[str, int]:
    out = StringIO()
    try:
        call_command("checks", *arguments, stdout=out)
    except CommandError as error:
        return out.getvalue() or str(error), error.returncode
    return out.getvalue(), 0


@pytest.mark.django_db
def test_the_command_checks_the_assertions_of_the_hub_or_of_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    joined("a", env="prod")
    _save("web", {"assert": [{"never": {"env": "prod"}}], "onBreak": "warn"})
    run_due()
    check_due(now=NOW)
    assert 'P01  web: Assertion broken: never: {"env": "prod"} (a)' in _command()[0]
    assert _command("--fail-on", "warning")[1] == 1

    monkeypatch.chdir(tmp_path)
    items = [
        placement_document(
            "shop", pick_n_spec(1), assertions=json.dumps([{"apart": "elsewhere"}])
        ),
        placement_document("docs", pick_n_spec(1)),
        member_document("b", {"env": "test"}),
    ]
    path = tmp_path / "all.json"
    path.write_text(json.dumps({"kind": "List", "apiVersion": "v1", "items": items}))
    entry = assertion_entry(
        "gold", {"never": {"env": "test"}}, placements=["docs"], onBreak="refuse"
    )
    (tmp_path / ".fleetui.yaml").write_text(checks_file(entry))

    text, status = _command("-f", str(path), "--fail-on", "error")

    assert status == 1
    assert (
        'error    P01  docs: Assertion of gold in .fleetui.yaml broken: never: {"env": "test"} (b)'
        in text
    )
    assert "info     P02  shop: Assertion cannot be checked: apart: elsewhere" in text
    (tmp_path / ".fleetui.yaml").write_text("assertions: 7\n")
    assert _command("-f", str(path))[1] == 2


@pytest.mark.django_db
def test_a_save_warns_or_is_refused() -> None:
    joined("a", env="canary")
    listed = [{"never": {"env": "canary"}}]
    [warning] = [
        one for one in _save("web", listed).warnings if one.code == "assertion-broken"
    ]
    assert warning.path == 'metadata.annotations["fleetui.io/assertions"]'
    with pytest.raises(InvalidManifest) as refused:
        _save("shop", {"assert": listed, "onBreak": "refuse"})
    assert [error.code for error in refused.value.errors] == ["assertion-broken"]
    assert not Placement.objects.filter(name="shop").exists()
