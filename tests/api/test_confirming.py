"""What would unschedule everything is refused over REST until it is confirmed."""

from io import StringIO
from typing import Any

import pytest
from django.core.management import CommandError
from rest_framework.test import APIClient

from fleetui.apimachinery.yaml import dump_yaml
from placements.models import Placement, Resource
from tests.commands import call_command
from tests.rows import (
    all_joined,
    decided,
    namespace,
    pick_n_spec,
    placement_document,
    spec,
)
from tests.services.test_unscheduling_everything import (
    FIXED,
    FIXED_ELSEWHERE,
    PICK_ALL,
    PICK_N,
)

pytestmark = pytest.mark.django_db
WEB = "/api/v1/placements/web"
CONFIRM = "?confirm=unschedule-everything"
CASES = [(spec(), PICK_ALL), (pick_n_spec(2), PICK_N), (FIXED, FIXED_ELSEWHERE)]


@pytest.fixture(autouse=True)
def _fleet() -> None:
    """Add two clusters."""
    all_joined("a", "b")


@pytest.mark.nightly
@pytest.mark.parametrize(("before", "after"), CASES)
def test_a_put_says_what_to_send_to_confirm(
    api: APIClient, before: Any, after: Any
) -> None:
    decided("web", before)
    document = placement_document("web", {**after, "policy": after["policy"]})

    refused = api.put(WEB, document, format="json")

    problem = refused.json()
    assert (refused.status_code, problem["type"]) == (
        409,
        "urn:fleetui:problem:confirmation-needed",
    )
    assert problem["confirm"] == "unschedule-everything"
    assert problem["placements"] == [{"placement": "web", "clusters": ["a", "b"]}]
    assert Placement.objects.get().revision == 1
    assert api.put(f"{WEB}{CONFIRM}", document, format="json").status_code == 200
    assert Placement.objects.get().revision == 2


def test_another_confirmation_is_refused(api: APIClient) -> None:
    decided("web", spec())

    answer = api.put(
        f"{WEB}?confirm=yes", placement_document("web", PICK_ALL), format="json"
    )

    assert answer.status_code == 400
    assert Placement.objects.get().revision == 1


@pytest.mark.nightly
def test_apply_lists_every_placement_that_would_be_emptied_and_does_nothing(
    api: APIClient,
) -> None:
    decided("db", pick_n_spec(1))
    decided("web", pick_n_spec(2))
    documents = [
        namespace("shop"),
        placement_document("web", PICK_N),
        placement_document("db", PICK_N),
    ]

    refused = api.post("/api/v1/apply", documents, format="json")

    assert refused.status_code == 409
    assert refused.json()["placements"] == [
        {"placement": "web", "clusters": ["a", "b"]},
        {"placement": "db", "clusters": ["b"]},
    ]
    assert not Resource.objects.exists()
    assert (
        api.post(f"/api/v1/apply{CONFIRM}", documents, format="json").status_code == 200
    )
    assert set(Placement.objects.values_list("revision", flat=True)) == {2}


def test_the_command_takes_a_flag(tmp_path: Any) -> None:
    decided("web", pick_n_spec(2))
    path = tmp_path / "web.yaml"
    path.write_text(dump_yaml(placement_document("web", PICK_N)))

    with pytest.raises(
        CommandError, match="--confirm unschedule-everything"
    ) as refused:
        call_command("apply", "-f", str(path), stdout=StringIO())

    assert refused.value.returncode == 3
    assert Placement.objects.get().revision == 1
    call_command(
        "apply",
        "-f",
        str(path),
        "--confirm",
        "unschedule-everything",
        stdout=StringIO(),
    )
    assert Placement.objects.get().revision == 2
