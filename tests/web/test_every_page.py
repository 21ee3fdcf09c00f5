"""What holds for every page: who may open it, and how it is built."""

import re

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.urls import get_resolver

from fleetui.models import Event
from placements import urls
from placements.manifests import dump_yaml
from placements.models import Placement, Scenario
from placements.operations.drafts import start_draft
from placements.operations.rollouts.advancing import advance_due
from placements.operations.scenarios import ask_what_if
from placements.operations.staged.starting import start_run
from placements.operations.staged.strategies import save_strategy
from tests.rollouts.staged import staged_spec, strategy_document
from tests.rows import NOW, decided, person
from tests.web.reading import Outline

pytestmark = pytest.mark.django_db

READ = [
    "/",
    "/help/keyboard/",
    "/help/semantics/",
    "/help/glossary/",
    "/search/",
    "/search/?q=o",
    "/activity/",
    "/activity/{event}/",
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
    "/placements/web/history/",
    "/placements/web/compare/p0..{id}/",
    "/placements/web/compare/s0..s0/",
    "/placements/web/plan/",
    "/rollouts/",
    "/rollouts/?state=running&placement=web",
    "/rollouts/web/1/",
    "/rollouts/?waiting=approval",
    "/rollouts/staged/runs/one/",
    "/rollouts/staged/strategies/",
    "/rollouts/staged/strategies/careful/",
    "/resources/",
    "/resources/_/ConfigMap/shop/settings/",
    "/decisions/{id}/",
    "/decisions/{id}/?cluster=bravelion",
    "/decisions/{id}/?cluster=nobody",
    "/decisions/{id}/?step=1&cluster=bravelion&group=region:west",
    "/decisions/{id}/?view=funnel",
    "/decisions/{id}/?view=scores",
    "/decisions/{id}/?view=cloud",
    "/decisions/{id}/?view=joint",
    "/decisions/{id}/?view=inputs",
    "/decisions/{id}/?table=funnel",
    "/decisions/{id}/clusters/bravelion/",
    "/decisions/{id}/semantics/",
]
WRITE = [
    "/demo/remove/",
    "/clusters/import/",
    "/clusters/bravelion/edit/",
    "/clusters/bravelion/cordon/",
    "/clusters/bravelion/uncordon/",
    "/clusters/bravelion/leave/",
    "/clusters/bravelion/rehearse/",
    "/placements/new/",
    "/placements/web/edit/",
    "/placements/web/delete/",
    "/placements/web/reschedule/",
    "/placements/web/pause/",
    "/placements/web/resume/",
    "/placements/web/stop/",
    "/placements/web/start/",
    "/placements/web/release/",
    "/placements/web/roll-back/",
    "/placements/web/retry/bravelion/",
    "/placements/shelf/staged-run/",
    "/placements/shelf/staged-run/?strategy=careful",
    "/rollouts/staged/runs/one/resume/",
    "/rollouts/staged/runs/one/stop/",
    "/rollouts/staged/runs/one/abandon/",
    "/rollouts/staged/runs/one/skip-wait/all/",
    "/rollouts/staged/runs/one/retry/bravelion/",
    "/rollouts/staged/new-strategy/",
    "/rollouts/staged/strategies/careful/edit/",
    "/rollouts/staged/strategies/careful/delete/",
    "/resources/apply/",
    "/resources/_/ConfigMap/shop/settings/delete/",
]
OWN = ["/drafts/{draft}/review/"]
READ_AND_WRITE = ["/clusters/bravelion/drain/"]
"""Everyone reads them; what is posted there is for operators."""
ASK = ["/what-if/", "/what-if/?label=region:west&variant=cordon"]
"""Everyone may post there: it changes nothing on the fleet."""
POST_ONLY = ["/demo/load/"]
APPROVE = ["/rollouts/staged/runs/one/approve/all/"]
POST_OWN = ["/drafts/{draft}/discard/", "/drafts/{draft}/rebase/"]
BOTH = ["/drafts/{draft}/"]
PREFERENCES = ["/theme/", "/rows/", "/keys/"]  # kept in the browser of whoever asks, so open to everyone


