"""Actions on many clusters: all or none, as previewed, and undone as far as nobody changed them since."""

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.test.utils import CaptureQueriesContext

from clusters.models import ClusterTaint, MemberCluster, Membership
from clusters.operations.edit import (
    UnknownClusterError,
    change_labels,
    change_taints,
    forget,
    leave,
)
from fleetui.apimachinery.errors import InvalidManifest
from fleetui.models import Event
from fleetui.permissions import NotOfTeamError
from placements.models import Drain, DrainStep
from placements.services.bulk_changes import (
    BULK_ACTIONS,
    BulkResult,
    change_clusters,
    preview_change,
    read_options,
    selected_clusters,
)
from placements.services.disruption.drains import Pace, drain
from placements.services.rollouts.operations import ActionNotAllowed
from placements.services.undo import LONGEST, NothingToUndo, Undone, undo_change
from tests.rows import NOW, all_joined, joined, person
from tests.services.rollouts.world import World

pytestmark = pytest.mark.django_db
GPU = {"key": "gpu", "effect": "NoSchedule"}


@pytest.fixture
def ana() -> User:
    return person("ana", "operator")


def change(name: str, by: User | None, *clusters: str, **given: Any) -> BulkResult:
    action = BULK_ACTIONS[name]
    return change_clusters(
        action, read_options(action, given), clusters, by=by, now=NOW
    )


def undo(result: BulkResult, by: User, *, after: timedelta = timedelta()) -> Undone:
    return undo_change(result.request_id, by=by, now=NOW + after)


def documents() -> dict[str, Any]:
    """Return labels and taints of all clusters, as written and as columns."""
    taints = ClusterTaint.objects.order_by("cluster__name", "key").values_list(
        "cluster__name", "key", "value"
    )
    return {
        "columns": list(taints),
        **{
            row.name: (row.document["metadata"], row.document["spec"])
            for row in MemberCluster.objects.all()
        },
    }


STEPS: tuple[tuple[str, Mapping[str, Any], set[str]], ...] = (
    ("labels", {"labels": {"env": "prod"}}, {"a", "c"}),
    ("taints", {"add": [GPU]}, {"a", "b", "c"}),
    ("taints", {"remove": [GPU], "add": [{**GPU, "value": "x"}]}, {"a", "b", "c"}),
    ("cordon", {}, {"a", "b", "c"}),
    ("cordon", {}, set()),
    ("uncordon", {}, {"a", "b", "c"}),
    ("labels", {"labels": {"env": None}}, {"a", "b", "c"}),
    ("drain", {}, {"a", "b", "c"}),
    ("drain", {}, set()),
    ("cancel-drain", {}, {"a", "b", "c"}),
    ("leave", {}, {"a", "b", "c"}),
)


def test_preview_result_and_events_agree(ana: User) -> None:
    for name, env in (("a", "dev"), ("b", "prod"), ("c", "")):
        joined(name, **({"env": env} if env else {}))
    assert {name for name, _, _ in STEPS} == set(BULK_ACTIONS)
    for name, given, changed in STEPS:
        action = BULK_ACTIONS[name]
        preview = preview_change(
            action, read_options(action, given), ["a", "b", "c"], now=NOW
        )
        result = change(name, ana, "a", "b", "c", **given)

        assert (set(result.changed), preview.rows) == (changed, result.rows)
        events = Event.objects.filter(request_id=result.request_id, kind="cluster")
        assert set(events.values_list("name", flat=True)) == changed
        assert set(events.values_list("actor_name", flat=True)) <= {"ana"}
    assert set(MemberCluster.objects.values_list("membership", flat=True)) == {
        Membership.LEAVING
    }


def test_a_replaced_label_is_a_conflict() -> None:
    joined("a", env="dev")
    action = BULK_ACTIONS["labels"]
    [row] = preview_change(
        action, {"put": {"env": "prod"}, "remove": []}, ["a"], now=NOW
    ).rows
    assert (row.change, row.conflict) == ("env: dev → prod", "Replaces env=dev")


