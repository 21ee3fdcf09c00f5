"""What holds for every page: who may open it, and how it is built."""

import re
from itertools import product

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.urls import get_resolver

from clusters.drivers.base import KUBERNETES
from clusters.operations.connection import new_member
from clusters.operations.join import ClusterSpec, upsert_clusters
from fleetui.apimachinery.yaml import dump_yaml
from fleetui.models import Event
from placements import urls
from placements.models import Eviction, Placement
from placements.services.editor.operations import start_draft
from placements.services.loss.report import start_report
from placements.services.rollouts.controller import sync_due_rollouts
from placements.services.rollouts.staged_runs import save_strategy, start_run
from tests.api.test_scopes import COMPARED
from tests.database import rolled_back
from tests.live_hubs import live_hub
from tests.page_samples import (
    NOTIFICATION_PAGES,
    SAMPLES,
    USER_PAGES,
    disruptions_of,
)
from tests.rows import NOW, decided, person
from tests.services.rollouts.staged import staged_spec, strategy_document
from tests.web.reading import Outline, page_text
from tests.web.test_teams import stored

pytestmark = pytest.mark.django_db

READ = [
    SAMPLES["linked-preview"],
    "/checks/",
    "/",
    "/demo/",
    "/help/documentation/",
    "/help/documentation/guides/index",
    "/help/keyboard/",
    "/help/semantics/",
    "/help/glossary/",
    "/search/",
    "/search/?q=o",
    "/inbox/",
    "/activity/",
    "/activity/{event}/",
    "/clusters/",
    "/clusters/?label=region:west&by=region&state=eligible",
    "/clusters/bravelion/",
    "/clusters/bravelion/labels/",
    "/clusters/bravelion/properties/",
    "/clusters/bravelion/events/",
    "/clusters/bravelion/yaml/",
    "/clusters/bravelion/connection/",
    "/clusters/?columns=region,tier&order=-label:region",
    "/topology/",
    "/topology/?key=region&key2=env",
    "/topology/?key=nothing",
    "/what-if/",
    "/what-if/?label=region:west&variant=cordon&placement=web",
    "/placements/",
    "/placements/web/",
    "/placements/web/?outcome=selected",
    "/placements/web/decision/",
    "/placements/web/rollouts/",
    "/placements/web/resources/",
    "/placements/web/manifest/",
    "/placements/web/history/",
    "/placements/web/compare/p0..{id}/",
    "/placements/web/compare/s0..s0/",
    "/placements/web/drift/",
    "/placements/web/drift/?type=Drift&path=/spec",
    "/placements/web/clusters/nimblefox/",
    "/placements/shelf/plan/",
    "/rollouts/",
    "/rollouts/?state=running&placement=web",
    "/rollouts/web/1/",
    "/rollouts/web/1/clusters/",
    "/rollouts/web/1/events/",
    "/rollouts/web/1/plan/",
    "/rollouts/?waiting=approval",
    "/rollouts/staged/new-run/",
    "/rollouts/staged/runs/one/",
    "/rollouts/staged/strategies/",
    "/rollouts/staged/strategies/careful/",
    "/overrides/",
    "/overrides/ClusterResourceOverride/_/shelves/",
    "/disruptions/",
    "/disruptions/budgets/web/",
    "/disruptions/evictions/{eviction}/",
    "/resources/",
    "/resources/_/ConfigMap/shop/settings/",
    "/decisions/{id}/",
    "/decisions/{id}/?cluster=bravelion",
    "/decisions/{id}/?cluster=missing",
    "/decisions/{id}/?step=1&cluster=bravelion&group=region:west",
    "/decisions/{id}/?view=funnel",
    "/decisions/{id}/?view=affinity",
    "/decisions/{id}/?view=compare",
    "/decisions/{id}/?view=inputs",
    "/decisions/{id}/?table=funnel",
    "/decisions/{id}/clusters/bravelion/",
    "/decisions/{id}/semantics/",
    "/hubs/",
    "/hubs/rome/about/",
]
WRITE = [
    "/demo/remove/",
    "/checks/file/",
    "/clusters/bulk/labels/?name=bravelion",
    "/clusters/bulk/cordon/?name=bravelion",
    "/clusters/bravelion/edit/",
    "/clusters/bravelion/cordon/",
    "/clusters/bravelion/uncordon/",
    "/clusters/bravelion/leave/",
    "/clusters/bravelion/inject-fault/",
    "/placements/new/",
    "/placements/web/edit/",
    "/placements/web/delete/",
    "/placements/web/pause/",
    "/placements/web/resume/",
    "/placements/web/stop/",
    "/placements/web/start/",
    "/placements/web/unpin/",
    "/placements/web/roll-back/",
    "/placements/web/retry/bravelion/",
    "/placements/web/retry-failed/",
    "/placements/web/reapply/bravelion/",
    "/placements/shelf/staged-run/",
    "/placements/shelf/staged-run/?strategy=careful",
    "/rollouts/staged/runs/one/resume/",
    "/rollouts/staged/runs/one/pause/",
    "/rollouts/staged/runs/one/abandon/",
    "/rollouts/staged/runs/one/retry-failed/",
    "/rollouts/staged/runs/one/skip-wait/all/",
    "/rollouts/staged/runs/one/retry/bravelion/",
    "/rollouts/staged/new-strategy/",
    "/rollouts/staged/strategies/careful/edit/",
    "/rollouts/staged/strategies/careful/delete/",
    "/resources/apply/",
    "/resources/_/ConfigMap/shop/settings/delete/",
]
ADMINISTER = [
    "/clusters/new/prepare/",
    "/clusters/jumpingcat/connection/edit/",
    "/clusters/jumpingcat/connection/remove/",
    "/hubs/new/",
    "/hubs/rome/about/credentials/",
    "/hubs/rome/about/remove/",
]
ADMINISTER_POST = [
    "/clusters/jumpingcat/connection/check/",
    "/clusters/jumpingcat/connection/renew/",
    "/hubs/rome/about/check/",
    "/hubs/rome/about/pause/",
]
ADD = ["/clusters/new/", "/clusters/import/"]
"""For operators and for cluster administrators."""
OWN = ["/drafts/{draft}/review/"]
READ_AND_WRITE = [
    "/clusters/bravelion/drain/",
    "/clusters/bravelion/removals/",
    "/placements/web/reschedule/",
]
"""Everyone reads them; what is posted there is for operators."""
ASK = [
    "/what-if/resilience/?variant=down&level=region",
]
"""Everyone may post there: it changes nothing on the fleet."""
POST_ONLY = [
    "/clusters/bulk/undo/",
    "/demo/load/",
    "/placements/web/clusters/nimblefox/read/",
    "/resources/apply/dry-run/",
]
APPROVE = ["/rollouts/staged/runs/one/approve/all/"]
POST_OWN = [
    "/drafts/{draft}/discard/",
    "/drafts/{draft}/rebase/",
    "/drafts/{draft}/dry-run/",
]
BOTH = ["/drafts/{draft}/"]
SENT = {
    "Cache-Control": "no-store",
    "Referrer-Policy": "same-origin",
    "X-Content-Type-Options": "nosniff",
    "Access-Control-Allow-Origin": None,
}
"""Headers of every page."""
PREFERENCES = [
    "/theme/",
    "/rows/",
    "/keys/",
]  # kept in the browser, so open to everyone


