"""Writes to objects whose status changes every few seconds: only what people write is a conflict."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from clusters.models import MirroredObject
from placements.hubs.write_requests import ChangedSincePreviewError, StaleBaseError
from placements.hubs.writing.answers import WriteOutcome
from placements.hubs.writing.operations import HubRefusedError
from placements.hubs.writing.sending import MOST_REPEATS
from tests.hubs import fake_hub
from tests.hubs.test_writes import SCALE, number, owns_number
from tests.hubs.writable import WritableHub, writable_hub
from tests.rows import person

pytestmark = pytest.mark.django_db


@pytest.fixture
def hub() -> Iterator[WritableHub]:
    with writable_hub() as found:
        owns_number(found, "fleetui")
        yield found


def written_between(
    monkeypatch: pytest.MonkeyPatch,
    write: Callable[[fake_hub.FakeHub], None],
    *,
    times: int,
) -> list[str]:
    """Have others write right before the first so many requests, dry runs apart; return all requests."""
    carry_out = fake_hub.carry_out
    sent: list[str] = []

    def later(
        hub: fake_hub.FakeHub, resource: Any, found: Any, query: Any, request: Any
    ) -> bytes:
        if "dryRun" not in query and b"dryRun" not in request.body:
            sent.append(request.method)
            if len(sent) <= times:
                write(hub)
        return carry_out(hub, resource, found, query, request)

    monkeypatch.setattr(fake_hub, "carry_out", later)
    return sent


def status_of(plural: str, name: str) -> Callable[[fake_hub.FakeHub], None]:
    def write(hub: fake_hub.FakeHub) -> None:
        live = hub.get(plural, name)
        hub.put(
            plural,
            {
                **live,
                "status": {
                    "observedResourceIndex": live["metadata"]["resourceVersion"]
                },
            },
        )

    return write


@pytest.mark.parametrize("is_previewed", [True, False])
@pytest.mark.parametrize("times", [0, 1, 3])
def test_a_save_succeeds_while_controllers_write_the_status(
    hub: WritableHub, monkeypatch: pytest.MonkeyPatch, times: int, is_previewed: bool
) -> None:
    token = hub.preview("scale", SCALE).token if is_previewed else None
    write = status_of("clusterresourceplacements", "web")
    write(hub.fake)  # since the preview
    sent = written_between(monkeypatch, write, times=times)

    done = hub.apply("scale", SCALE, token=token)

    assert done
    assert done.answer.is_accepted
    assert number(hub) == 5
    assert len(sent) == times + 1
    [row] = hub.writes()
    assert row.state == "accepted"
    assert row.resource_version_after != row.precondition


@pytest.mark.parametrize(
    ("action", "fields", "plural", "name"),
    [
        (
            "labels",
            {"name": "east", "labels": {"tier": "gold"}},
            "memberclusters",
            "east",
        ),
        ("cordon", {"name": "east"}, "memberclusters", "east"),
        (
            "delete",
            {"kind": "ClusterResourcePlacement", "name": "web"},
            "clusterresourceplacements",
            "web",
        ),
    ],
)
def test_every_verb_is_repeated_with_the_present_version(
    hub: WritableHub,
    monkeypatch: pytest.MonkeyPatch,
    action: str,
    fields: dict[str, Any],
    plural: str,
    name: str,
) -> None:
    preview = hub.preview(action, fields)
    sent = written_between(monkeypatch, status_of(plural, name), times=2)

    done = hub.apply(action, preview.plan.fields, token=preview.token)

    assert done
    assert done.answer.is_accepted
    assert len(sent) == 3


def test_a_conflict_is_named_and_nothing_is_sent(hub: WritableHub) -> None:
    preview = hub.preview("scale", SCALE)
    live = hub.fake.get("clusterresourceplacements", "web")
    live["spec"]["revisionHistoryLimit"] = 4
    live["metadata"]["generation"] = 9
    hub.fake.put("clusterresourceplacements", live)

    with pytest.raises(
        ChangedSincePreviewError,
        match=r"since the preview: spec\.revisionHistoryLimit$",
    ):
        hub.apply("scale", SCALE, token=preview.token)

    assert (hub.writes(), hub.sent()) == ([], [])


def test_a_conflict_between_reading_and_writing_is_named(
    hub: WritableHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    def relabel(fake: fake_hub.FakeHub) -> None:
        live = fake.get("clusterresourceplacements", "web")
        live["metadata"]["labels"] = {"team": "other"}
        fake.put("clusterresourceplacements", live)

    sent = written_between(monkeypatch, relabel, times=1)

    with pytest.raises(HubRefusedError) as found:
        hub.apply("scale", SCALE)

    answer = found.value.answer
    assert (answer.outcome, answer.status) == (WriteOutcome.STALE, 409)
    assert [cause.path for cause in answer.causes] == ["metadata.labels"]
    assert (len(sent), number(hub)) == (1, 3)
    assert [write.state for write in hub.writes()] == ["conflict"]


def test_repeats_end(hub: WritableHub, monkeypatch: pytest.MonkeyPatch) -> None:
    sent = written_between(
        monkeypatch, status_of("clusterresourceplacements", "web"), times=99
    )

    with pytest.raises(HubRefusedError):
        hub.apply("scale", SCALE)

    assert len(sent) == MOST_REPEATS + 1
    assert [write.state for write in hub.writes()] == ["conflict"]


def test_of_two_approvals_at_the_same_moment_one_is_refused(
    hub: WritableHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    labels = {"kubernetes-fleet.io/isLatestUpdateRunApproval": "true"}
    spec = {"parentStageRollout": "run", "targetStage": "canary"}
    hub.put(
        "ClusterApprovalRequest",
        {"metadata": {"name": "wait", "labels": labels}, "spec": spec},
    )

    def approved_by_ben(fake: fake_hub.FakeHub) -> None:
        live = fake.get("clusterapprovalrequests", "wait")
        condition = {"type": "Approved", "status": "True", "message": "approved by ben"}
        fake.put(
            "clusterapprovalrequests", {**live, "status": {"conditions": [condition]}}
        )

    written_between(monkeypatch, approved_by_ben, times=1)

    with pytest.raises(HubRefusedError):
        hub.apply("approve", {"name": "wait"}, by=person("ana", "approver"))

    [condition] = hub.fake.get("clusterapprovalrequests", "wait")["status"][
        "conditions"
    ]
    assert condition["message"] == "approved by ben"


def test_the_version_of_the_mirror_is_a_precondition_about_what_people_write(
    hub: WritableHub,
) -> None:
    web = hub.fake.get("clusterresourceplacements", "web")
    item = hub.projected.item(
        "ClusterResourcePlacement", web, uid=web["metadata"]["uid"]
    )
    hub.projected.mirror.write([item])
    with hub.projected.scope():
        seen = MirroredObject.objects.get(
            kind="ClusterResourcePlacement"
        ).resource_version
    assert seen != web["metadata"]["resourceVersion"]
    status_of("clusterresourceplacements", "web")(hub.fake)

    done = hub.apply("scale", {**SCALE, "resourceVersion": seen})
    assert done
    assert done.answer.is_accepted

    with pytest.raises(
        StaleBaseError, match=r"spec\.policy"
    ):  # the mirror has not caught up
        hub.apply("scale", {**SCALE, "numberOfClusters": 4, "resourceVersion": seen})