def test_one_that_is_refused_leaves_all_as_they_are_and_is_named() -> None:
    all_joined("a", "b", "c")
    leave(["b"], by=None, now=NOW)
    drain(["c"], by=None, now=NOW)
    before = documents()

    with pytest.raises(
        ActionNotAllowed, match=r"^b is leaving the fleet; nothing to drain$"
    ):
        change("drain", None, "a", "b")
    with pytest.raises(
        ActionNotAllowed, match=r"^a is not being drained; nothing to cancel; b is not"
    ):
        change("cancel-drain", None, "a", "b", "c")
    with pytest.raises(UnknownClusterError, match="'gone'"):
        change("cordon", None, "a", "gone", "c")

    assert (documents(), Drain.objects.filter(state=Drain.State.RUNNING).count()) == (
        before,
        1,
    )
    rows = preview_change(BULK_ACTIONS["drain"], {}, ["a", "b"], now=NOW).rows
    refusals = {row.name: row.refusal for row in rows}
    assert refusals == {"a": "", "b": "b is leaving the fleet; nothing to drain"}


def test_an_error_in_one_of_many_manifests_names_the_cluster() -> None:
    all_joined("a", "b")
    row = MemberCluster.objects.get(name="b")
    row.document["spec"]["unknown"] = 1  # of a former release
    row.save()
    with pytest.raises(InvalidManifest, match="b: "):
        change("cordon", None, "a", "b")
    assert not ClusterTaint.objects.exists()


@pytest.mark.parametrize(
    ("name", "given", "path"),
    [
        ("labels", {}, "labels"),
        ("labels", {"labels": {"no key": "x"}}, "labels"),
        ("labels", {"labels": {"no key": None}}, "labels"),
        ("labels", {"add": [{"key": "a"}]}, "add"),
        ("taints", {"add": [{"key": "gpu", "effect": "Never"}]}, "add[0].effect"),
        ("taints", {"remove": [{"key": "", "effect": "NoSchedule"}]}, "remove[0].key"),
        ("cordon", {"labels": {"a": "b"}}, "labels"),
    ],
)
def test_refuses_options_that_a_manifest_could_not_have(
    name: str, given: dict[str, object], path: str
) -> None:
    with pytest.raises(InvalidManifest) as refused:
        read_options(BULK_ACTIONS[name], given)
    assert refused.value.errors[0].path.startswith(path)


def test_selects_known_clusters_only_and_changes_nothing_without_the_role(
    ana: User,
) -> None:
    joined("a")
    for names in ([], ["missing"]):
        with pytest.raises(InvalidManifest):
            selected_clusters(names)
    viewer = person("vic", "viewer")
    before = documents()
    with pytest.raises(NotOfTeamError):
        change("cordon", viewer, "a")
    done = change("cordon", ana, "a")
    with pytest.raises(NotOfTeamError):
        undo(done, viewer)
    undo(done, ana)
    assert documents() == before


UNDONE = [
    (name, given)
    for name, given, changed in STEPS
    if changed and name not in ("leave", "cancel-drain")
]


@pytest.mark.parametrize(("name", "given"), UNDONE)
def test_undo_restores_exactly_what_was_changed(
    name: str, given: Mapping[str, Any], ana: User
) -> None:
    joined("a", env="dev", tier="1")
    joined("b", env="prod")
    joined("c")
    change_taints(
        ["a", "b"], add=[GPU, {"key": "z", "effect": "NoSchedule"}], by=None, now=NOW
    )
    change("cordon", None, *(["a", "c"] if name == "uncordon" else ["b"]))
    before = documents()

    result = change(name, ana, "a", "b", "c", **given)
    assert documents() != before
    undone = undo(result, ana)

    assert (documents(), undone.reasons) == (before, {})
    assert set(undone.clusters) == set(result.changed)
    assert not Drain.objects.filter(state=Drain.State.RUNNING).exists()