def begin_everything(web: Placement) -> str:
    """Roll it out as well, beside a staged run that waits; return the id of its decision."""
    stage = {
        "name": "all",
        "labelSelector": {},
        "beforeStageTasks": [{"type": "Approval"}],
    }
    save_strategy(strategy_document(stage), by=None, now=NOW)
    decided("shelf", staged_spec())
    start_run("one", placement="shelf", strategy="careful", by=None, now=NOW)
    sync_due_rollouts(now=NOW)
    start_report(by=None, now=NOW)
    live_hub("rome")
    disruptions_of("web", by=None, now=NOW)
    return web.decisions.select_related("record").get().record.decision_id


@pytest.fixture
def decision_id(web: Placement) -> str:
    """Return the id of a decision, with something of everything beside it."""
    return begin_everything(web)


def address_of(address: str, decision_id: str) -> str:
    """Put what there is into an address."""
    numbers = {
        key: model._default_manager.latest("pk").pk
        for key, model in (
            ("event", Event),
            ("eviction", Eviction),
        )
    }
    return address.format(id=decision_id, **numbers)


@pytest.fixture
def draft(operator: Client, web: Placement) -> int:
    """Start a draft of the operator; return its number."""
    ana = User.objects.get(pk=operator.session["_auth_user_id"])
    return start_draft(dump_yaml(web.document), placement=web, by=ana, now=NOW).pk


