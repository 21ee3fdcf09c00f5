"""The pace of a drain over REST and on the command line."""

from datetime import UTC, datetime, timedelta
from io import StringIO

import pytest
from django.core.management import CommandError
from rest_framework.test import APIClient

from clusters.models import ClusterTaint
from placements.models import Drain
from placements.services.disruption.drains import advance_drains
from tests.commands import call_command
from tests.rows import all_joined, decided, spec

pytestmark = pytest.mark.django_db
DRAIN = "/api/v1/clusters/a/drain"


@pytest.fixture(autouse=True)
def _placed() -> None:
    """Put two placements on a cluster."""
    all_joined("a", "b")
    decided("web", spec())
    decided("ledger", spec())


@pytest.mark.nightly
def test_a_drain_has_its_options(api: APIClient) -> None:
    pace = {"atOnce": 2, "deadlineSeconds": 600, "order": ["web"]}

    begun = api.post(DRAIN, pace, format="json")

    shown = begun.json()["drain"]
    assert begun.status_code == 202
    assert (shown["atOnce"], shown["order"]) == (2, ["web"])
    ends = datetime.fromisoformat(shown["deadline"]) - datetime.fromisoformat(
        shown["startedAt"]
    )
    assert abs(ends - timedelta(seconds=600)) < timedelta(seconds=5)


@pytest.mark.nightly
def test_what_is_left_at_the_deadline_is_listed(api: APIClient) -> None:
    api.post(DRAIN, {"deadlineSeconds": 1}, format="json")
    advance_drains(now=datetime.now(UTC) + timedelta(seconds=2))

    shown = api.get(DRAIN).json()["drain"]

    assert (shown["state"], shown["left"]) == ("expired", ["ledger", "web"])
    assert shown["endedBecause"] == "the deadline passed with 2 placements left"


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("pace", "path"),
    [
        ({"atOnce": 0}, "atOnce"),
        ({"atOnce": 101}, "atOnce"),
        ({"deadlineSeconds": 0}, "deadlineSeconds"),
        ({"order": ["missing"]}, "order[0]"),
        ({"order": "web"}, "order"),
        ({"force": True}, "force"),
        ([], ""),
    ],
)
def test_invalid_options_are_refused_and_nothing_starts(
    api: APIClient, pace: object, path: str
) -> None:
    answer = api.post(DRAIN, pace, format="json")

    assert answer.status_code == 422
    assert [error["path"] for error in answer.json()["faults"]] == [path]
    assert not Drain.objects.exists()
    assert not ClusterTaint.objects.exists()


def test_the_command_takes_the_same_pace() -> None:
    out = StringIO()
    call_command(
        "drain",
        "a",
        "--at-once",
        "3",
        "--deadline",
        "1h30m",
        "--order",
        "web",
        "--order",
        "ledger",
        stdout=out,
    )

    row = Drain.objects.get()
    assert (row.at_once, row.first) == (3, ["web", "ledger"])
    assert row.deadline
    # The command sends the moment that it computed before the drain started.
    early = row.started_at + timedelta(minutes=90) - row.deadline
    assert timedelta(0) <= early < timedelta(seconds=10)
    for odd in (["--at-once", "0"], ["--order", "missing"], ["--deadline", "soon"]):
        with pytest.raises((CommandError, SystemExit)):
            call_command("drain", "b", *odd, stdout=out)
    assert Drain.objects.count() == 1


@pytest.mark.parametrize("length", ["", "0"])
def test_a_drain_needs_no_body(api: APIClient, length: str) -> None:
    """Clients send a POST without a body with `Content-Length: 0`, or without that header."""
    begun = api.generic(
        "POST", DRAIN, "", content_type="application/json", CONTENT_LENGTH=length
    )

    assert begun.status_code == 202, begun.json()
    assert Drain.objects.get().cluster_name == "a"