def test_undo_leaves_what_somebody_changed_since_and_says_so(ana: User) -> None:
    for name in ("a", "b", "c", "d"):
        joined(name, env="dev")
    result = change(
        "labels", ana, "a", "b", "c", "d", labels={"env": "prod", "tier": "1"}
    )
    change_labels(["a"], put={"other": "x"}, by=None, now=NOW)
    change_labels(["b"], put={"tier": "2"}, by=None, now=NOW)
    forget([MemberCluster.objects.get(name="c")], verb="left", by=None, now=NOW)

    undone = undo(result, ana)

    labels = {
        row.name: row.document["metadata"]["labels"]
        for row in MemberCluster.objects.all()
    }
    assert labels == {
        "a": {"env": "dev", "other": "x"},
        "b": {"env": "prod", "tier": "2"},
        "d": {"env": "dev"},
    }
    assert undone.clusters == ("a", "d")
    assert undone.message == (
        "Change of 2 clusters undone."
        " Not restored: c (has left the fleet), b (labels or taints changed since)."
    )


def test_undo_of_a_drain_cancels_it_and_says_what_it_had_evicted(ana: User) -> None:
    all_joined("a", "b", "c")
    result = change("drain", ana, "a", "b", "c")
    evicted = Drain.objects.get(cluster_name="b")
    evicted.steps.create(
        placement_name="web", state=DrainStep.State.GONE, changed_at=NOW
    )
    Drain.objects.filter(cluster_name="c").update(state=Drain.State.DONE, ended_at=NOW)

    undone = undo(result, ana)

    assert not Drain.objects.filter(state=Drain.State.RUNNING).exists()
    assert not ClusterTaint.objects.exists()
    assert undone.clusters == ("a",)
    assert undone.reasons == {
        "b": "1 placement evicted already",
        "c": "its drain has ended",
    }


def test_undo_of_a_cancelled_drain_continues_it(ana: User) -> None:
    all_joined("a", "b", "c")
    drain(
        ["a", "b", "c"], by=None, now=NOW, pace=Pace(at_once=2, deadline=NOW + LONGEST)
    )
    drains = set(Drain.objects.values_list("pk", "at_once", "deadline"))
    result = change("cancel-drain", ana, "a", "b", "c")
    change("uncordon", None, "b")
    drain(["c"], by=None, now=NOW)

    undone = undo(result, ana)

    running = Drain.objects.filter(state=Drain.State.RUNNING)
    assert set(
        running.filter(pk__in=[pk for pk, *_ in drains]).values_list(
            "cluster_name", flat=True
        )
    ) == {"a"}
    assert set(running.values_list("cluster_name", flat=True)) == {"a", "c"}
    assert undone.clusters == ("a",)
    assert set(undone.reasons) == {"b", "c"}


def test_undo_is_for_the_user_and_for_an_hour(ana: User) -> None:
    all_joined("a", "b")
    result = change("cordon", ana, "a", "b")
    before = documents()
    for by, request_id, after in (
        (person("bob", "operator"), result.request_id, timedelta()),
        (ana, result.request_id, LONGEST + timedelta(seconds=1)),
        (ana, "", timedelta()),
        (ana, "0" * 32, timedelta()),
    ):
        with pytest.raises(NothingToUndo):
            undo_change(request_id, by=by, now=NOW + after)
    assert documents() == before
    undo(result, ana)
    again = undo(result, ana)
    assert (again.clusters, set(again.reasons)) == ((), {"a", "b"})


def test_removal_from_the_fleet_offers_no_undo(ana: User) -> None:
    all_joined("a")
    assert not change("leave", ana, "a").is_undone
    assert not change("cordon", ana).is_undone


@pytest.mark.parametrize("name", sorted(BULK_ACTIONS))
def test_more_clusters_take_no_more_statements(name: str, ana: User) -> None:
    world = World(61)
    clusters = [f"c{number:03}" for number in range(61)]
    options: dict[str, dict[str, Any]] = {
        "labels": {"labels": {"a": "b"}},
        "taints": {"add": [GPU]},
    }
    given = options.get(name, {})
    if name == "uncordon":
        change("cordon", None, *clusters)
    if name == "cancel-drain":
        drain(clusters, by=None, now=world.now)
    counts = []
    for some in (clusters[:1], clusters[1:]):
        with CaptureQueriesContext(connection) as statements:
            result = change(name, ana, *some, **given)
        undone = len(statements)
        if result.is_undone:
            with CaptureQueriesContext(connection) as statements:
                undo(result, ana)
            undone += len(statements)
        counts.append(undone)
    assert counts[1] <= counts[0] + 2