@pytest.mark.servers
def test_every_page_is_well_formed_and_brings_no_code_of_its_own(
    operator: Client, decision_id: str, subtests: pytest.Subtests
) -> None:
    """Reading them changes nothing, either."""
    before = stored()

    for address in [*READ, *READ_AND_WRITE, *ASK, *WRITE]:
        with subtests.test(address):
            _refuse_faults(operator, address_of(address, decision_id))

    changed = {table for table, rows in stored().items() if rows != before[table]}
    assert changed <= COMPARED


def test_the_pages_of_a_draft_are_well_formed(
    operator: Client, draft: int, subtests: pytest.Subtests
) -> None:
    for address in [*OWN, *BOTH, "/drafts/{draft}/?as=yaml", "/placements/web/edit/"]:
        with subtests.test(address):
            _refuse_faults(operator, address.format(draft=draft))


def _refuse_faults(operator: Client, address: str) -> None:
    answer = operator.get(address)
    outline = Outline(answer.content.decode())

    assert answer.status_code == 200
    assert {name: answer.headers.get(name) for name in SENT} == SENT
    assert outline.problems == []
    assert outline.is_ordered, outline.headings


@pytest.fixture
def approver() -> Client:
    """Return the browser of an approver."""
    browser = Client()
    browser.force_login(person("ann", "approver"))
    return browser


@pytest.mark.usefixtures("decision_id")
@pytest.mark.parametrize("address", APPROVE)
def test_only_an_approver_opens_what_approves(
    approver: Client,
    operator: Client,
    viewer: Client,
    stranger: Client,
    client: Client,
    address: str,
) -> None:
    outline = Outline(approver.get(address).content.decode())
    refused = [
        operator.get(address),
        viewer.post(address),
        operator.post(address),
        stranger.post(address),
    ]

    assert (outline.problems, outline.is_ordered) == ([], True)
    assert [answer.status_code for answer in refused] == [403] * 4
    assert "Required role: <strong>approver</strong>" in refused[2].content.decode()
    assert client.post(address)["Location"].startswith("/login/")


@pytest.fixture
def administrator(web: Placement) -> Client:  # noqa: ARG001 -- its clusters
    """Return the browser of a cluster administrator; jumpingcat has a connection, and rome is a live hub."""
    live_hub("rome")
    spec = ClusterSpec(
        new_member("jumpingcat"),
        driver=KUBERNETES,
        connection={"server": "https://10.0.0.1"},
    )
    upsert_clusters([spec], by=None, now=NOW)
    browser = Client()
    browser.force_login(person("carl", "cluster-administrator"))
    return browser


def test_only_a_cluster_administrator_opens_what_is_about_connections(
    administrator: Client,
    operator: Client,
    viewer: Client,
    stranger: Client,
    client: Client,
    subtests: pytest.Subtests,
) -> None:
    addresses = [
        *product(ADMINISTER[:1], ["get"]),
        *product(ADMINISTER[1:], ["get", "post"]),
        *product(ADMINISTER_POST, ["post"]),
    ]
    for address, method in addresses:
        with subtests.test(address, method=method):
            refused = [
                getattr(one, method)(address) for one in (operator, viewer, stranger)
            ]

            assert [one.status_code for one in refused] == [403] * 3
            assert (
                "Required role: <strong>cluster-administrator</strong>"
                in refused[0].content.decode()
            )
            assert getattr(client, method)(address)["Location"].startswith("/login/")
    for address in [*ADMINISTER, *ADD]:
        with subtests.test(address):
            _refuse_faults(administrator, address)


