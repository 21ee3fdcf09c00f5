"""What holds for every page: who may open it, and how it is built."""

import re

import pytest
from django.test import Client
from django.urls import get_resolver

from placements import urls
from placements.models import Placement, Scenario
from placements.operations.rollouts.advancing import advance_due
from placements.operations.scenarios import ask_what_if
from tests.rows import NOW
from tests.web.reading import Outline

pytestmark = pytest.mark.django_db

READ = [
    "/",
    "/search/",
    "/search/?q=o",
    "/activity/",
    "/clusters/",
    "/clusters/?label=region:west&by=region&state=eligible",
    "/clusters/bravelion/",
    "/clusters/?columns=region,tier&sort=-label:region",
    "/topology/",
    "/topology/?key=region&key2=env",
    "/topology/?key=nothing",
    "/what-if/{scenario}/",
    "/what-if/{scenario}/?variant=cordon",
    "/placements/",
    "/placements/web/",
    "/placements/web/?outcome=picked",
    "/placements/web/plan/",
    "/rollouts/",
    "/rollouts/?state=running&placement=web",
    "/rollouts/web/1/",
    "/resources/",
    "/resources/_/ConfigMap/shop/settings/",
    "/decisions/{id}/",
    "/decisions/{id}/?cluster=bravelion",
    "/decisions/{id}/?cluster=nobody",
    "/decisions/{id}/semantics/",
]
WRITE = [
    "/demo/remove/",
    "/clusters/import/",
    "/clusters/bravelion/edit/",
    "/clusters/bravelion/cordon/",
    "/clusters/bravelion/uncordon/",
    "/clusters/bravelion/leave/",
    "/placements/new/",
    "/placements/web/edit/",
    "/placements/web/delete/",
    "/placements/web/pause/",
    "/placements/web/resume/",
    "/placements/web/stop/",
    "/placements/web/start/",
    "/placements/web/release/",
    "/placements/web/roll-back/",
    "/placements/web/retry/bravelion/",
    "/resources/apply/",
    "/resources/_/ConfigMap/shop/settings/delete/",
]
READ_AND_WRITE = ["/clusters/bravelion/drain/"]
"""Everyone reads them; what is posted there is for operators."""
ASK = ["/what-if/", "/what-if/?label=region:west&variant=cordon"]
"""Everyone may post there: it changes nothing on the fleet."""
POST_ONLY = ["/demo/load/"]


@pytest.fixture
def decision_id(web: Placement) -> str:
    """Let the placement be carried out as well; give the id of its decision."""
    advance_due(now=NOW)
    ask_what_if(names=["bravelion"], labels=[], by=None, now=NOW)
    return web.decisions.select_related("record").get().record.decision_id


def address_of(address: str, decision_id: str) -> str:
    """Put what there is into an address."""
    scenario = Scenario.objects.latest("pk").pk
    return address.format(id=decision_id, scenario=scenario)


@pytest.mark.parametrize("address", [*READ, *READ_AND_WRITE, *ASK, *WRITE])
def test_is_well_formed_and_brings_no_code_of_its_own(
    operator: Client, decision_id: str, address: str
) -> None:
    answer = operator.get(address_of(address, decision_id))
    outline = Outline(answer.content.decode())

    assert answer.status_code == 200
    assert outline.problems == []
    assert outline.is_ordered, outline.headings


@pytest.mark.parametrize("address", [*READ, *READ_AND_WRITE, *ASK, *WRITE])
def test_is_only_for_people_who_are_logged_in(client: Client, decision_id: str, address: str) -> None:
    answer = client.get(address_of(address, decision_id))

    assert (answer.status_code, answer["Location"].partition("?")[0]) == (302, "/login/")


@pytest.mark.parametrize("address", [*READ, *READ_AND_WRITE, *ASK, *WRITE])
def test_says_what_to_ask_for_without_a_role(stranger: Client, decision_id: str, address: str) -> None:
    answer = stranger.get(address_of(address, decision_id))

    assert answer.status_code == 403
    assert "You have no role here yet" in answer.content.decode()


@pytest.mark.parametrize("address", [*READ, *READ_AND_WRITE, *ASK])
def test_is_open_to_viewers(viewer: Client, decision_id: str, address: str) -> None:
    assert viewer.get(address_of(address, decision_id)).status_code == 200


@pytest.mark.parametrize("address", [*READ, *READ_AND_WRITE])
def test_offers_a_viewer_no_way_to_write(viewer: Client, decision_id: str, address: str) -> None:
    text = viewer.get(address_of(address, decision_id)).content.decode()

    links = re.findall(r'(?:href|action)="([^"?#]*)', text)
    ours = [link for link in links if link.endswith(("/edit/", "/new/", "/delete/", "/import/", "/apply/"))]
    assert ours == []
    assert re.findall(r'<form method="post"( action="[^"]*")?', text) == [' action="/logout/"']


@pytest.mark.usefixtures("web")
@pytest.mark.parametrize("method", ["get", "post"])
@pytest.mark.parametrize("address", WRITE)
def test_refuses_a_viewer_who_would_write(viewer: Client, address: str, method: str) -> None:
    answer = getattr(viewer, method)(address)

    assert answer.status_code == 403
    assert "Ask a fleet operator" in answer.content.decode()


@pytest.mark.usefixtures("web")
@pytest.mark.parametrize("address", READ_AND_WRITE)
def test_refuses_a_viewer_who_would_write_where_everyone_reads(viewer: Client, address: str) -> None:
    answer = viewer.post(address)

    assert answer.status_code == 403
    assert "Ask a fleet operator" in answer.content.decode()


@pytest.mark.usefixtures("web")
@pytest.mark.parametrize("address", ASK)
def test_a_viewer_may_ask(viewer: Client, address: str) -> None:
    assert viewer.post(address, {"clusters": "bravelion"}).status_code == 302


@pytest.mark.usefixtures("web")
@pytest.mark.parametrize("address", [*WRITE, *READ_AND_WRITE, *ASK, *POST_ONLY])
def test_refuses_strangers_and_nobody_who_would_write(client: Client, stranger: Client, address: str) -> None:
    assert client.post(address).status_code == 302
    assert stranger.post(address).status_code == 403


def test_refuses_a_viewer_who_would_load_a_demo(viewer: Client) -> None:
    assert viewer.post("/demo/load/", {"size": "4"}).status_code == 403


@pytest.mark.parametrize("address", READ)
def test_a_page_to_read_takes_no_post(operator: Client, decision_id: str, address: str) -> None:
    assert operator.post(address_of(address, decision_id)).status_code == 405


def test_no_address_is_missing_in_these_tests() -> None:
    everything = (*READ, *READ_AND_WRITE, *ASK, *WRITE, *POST_ONLY)
    tested = {address.partition("?")[0].format(id="d-0", scenario=1) for address in everything}
    matched = {get_resolver().resolve(address).url_name for address in tested}

    assert matched == {pattern.name for pattern in urls.urlpatterns} - {"placement-yaml"}


@pytest.mark.usefixtures("web")
def test_posts_are_refused_without_a_token(operator: Client) -> None:
    checking = Client(enforce_csrf_checks=True)
    checking.cookies = operator.cookies

    assert checking.post("/clusters/bravelion/leave/").status_code == 403
