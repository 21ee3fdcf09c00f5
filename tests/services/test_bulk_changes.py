"""Changes of many clusters: each has a result, one failure does not stop the others, events share an id."""

import pytest
from django.contrib.auth.models import User

from clusters.models import MemberCluster, Membership
from fleetui.apimachinery.errors import InvalidManifest
from fleetui.models import Event
from fleetui.permissions import NotOfTeamError
from placements.models import BulkChange
from placements.services import bulk_changes
from placements.services.bulk_changes import (
    MOST_AT_ONCE,
    BulkAction,
    BulkOutcome,
    apply_due,
    preview_change,
    read_options,
    results_of,
    selected_clusters,
    start_change,
)
from tests.rows import NOW, all_joined, joined, person

pytestmark = pytest.mark.django_db


def _outcomes(row: BulkChange) -> dict[str, str]:
    return {one.name: one.outcome for one in results_of(row)}


def test_preview_and_results_agree_and_events_share_the_request_id(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        bulk_changes, "IN_REQUEST", 60.0
    )  # three drains take longer than 0.2 s on a busy machine
    ana = person("ana", "operator")
    for name, env in (("a", "dev"), ("b", "prod"), ("c", "")):
        joined(name, **({"env": env} if env else {}))
    for action, given, changed in (
        (BulkAction.LABELS, {"labels": {"env": "prod"}}, {"a", "c"}),
        (BulkAction.TAINTS, {"add": [{"key": "gpu", "effect": "NoSchedule"}]}, {"a", "b", "c"}),
        (BulkAction.CORDON, {}, {"a", "b", "c"}),
        (BulkAction.CORDON, {}, set()),
        (BulkAction.UNCORDON, {}, {"a", "b", "c"}),
        (BulkAction.LABELS, {"labels": {"env": None}}, {"a", "b", "c"}),
        (BulkAction.DRAIN, {}, {"a", "b", "c"}),
        (BulkAction.LEAVE, {}, {"a", "b", "c"}),
    ):
        options = read_options(action, given)
        preview = preview_change(action, options, ["a", "b", "c"])
        row = start_change(action, options, ["a", "b", "c"], by=ana, now=NOW)

        assert {one.name for one in preview.rows if one.change} == changed
        assert row.ended_at is not None
        assert {name for name, did in _outcomes(row).items() if did == BulkOutcome.DONE} == changed
        events = Event.objects.filter(request_id=row.request_id, kind="cluster", verb__in=_CLUSTER_VERBS)
        assert sorted(events.values_list("name", flat=True)) == sorted(changed)
        assert set(events.values_list("actor_name", flat=True)) <= {"ana"}
    assert set(MemberCluster.objects.values_list("membership", flat=True)) == {Membership.LEAVING}
    assert set(Event.objects.exclude(verb__in=_CLUSTER_VERBS).values_list("actor", flat=True)) <= {
        None,
        ana.pk,
    }


_CLUSTER_VERBS = ("changed", "leaving")


def test_a_replaced_label_is_a_conflict() -> None:
    joined("a", env="dev")
    [row] = preview_change(BulkAction.LABELS, {"labels": {"env": "prod"}}, ["a"]).rows
    assert (row.change, row.conflict) == ("env: dev → prod", "Replaces env=dev")


def test_one_that_fails_does_not_stop_the_others() -> None:
    all_joined("a", "b")
    names = ["a", "gone", "b"]
    row = start_change(BulkAction.CORDON, {}, names, by=None, now=NOW)
    assert _outcomes(row) == {"a": "done", "gone": "failed", "b": "done"}
    assert "not found" in results_of(row)[1].message


@pytest.mark.nightly
def test_a_worker_continues_what_is_larger_than_a_batch() -> None:
    names = [f"c{number:03}" for number in range(MOST_AT_ONCE + 1)]
    all_joined(*names)
    row = start_change(BulkAction.CORDON, {}, names, by=None, now=NOW)
    assert (row.results, row.ended_at) == ([], None)
    counts = []
    while apply_due(now=NOW):
        counts.append(len(BulkChange.objects.get().results))
    assert counts == [MOST_AT_ONCE, MOST_AT_ONCE + 1]
    assert set(_outcomes(BulkChange.objects.get()).values()) == {"done"}


@pytest.mark.parametrize(
    ("action", "given", "path"),
    [
        (BulkAction.LABELS, {}, "labels"),
        (BulkAction.LABELS, {"labels": {"no key": "x"}}, "labels"),
        (BulkAction.LABELS, {"add": [{"key": "a"}]}, "add"),
        (BulkAction.TAINTS, {"add": [{"key": "gpu", "effect": "Never"}]}, "add[0].effect"),
        (BulkAction.TAINTS, {"remove": [{"key": "", "effect": "NoSchedule"}]}, "remove[0].key"),
        (BulkAction.CORDON, {"labels": {"a": "b"}}, "labels"),
    ],
)
def test_refuses_options_that_a_manifest_could_not_have(
    action: BulkAction, given: dict[str, object], path: str
) -> None:
    with pytest.raises(InvalidManifest) as refused:
        read_options(action, given)
    assert refused.value.errors[0].path.startswith(path)


def test_selects_known_clusters_only_and_changes_nothing_without_the_role() -> None:
    joined("a")
    for names in ([], ["missing"]):
        with pytest.raises(InvalidManifest):
            selected_clusters(names)
    viewer: User = person("vic", "viewer")
    with pytest.raises(NotOfTeamError):
        start_change(BulkAction.CORDON, {}, ["a"], by=viewer, now=NOW)
    assert not BulkChange.objects.exists()