@pytest.mark.usefixtures("web")
def test_operators_and_cluster_administrators_add_clusters(
    operator: Client, viewer: Client, approver: Client
) -> None:
    browsers = product(ADD, (viewer, approver), ("get", "post"))
    for address, browser, method in browsers:
        refused = getattr(browser, method)(address)
        assert refused.status_code == 403
        assert (
            "<strong>operator or cluster-administrator</strong>"
            in refused.content.decode()
        )
    for address in ADD:
        _refuse_faults(operator, address)
    connected = operator.post(ADD[0], {"kind": "kubernetes", "name": "x"})
    assert connected.status_code == 403


@pytest.mark.usefixtures("decision_id")
def test_an_approver_may_write_nothing_else(
    approver: Client, subtests: pytest.Subtests
) -> None:
    for address, method in product(WRITE, ["get", "post"]):
        with subtests.test(address, method=method):
            answer = getattr(approver, method)(address)

            assert answer.status_code == 403
            assert "Required role: <strong>operator</strong>" in answer.content.decode()


def test_every_page_is_only_for_people_who_are_logged_in(
    client: Client, decision_id: str, subtests: pytest.Subtests
) -> None:
    for address in [*READ, *READ_AND_WRITE, *ASK, *WRITE, *APPROVE]:
        with subtests.test(address):
            answer = client.get(address_of(address, decision_id))

            assert (answer.status_code, answer["Location"].partition("?")[0]) == (
                302,
                "/login/",
            )


def test_every_page_says_what_is_needed_without_a_role(
    stranger: Client, decision_id: str, subtests: pytest.Subtests
) -> None:
    for address in [*READ, *READ_AND_WRITE, *ASK, *WRITE]:
        with subtests.test(address):
            answer = stranger.get(address_of(address, decision_id))

            assert answer.status_code == 403
            assert "No role assigned" in answer.content.decode()


def test_a_draft_is_only_for_people_with_a_role(
    client: Client, stranger: Client, draft: int, subtests: pytest.Subtests
) -> None:
    for address in [*OWN, *POST_OWN, *BOTH]:
        with subtests.test(address):
            assert client.post(address.format(draft=draft)).status_code == 302
            assert stranger.post(address.format(draft=draft)).status_code == 403


def test_a_viewer_changes_no_draft(
    viewer: Client, draft: int, subtests: pytest.Subtests
) -> None:
    for address in [*OWN, *POST_OWN, *BOTH]:
        with subtests.test(address):
            answer = viewer.post(address.format(draft=draft))

            assert answer.status_code == 403
            assert "Required role: <strong>operator</strong>" in answer.content.decode()


def test_another_operator_changes_no_draft(
    draft: int, subtests: pytest.Subtests
) -> None:
    other = Client()
    other.force_login(person("li", "operator"))

    for address in [*OWN, *POST_OWN, *BOTH]:
        with subtests.test(address):
            assert other.post(address.format(draft=draft)).status_code == 404


def test_a_viewer_reads_a_draft_and_is_offered_no_way_to_write(
    viewer: Client, draft: int
) -> None:
    text = page_text(viewer.get(f"/drafts/{draft}/"))

    assert Outline(text).problems == []
    assert "Draft of web by ana" in text
    forms = re.findall(r'<form method="post" action="([^"]*)"', text)
    assert set(forms) == {"/theme/", "/rows/", "/keys/", "/logout/"}


def test_a_viewer_opens_every_page_to_read_and_is_offered_no_way_to_write(
    viewer: Client, decision_id: str, subtests: pytest.Subtests
) -> None:
    for address in [*READ, *READ_AND_WRITE]:
        with subtests.test(address):
            answer = viewer.get(address_of(address, decision_id))
            text = answer.content.decode()

            assert answer.status_code == 200
            links = re.findall(r'(?:href|action)="([^"?#]*)', text)
            ends = ("/edit/", "/new/", "/delete/", "/import/", "/apply/")
            assert [link for link in links if link.endswith(ends)] == []
            forms = re.findall(r'<form method="post" action="([^"]*)"', text)
            assert {*forms} == {"/theme/", "/rows/", "/keys/", "/logout/"}


@pytest.mark.usefixtures("decision_id")
def test_a_viewer_may_run_what_if(viewer: Client, subtests: pytest.Subtests) -> None:
    for address in ASK:
        with subtests.test(address):
            assert viewer.get(address).status_code == 200
            assert viewer.post(address).status_code == 302


