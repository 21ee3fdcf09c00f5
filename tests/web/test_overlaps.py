"""Two placements that put one object on one cluster: refused, or shared, and said before it is saved."""

from io import StringIO
from typing import Any

import pytest
from django.test import Client
from rest_framework.test import APIClient

from fleetui.apimachinery.errors import ManifestWarning
from fleetui.apimachinery.yaml import dump_yaml
from placements.engine.rollout.state import Phase
from placements.manifests.placement import parse_placement
from placements.models import Binding
from placements.services.apply import preview_documents
from placements.services.checks import current_report
from placements.services.editor.preview import preview
from placements.services.fleet.forms import read_documents
from placements.services.placements import delete_placement
from tests.commands import call_command
from tests.rows import person, placement_document, spec
from tests.services.rollouts.world import World

pytestmark = pytest.mark.django_db
SHARED = {
    "strategy": {"type": "RollingUpdate", "applyStrategy": {"allowCoOwnership": True}}
}
MESSAGE = "belongs to placement web of this hub"


def phases(name: str) -> set[str]:
    """Return the phases of a placement on its clusters."""
    return set(
        Binding.objects.filter(placement__name=name).values_list("phase", flat=True)
    )


def placed(**more: Any) -> World:
    """Place the namespace shop on two clusters as web, and then as api."""
    world = World(2)
    for name in ("web", "api"):
        world.place(name, {**spec(), **more}, shares=True)
        world.pass_time(6)
    return world


def test_the_second_is_refused_and_pages_and_rest_name_the_first(
    client: Client,
) -> None:
    placed()

    assert phases("web") == {Phase.AVAILABLE}
    assert phases("api") == {Phase.FAILED}
    client.force_login(person("vera", "viewer"))
    client.force_login(person("olga", "operator"))
    problems = (
        client.get("/placements/api/")
        .content.decode()
        .partition('id="problems"')[2]
        .partition("</details>")[0]
    )
    assert "/placements/api/edit/" in problems
    assert "/drain/" not in problems
    attention = client.get("/").content.decode()
    objects = "Namespace shop, Deployment shop/web"
    assert f"On c000: {objects}: {MESSAGE}. Retrying." in attention
    page = client.get("/placements/api/clusters/c000/").content.decode()
    assert "FailedToTakeOver" in page
    assert MESSAGE in page
    rest = APIClient()
    rest.force_authenticate(person("rita", "viewer"))
    items = rest.get("/api/v1/placements/api/bindings/c000/objects").json()["items"]
    [failed] = [item for item in items if item["kind"] == "Namespace"]
    assert (failed["state"], failed["reason"], failed["message"]) == (
        "Failed",
        "FailedToTakeOver",
        MESSAGE,
    )


def test_when_the_first_goes_the_second_has_the_object() -> None:
    world = placed()
    delete_placement("web", by=None, now=world.now)

    world.run(until=lambda: phases("api") == {Phase.AVAILABLE}, seconds=120)


def test_with_consent_of_both_the_object_is_shared() -> None:
    placed(**SHARED)

    assert phases("web") == phases("api") == {Phase.AVAILABLE}


def test_previews_and_the_checks_warn_of_an_overlap() -> None:
    world = World(2)
    world.place("web", spec())
    world.pass_time(6)
    document = placement_document("api", spec())
    sentence = (
        "web places these too, on 2 clusters: Namespace shop, Deployment shop/web. "
        "A cluster refuses what belongs to the other placement: select other resources, or allow co-ownership"
        " in both placements."
    )
    warning = ManifestWarning("overlap", "spec.resourceSelectors", sentence)

    shown = preview(parse_placement(document))
    assert warning in shown.warnings
    assert shown.unlikely_results == (sentence,)
    results = preview_documents(
        read_documents(dump_yaml(document)), by=None, now=world.now
    ).results
    assert warning in results[0].warnings

    world.place("api", spec(), shares=True)
    world.pass_time(2)
    messages = [
        finding.message for _, finding in current_report().findings_of("", "N05")
    ]
    assert sorted(messages) == [sentence.replace("web", "api", 1), sentence]
    out = StringIO()
    call_command("checks", stdout=out)
    assert sentence in " ".join(out.getvalue().split())