def begin_everything(web: Placement) -> str:
    """Let it be carried out as well, beside a staged run that waits; give the id of its decision."""
    stage = {"name": "all", "labelSelector": {}, "beforeStageTasks": [{"type": "Approval"}]}
    save_strategy(strategy_document(stage), by=None, now=NOW)
    decided("shelf", staged_spec())
    start_run("one", placement="shelf", strategy="careful", by=None, now=NOW)
    advance_due(now=NOW)
    ask_what_if(names=["bravelion"], labels=[], by=None, now=NOW)
    return web.decisions.select_related("record").get().record.decision_id


@pytest.fixture
def decision_id(web: Placement) -> str:
    """Give the id of a decision, with something of everything beside it."""
    return begin_everything(web)


def address_of(address: str, decision_id: str) -> str:
    """Put what there is into an address."""
    scenario = Scenario.objects.latest("pk").pk
    return address.format(id=decision_id, scenario=scenario, event=Event.objects.latest("pk").pk)


@pytest.fixture
def draft(operator: Client, web: Placement) -> int:
    """Let the operator begin a draft; give its number."""
    ana = User.objects.get(pk=operator.session["_auth_user_id"])
    return start_draft(dump_yaml(web.document), placement=web, by=ana, now=NOW).pk


@pytest.mark.parametrize("address", [*READ, *READ_AND_WRITE, *ASK, *WRITE])
def test_is_well_formed_and_brings_no_code_of_its_own(
    operator: Client, decision_id: str, address: str
) -> None:
    _refuse_faults(operator, address_of(address, decision_id))


@pytest.mark.parametrize("address", [*OWN, *BOTH, "/drafts/{draft}/?as=yaml", "/placements/web/edit/"])
def test_the_pages_of_a_draft_are_well_formed(operator: Client, draft: int, address: str) -> None:
    _refuse_faults(operator, address.format(draft=draft))


def _refuse_faults(operator: Client, address: str) -> None:
    answer = operator.get(address)
    outline = Outline(answer.content.decode())

    assert answer.status_code == 200
    assert outline.problems == []
    assert outline.is_ordered, outline.headings


@pytest.fixture
def approver() -> Client:
    """Give the browser of an approver."""
    browser = Client()
    browser.force_login(person("ann", "approver"))
    return browser


@pytest.mark.usefixtures("decision_id")
@pytest.mark.parametrize("address", APPROVE)
def test_only_an_approver_opens_what_approves(
    approver: Client, operator: Client, viewer: Client, stranger: Client, client: Client, address: str
) -> None:
    outline = Outline(approver.get(address).content.decode())
    refused = [operator.get(address), viewer.post(address), operator.post(address), stranger.post(address)]

    assert (outline.problems, outline.is_ordered) == ([], True)
    assert [one.status_code for one in refused] == [403] * 4
    assert "Ask an approver" in refused[2].content.decode()
    assert client.post(address)["Location"].startswith("/login/")


@pytest.mark.usefixtures("decision_id")
@pytest.mark.parametrize("address", WRITE)
def test_an_approver_may_write_nothing_else(approver: Client, address: str) -> None:
    assert approver.post(address).status_code == 403


@pytest.mark.parametrize("address", [*READ, *READ_AND_WRITE, *ASK, *WRITE, *APPROVE])
def test_is_only_for_people_who_are_logged_in(client: Client, decision_id: str, address: str) -> None:
    answer = client.get(address_of(address, decision_id))

    assert (answer.status_code, answer["Location"].partition("?")[0]) == (302, "/login/")


@pytest.mark.parametrize("address", [*READ, *READ_AND_WRITE, *ASK, *WRITE])
def test_says_what_to_ask_for_without_a_role(stranger: Client, decision_id: str, address: str) -> None:
    answer = stranger.get(address_of(address, decision_id))

    assert answer.status_code == 403
    assert "You have no role here yet" in answer.content.decode()


@pytest.mark.parametrize("address", [*OWN, *POST_OWN, *BOTH])
def test_a_draft_is_only_for_people_with_a_role(
    client: Client, stranger: Client, draft: int, address: str
) -> None:
    assert client.post(address.format(draft=draft)).status_code == 302
    assert stranger.post(address.format(draft=draft)).status_code == 403