@pytest.mark.usefixtures("web")
def test_refuses_a_viewer_who_would_write(
    viewer: Client, subtests: pytest.Subtests
) -> None:
    refused = [*product(WRITE, ["get", "post"]), *product(READ_AND_WRITE, ["post"])]
    for address, method in refused:
        with subtests.test(address, method=method):
            answer = getattr(viewer, method)(address)

            assert answer.status_code == 403
            assert "Required role: <strong>operator</strong>" in answer.content.decode()


@pytest.mark.usefixtures("web")
def test_refuses_everyone_without_a_role_who_would_write(
    client: Client, stranger: Client, subtests: pytest.Subtests
) -> None:
    for address in [*WRITE, *READ_AND_WRITE, *ASK, *POST_ONLY]:
        with subtests.test(address):
            assert client.post(address).status_code == 302
            assert stranger.post(address).status_code == 403


@pytest.mark.usefixtures("decision_id")
def test_lets_an_operator_write(operator: Client, subtests: pytest.Subtests) -> None:
    for address in [*WRITE, *READ_AND_WRITE, *POST_ONLY]:
        with subtests.test(address), rolled_back():
            assert operator.post(address).status_code in (200, 302, 409, 422)


def test_refuses_a_viewer_who_would_load_a_demo(viewer: Client) -> None:
    assert viewer.post("/demo/load/", {"size": "4"}).status_code == 403


def test_a_page_to_read_takes_no_post(
    operator: Client, decision_id: str, subtests: pytest.Subtests
) -> None:
    for address in READ:
        with subtests.test(address):
            assert operator.post(address_of(address, decision_id)).status_code == 405


@pytest.mark.usefixtures("decision_id")
def test_what_only_changes_something_takes_no_get(
    operator: Client, draft: int, subtests: pytest.Subtests
) -> None:
    for address in [*POST_ONLY, *POST_OWN, *PREFERENCES, "/logout/"]:
        with subtests.test(address):
            assert operator.get(address.format(draft=draft)).status_code == 405


def test_no_address_is_missing_in_these_tests() -> None:
    listed = (
        *(
            *READ,
            *READ_AND_WRITE,
            *ASK,
            *WRITE,
            *OWN,
            *POST_ONLY,
            *POST_OWN,
            *BOTH,
            *APPROVE,
        ),
        *(*ADMINISTER, *ADMINISTER_POST, *ADD),
        *PREFERENCES,
    )
    numbers = dict.fromkeys(("draft", "event", "eviction"), 1)
    tested = {
        address.partition("?")[0].format(id="d-0", **numbers) for address in listed
    }
    matched = {get_resolver().resolve(address).url_name for address in tested}

    # Downloads and redirects; what only the pages of live hubs have.
    elsewhere = {"placement-yaml", "comparison-select", "rollout-latest", None}
    # What only superusers open: `test_notifications.py`, `test_users.py`.
    elsewhere |= {
        "notification-channel-test",
        "notification-channel-switch",
        *NOTIFICATION_PAGES,
        *USER_PAGES,
    }
    # Tokens are those of the user, and the access log has a permission: `tests/access`.
    elsewhere |= {
        "tokens",
        "token-revoke",
        "tokens-revoke",
        "access-log",
        "access-log-export",
    }
    elsewhere |= {
        "draft-completions"
    }  # any reader may ask: `tests/services/test_completion.py`
    elsewhere |= {"map-panel"}  # a fragment of the overview: `test_fleet_map.py`
    elsewhere |= {"snooze"}  # kept in the session of any reader: `test_dashboard.py`
    elsewhere |= {"hub-line", "hub-write", "draft-hub-write", "decision-hub", "metrics"}
    assert matched == {pattern.name for pattern in urls.urlpatterns} - elsewhere


@pytest.mark.usefixtures("web")
def test_posts_are_refused_without_a_token(operator: Client) -> None:
    checking = Client(enforce_csrf_checks=True)
    checking.cookies = operator.cookies

    assert checking.post("/clusters/bravelion/leave/").status_code == 403
