"""Assertions at the entry points: pages, REST and commands."""

import json
import re
from io import StringIO
from pathlib import Path

import pytest
from django.contrib.auth.models import User
from django.core.management import CommandError
from django.test import Client
from rest_framework.test import APIClient

from placements.models import Placement
from tests.commands import call_command
from tests.rows import (
    assertion_entry,
    checks_file,
    joined,
    pick_n_spec,
    placement_document,
)

pytestmark = pytest.mark.django_db


def test_an_entry_that_refuses_does_so_on_the_page_over_rest_and_in_the_command(
    operator: Client, tmp_path: Path
) -> None:
    joined("a", env="canary")
    rule = {"never": {"env": "canary"}}
    gold = assertion_entry(
        "gold", rule, selector={"matchLabels": {"tier": "gold"}}, onBreak="refuse"
    )
    document = placement_document("web", pick_n_spec(1))
    document["metadata"]["labels"] = {"tier": "gold"}
    path = tmp_path / "web.json"
    path.write_text(json.dumps(document))
    sent = {
        "manifest": path.read_text(),
        "mode": "yaml",
        "revision": "0",
        "do": "save",
        "confirm": "yes",
    }
    rest = APIClient()
    rest.force_authenticate(User.objects.get(pk=operator.session["_auth_user_id"]))
    written = rest.put(
        "/api/v1/checks-file", {"text": checks_file(gold)}, format="json"
    )

    operator.post("/placements/new/", sent)
    review = operator.get("/drafts/1/review/").content.decode()
    values = dict(re.findall(r'name="(digest|decision)" value="([^"]*)"', review))
    page = operator.post("/drafts/1/review/", {**values, "accept": "on"})
    over_rest = rest.post("/api/v1/apply", document, format="json")
    with pytest.raises(CommandError) as refused:
        call_command("apply", "-f", str(path), stdout=StringIO())

    words = "Assertion of gold in .fleetui.yaml broken"
    assert (written.status_code, written["ETag"]) == (200, '"1"')
    assert (page.status_code, over_rest.status_code, refused.value.returncode) == (
        422,
        422,
        2,
    )
    assert words in page.content.decode()
    assert words in over_rest.content.decode()
    assert words in str(refused.value)
    assert not Placement.objects.exists()
    shown = operator.get("/checks/file/").content.decode()
    assert "onBreak: refuse" in shown
    wrong = operator.post("/checks/file/", {"text": "gates: 7", "revision": "1"})
    late = operator.post("/checks/file/", {"text": "", "revision": "0"})
    saved = operator.post("/checks/file/", {"text": "", "revision": "1"})
    assert (wrong.status_code, late.status_code, saved.status_code) == (422, 409, 302)
    assert rest.get("/api/v1/checks-file").json()["text"] == ""
    values |= {"accept": "on"}
    assert operator.post("/drafts/1/review/", values).status_code == 302
    assert Placement.objects.exists()