@pytest.mark.parametrize("address", [*OWN, *POST_OWN, *BOTH])
def test_a_viewer_changes_no_draft(viewer: Client, draft: int, address: str) -> None:
    answer = viewer.post(address.format(draft=draft))

    assert answer.status_code == 403
    assert "Ask a fleet operator" in answer.content.decode()


@pytest.mark.parametrize("address", [*OWN, *POST_OWN, *BOTH])
def test_another_operator_changes_no_draft(draft: int, address: str) -> None:
    other = Client()
    other.force_login(person("li", "operator"))

    assert other.post(address.format(draft=draft)).status_code == 404


def test_a_viewer_reads_a_draft_and_is_offered_no_way_to_write(viewer: Client, draft: int) -> None:
    text = viewer.get(f"/drafts/{draft}/").content.decode()

    assert Outline(text).problems == []
    assert "A draft of web by ana" in text
    forms = re.findall(r'<form method="post" action="([^"]*)"', text)
    assert set(forms) == {"/theme/", "/rows/", "/keys/", "/logout/"}


@pytest.mark.parametrize("address", [*READ, *READ_AND_WRITE, *ASK])
def test_is_open_to_viewers(viewer: Client, decision_id: str, address: str) -> None:
    assert viewer.get(address_of(address, decision_id)).status_code == 200


@pytest.mark.parametrize("address", [*READ, *READ_AND_WRITE])
def test_offers_a_viewer_no_way_to_write(viewer: Client, decision_id: str, address: str) -> None:
    text = viewer.get(address_of(address, decision_id)).content.decode()

    links = re.findall(r'(?:href|action)="([^"?#]*)', text)
    ours = [link for link in links if link.endswith(("/edit/", "/new/", "/delete/", "/import/", "/apply/"))]
    assert ours == []
    forms = re.findall(r'<form method="post" action="([^"]*)"', text)
    assert set(forms) == {"/theme/", "/rows/", "/keys/", "/logout/"}


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


@pytest.mark.usefixtures("web")
@pytest.mark.parametrize("method", ["get", "post"])
@pytest.mark.parametrize("address", WRITE)
def test_refuses_an_approver_who_would_write(address: str, method: str) -> None:
    approver = Client()
    approver.force_login(person("otto", "approver"))

    answer = getattr(approver, method)(address)

    assert answer.status_code == 403
    assert "Ask a fleet operator" in answer.content.decode()


@pytest.mark.usefixtures("decision_id")
@pytest.mark.parametrize("address", [*WRITE, *READ_AND_WRITE, *POST_ONLY])
def test_lets_an_operator_write(operator: Client, address: str) -> None:
    assert operator.post(address).status_code in (200, 302, 409, 422)


def test_refuses_a_viewer_who_would_load_a_demo(viewer: Client) -> None:
    assert viewer.post("/demo/load/", {"size": "4"}).status_code == 403


@pytest.mark.parametrize("address", READ)
def test_a_page_to_read_takes_no_post(operator: Client, decision_id: str, address: str) -> None:
    assert operator.post(address_of(address, decision_id)).status_code == 405


def test_no_address_is_missing_in_these_tests() -> None:
    listed = (
        *(*READ, *READ_AND_WRITE, *ASK, *WRITE, *OWN, *POST_ONLY, *POST_OWN, *BOTH, *APPROVE),
        *PREFERENCES,
    )
    tested = {address.partition("?")[0].format(id="d-0", draft=1, scenario=1, event=1) for address in listed}
    matched = {get_resolver().resolve(address).url_name for address in tested}

    elsewhere = {"placement-yaml", "choose-two", "newest-rollout"}  # they lead on to other pages
    assert matched == {pattern.name for pattern in urls.urlpatterns} - elsewhere


@pytest.mark.usefixtures("web")
def test_posts_are_refused_without_a_token(operator: Client) -> None:
    checking = Client(enforce_csrf_checks=True)
    checking.cookies = operator.cookies

    assert checking.post("/clusters/bravelion/leave/").status_code == 403
