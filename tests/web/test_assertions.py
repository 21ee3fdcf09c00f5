"""Assertions at the entry points: pages, REST and commands."""

import json
import re
from io import StringIO
from pathlib import Path

import pytest
from django.contrib.auth.models import User
from django.core.management import CommandError, call_command
from django.test import Client
from rest_framework.test import APIClient

from placements.models import Placement
from placements.services.assertions import save_assertions
from tests.rows import NOW, assertion_document, joined, pick_n_spec, placement_document

pytestmark = pytest.mark.django_db


def test_a_document_that_refuses_does_so_on_the_page_over_rest_and_in_the_command(
    operator: Client, tmp_path: Path
) -> None:
    joined("a", env="canary")
    rule = {"never": {"env": "canary"}}
    gold = assertion_document("gold", rule, selector={"matchLabels": {"tier": "gold"}}, onBreak="refuse")
    document = placement_document("web", pick_n_spec(1))
    document["metadata"]["labels"] = {"tier": "gold"}
    path = tmp_path / "web.json"
    path.write_text(json.dumps(document))
    sent = {"manifest": path.read_text(), "mode": "yaml", "revision": "0", "do": "save", "confirm": "yes"}
    save_assertions(gold, by=None, now=NOW)
    rest = APIClient()
    rest.force_authenticate(User.objects.get(pk=operator.session["_auth_user_id"]))

    operator.post("/placements/new/", sent)
    review = operator.get("/drafts/1/review/").content.decode()
    values = dict(re.findall(r'name="(digest|decision)" value="([^"]*)"', review))
    page = operator.post("/drafts/1/review/", {**values, "accept": "on"})
    over_rest = rest.post("/api/v1/apply", document, format="json")
    with pytest.raises(CommandError) as refused:
        call_command("apply", "-f", str(path), stdout=StringIO())

    words = "Assertion of PlacementAssertion gold broken"
    assert (page.status_code, over_rest.status_code, refused.value.returncode) == (422, 422, 2)
    assert words in page.content.decode()
    assert words in over_rest.content.decode()
    assert words in str(refused.value)
    assert not Placement.objects.exists()
    assert rest.get("/api/v1/assertions/gold").json()["spec"]["onBreak"] == "refuse"
    assert rest.delete("/api/v1/assertions/gold").status_code == 204
    assert rest.get("/api/v1/assertions/gold").status_code == 404
    values |= {"accept": "on"}
    assert operator.post("/drafts/1/review/", values).status_code == 302
    assert Placement.objects.exists()
