"""Pages that write to a live hub: preview, conflicts, apply, and copies where nothing may be sent."""

import html
import re
from collections.abc import Iterator
from typing import Any

import pytest
from django.test import Client

from fleetui.apimachinery.yaml import dump_yaml, load_documents
from fleetui.hub_scope import in_hub
from placements.hubs.web import writes as hub_writes
from placements.hubs.write_requests import KINDS
from placements.models import Binding, Draft, Drain, Placement
from tests.hubs.hub_documents import (
    approval,
    placement,
    run_status,
    staged_run,
    strategy,
)
from tests.hubs.test_projection_placements import scheduled
from tests.hubs.writable import WritableHub, writable_hub
from tests.rows import person

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("collected_static")]
ROOT = "/hubs/prod-eu"


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[WritableHub]:
    monkeypatch.setattr(hub_writes, "MIRROR_SECONDS", 0.0)
    with writable_hub() as live_hub:
        yield live_hub


def visitor(*roles: str) -> Client:
    client = Client()
    client.force_login(person("-".join(roles) or "no-role", *roles))
    return client


def text(response: Any) -> str:
    return html.unescape(response.content.decode())


def hidden(response: Any, *, do: str = "apply") -> dict[str, list[str]]:
    """Return the hidden fields of the form with that button."""
    page = response.content.decode()
    forms = re.findall(r"<form method=\"post\".*?</form>", page, re.S)
    form = next(one for one in forms if f'value="{do}"' in one)
    entered: dict[str, list[str]] = {}
    for name, value in re.findall(
        r'type="hidden" name="([^"]*)" value="([^"]*)"', form
    ):
        entered.setdefault(name, []).append(html.unescape(value))
    entered.pop("csrfmiddlewaretoken", None)
    return {**entered, "do": [do]}


def test_labels_are_previewed_and_then_applied(hub: WritableHub) -> None:
    client = visitor("operator")
    cluster = text(client.get(f"{ROOT}/clusters/east/"))
    assert f'href="{ROOT}/hub-write/labels/?name=east"' in cluster

    form = client.get(f"{ROOT}/hub-write/labels/?name=east")
    assert "region=eu</textarea>" in text(form)
    assert hub.fake.seen == []  # a page alone requests nothing

    entered = {"name": "east", "labels": "tier=gold"}
    preview = client.post(f"{ROOT}/hub-write/labels/", {**entered, "do": "preview"})
    assert preview.status_code == 200, text(preview)
    preview_text = text(preview)
    assert "The hub accepts this." in preview_text
    assert "/metadata/labels/region" in preview_text
    assert "Impact on placements" in preview_text
    assert hub.sent() == []

    done = client.post(f"{ROOT}/hub-write/labels/", hidden(preview))
    assert (done.status_code, done.headers["Location"]) == (
        302,
        f"{ROOT}/clusters/east/",
    )
    assert hub.fake.get("memberclusters", "east")["metadata"]["labels"] == {
        "tier": "gold"
    }
    assert "The mirror has not caught up yet" in text(
        client.get(f"{ROOT}/clusters/east/")
    )
    about = text(client.get(f"{ROOT}/about/"))
    assert "MemberCluster east" in about
    assert "Accepted" in about


def test_an_outdated_preview_sends_nothing_and_shows_the_present_one(
    hub: WritableHub,
) -> None:
    client = visitor("operator")
    preview = client.post(
        f"{ROOT}/hub-write/cordon/", {"name": "east", "do": "preview"}
    )
    east = hub.fake.get("memberclusters", "east")
    hub.put(
        "MemberCluster",
        {**east, "spec": {**east["spec"], "heartbeatPeriodSeconds": 30}},
    )

    answer = client.post(f"{ROOT}/hub-write/cordon/", hidden(preview))
    assert answer.status_code == 409
    assert "Nothing was sent" in text(answer)
    assert "Changed on the hub: spec.heartbeatPeriodSeconds." in text(answer)
    assert hub.sent() == []
    done = client.post(f"{ROOT}/hub-write/cordon/", hidden(answer))
    assert done.status_code == 302
    assert len(hub.sent()) == 1


def draft_of(client: Client, number: int) -> tuple[int, str]:
    """Start a draft of the placement with another number of clusters; return its number and address."""
    placement = Placement.objects.get(name="web")
    document = {**placement.document, "spec": {**placement.document["spec"]}}
    document["spec"]["policy"] = {"placementType": "PickN", "numberOfClusters": number}
    document["metadata"] = {**document["metadata"], "labels": {"team": "shop"}}
    client.post(
        f"{ROOT}/placements/web/edit/",
        {
            "mode": "yaml",
            "as": "yaml",
            "manifest": dump_yaml(document),
            "revision": placement.revision,
        },
    )
    row = Draft.objects.get()
    return row.pk, f"{ROOT}/drafts/{row.pk}"


def test_a_draft_with_a_conflict_is_applied_by_taking_ownership(
    hub: WritableHub,
) -> None:
    hub.put(
        "ClusterResourcePlacement",
        hub.fake.get("clusterresourceplacements", "web"),
        manager="flux",
    )
    hub.projected.project()
    client = visitor("operator")
    with in_hub(hub.hub.pk):
        number, address = draft_of(client, 1)
    review = text(client.get(f"{address}/review/"))
    assert f'action="{address}/hub-write/"' in review
    assert "Save web" not in review

    preview = client.post(f"{address}/hub-write/", {"do": "preview"})
    preview_text = text(preview)
    assert "spec.policy.numberOfClusters" in preview_text
    assert "A GitOps tool manages this object" in preview_text
    assert 'value="apply"' not in preview_text
    assert "Copy patch" in preview_text

    shown = hidden(preview, do="take")
    assert shown["overwrite"] == ["spec.policy.numberOfClusters"]
    forced = client.post(f"{address}/hub-write/", shown)
    assert "/spec/policy/numberOfClusters" in text(forced)

    done = client.post(f"{address}/hub-write/", hidden(forced))
    assert (done.status_code, done.headers["Location"]) == (
        302,
        f"{ROOT}/placements/web/",
    )
    stored = hub.fake.get("clusterresourceplacements", "web")
    assert stored["spec"]["policy"]["numberOfClusters"] == 1
    assert stored["metadata"]["labels"] == {"team": "shop"}
    assert [document["force"] for document in hub.sent()] == ["true"]
    with in_hub(hub.hub.pk):
        assert not Draft.objects.filter(pk=number).exists()


@pytest.mark.parametrize("columns", [{"mode": "read"}, {}])
def test_without_permission_there_are_copies_and_nothing_is_sent(
    hub: WritableHub, columns: dict[str, Any]
) -> None:
    hub.change(**columns) if columns else None
    client = visitor("operator" if columns else "viewer")
    page = text(client.get(f"{ROOT}/hub-write/cordon/?name=east"))

    assert ("read only" if columns else "Required role: operator") in page
    assert (
        "kubectl patch memberclusters.cluster.kubernetes-fleet.io east --type merge"
        in page
    )
    assert "Hub preview" not in page
    for do in ("preview", "apply", "take"):
        client.post(
            f"{ROOT}/hub-write/cordon/", {"name": "east", "do": do, "token": "x"}
        )
    patch = client.post(f"{ROOT}/hub-write/cordon/", {"name": "east", "do": "patch"})
    assert patch.headers["Content-Disposition"] == 'attachment; filename="patch.yaml"'
    [document] = load_documents(patch.content.decode())
    assert document.data == {
        "spec": {
            "taints": [
                {"key": "cordon-key", "value": "cordon-value", "effect": "NoSchedule"}
            ]
        }
    }
    assert hub.fake.seen == []


def test_a_placement_in_a_namespace_is_scaled(hub: WritableHub) -> None:
    stored = hub.put(
        "ResourcePlacement", placement("web", namespace="shop"), manager="fleetui"
    )
    client = visitor("operator")
    entered = {
        "name": "web",
        "namespace": "shop",
        "numberOfClusters": "4",
        "do": "preview",
    }

    preview = client.post(f"{ROOT}/hub-write/scale/", entered)
    assert f'href="{ROOT}/placements/shop:web/"' in text(preview)
    done = client.post(f"{ROOT}/hub-write/scale/", hidden(preview))

    assert done.headers["Location"] == f"{ROOT}/placements/shop:web/"
    after = hub.fake.get("resourceplacements", "web", "shop")
    assert after["spec"]["policy"]["numberOfClusters"] == 4
    assert after["metadata"]["uid"] == stored["metadata"]["uid"]
    assert (
        hub.fake.get("clusterresourceplacements", "web")["spec"]["policy"][
            "numberOfClusters"
        ]
        == 2
    )


def test_a_drain_is_started_and_canceled(hub: WritableHub) -> None:
    client = visitor("operator")
    assert client.get(f"{ROOT}/clusters/east/drain/").status_code == 200

    entered = {"do": "start", "at_once": "2", "minutes": "", "name": "east"}
    started = client.post(f"{ROOT}/clusters/east/drain/", entered)
    assert started.status_code == 302, text(started)
    assert [
        taint["key"]
        for taint in hub.fake.get("memberclusters", "east")["spec"]["taints"]
    ] == ["cordon-key"]
    with in_hub(hub.hub.pk):
        drain = Drain.objects.get()
    assert (drain.state, drain.at_once, drain.started_by) == ("running", 2, "operator")

    client.post(f"{ROOT}/clusters/east/drain/", {"do": "cancel"})
    drain.refresh_from_db()
    assert drain.state == "cancelled"
    assert len(hub.sent()) == 1

    hub.change(mode="read")
    refused = client.post(f"{ROOT}/clusters/west/drain/", {**entered, "name": "west"})
    assert (refused.status_code, "read only" in text(refused)) == (409, True)
    assert (
        visitor("viewer").post(f"{ROOT}/clusters/west/drain/", entered).status_code
        == 403
    )
    assert len(hub.sent()) == 1


ACTIONS = {
    "scale": "name=web&numberOfClusters=3",
    "delete": "kind=ClusterResourcePlacement&name=web",
    "labels": "name=east",
    "taints": "name=east",
    "cordon": "name=east",
    "uncordon": "name=east",
    "evict": "placement=web&cluster=east",
    "start-run": "placement=web",
    "run-state": "name=run&state=Stop",
    "abandon-run": "name=run",
    "approve": "name=run-after-canary",
}


@pytest.mark.nightly
def test_every_page_is_shown_to_every_role_and_sends_for_its_own_alone(
    hub: WritableHub, subtests: pytest.Subtests
) -> None:
    for roles in (
        (),
        ("viewer",),
        ("operator",),
        ("approver",),
        ("cluster-administrator",),
    ):
        client = visitor(*roles)
        for action, query in ACTIONS.items():
            with subtests.test(action, roles=roles):
                page = client.get(f"{ROOT}/hub-write/{action}/?{query}")
                assert page.status_code == (200 if roles else 404)
                is_own = roles == (
                    ("approver",) if action == "approve" else ("operator",)
                )
                assert ("Required role" in text(page)) == (bool(roles) and not is_own)
                fields = dict(part.split("=") for part in query.split("&"))
                answer = client.post(
                    f"{ROOT}/hub-write/{action}/", {**fields, "do": "apply"}
                )
                assert (answer.status_code in (403, 404)) == (not is_own), (
                    answer.status_code
                )
    assert hub.sent() == []
    assert (
        visitor("operator", "viewer").get("/hub-write/cordon/?name=east").status_code
        == 404
    )
    assert (
        visitor("operator", "approver").get(f"{ROOT}/hub-write/explode/").status_code
        == 404
    )


@pytest.mark.nightly
def test_an_action_that_the_hub_does_not_allow_is_not_offered(hub: WritableHub) -> None:
    verbs = {
        "list": True,
        "watch": True,
        "create": False,
        "patch": False,
        "delete": False,
    }
    permissions = [
        {
            "resource": "memberclusters.cluster.kubernetes-fleet.io",
            "isRequired": True,
            "verbs": verbs,
        }
    ]
    requests = len(hub.fake.seen)
    hub.change(found={"permissions": permissions})
    page = visitor("operator").get(f"{ROOT}/hub-write/cordon/?name=east")

    assert "the account of the console may not patch memberclusters" in text(page)
    assert 'value="preview"' not in text(page)
    assert "kubectl patch" in text(page)
    assert len(hub.fake.seen) == requests  # the watcher has read what is allowed
    hub.change(identity="impersonate")
    page = visitor("operator", "viewer").get(f"{ROOT}/hub-write/cordon/?name=east")
    assert "may not patch" not in text(page)


def test_each_control_says_whether_the_hub_lets_the_account_do_it(
    hub: WritableHub,
) -> None:
    """Disabled with the reason and how to grant it, from what was read before: no page sends a request."""
    client = visitor("operator", "approver")
    with in_hub(hub.hub.pk):
        hub.put("ClusterStagedUpdateStrategy", strategy("plan", "canary"))
        hub.put(
            "ClusterStagedUpdateRun", {**staged_run("web-1"), "status": run_status()}
        )
        hub.put("ClusterApprovalRequest", approval("web-1", "canary"))
        hub.projected.project()
        Binding.objects.filter(cluster_name="east").update(phase="failed")
    pages = {
        "rollouts/staged/runs/web-1/": ("run-state", "abandon-run", "approve"),
        "clusters/east/": ("labels", "taints", "cordon"),
        "placements/web/": ("scale", "delete"),
        "placements/web/clusters/east/": ("evict",),
    }
    assert "<option>plan</option>" in text(
        client.get(f"{ROOT}/hub-write/start-run/?placement=web")
    )
    verbs = {
        "list": True,
        "watch": True,
        "create": False,
        "patch": False,
        "delete": False,
    }
    refused = [
        {"resource": kind.resource, "isRequired": True, "verbs": verbs}
        for kind in KINDS.values()
    ]
    for permissions, is_offered in (([], True), (refused, False)):
        hub.change(found={"permissions": permissions})
        for address, actions in pages.items():
            page = text(client.get(f"{ROOT}/{address}"))
            for action in actions:
                button = rf'<a class="button[^"]*" href="{ROOT}/hub-write/{action}/'
                assert bool(re.search(button, page)) is is_offered, action
            assert (
                "manage.py connect_hub --rbac operator prints" in page
            ) is not is_offered
        problem = text(client.get(f"{ROOT}/placements/web/")).partition(
            'aria-label="Problems"'
        )[2]
        evict = f'href="{ROOT}/hub-write/evict/?placement=web&cluster=east">Evict</a>'
        assert (evict in problem.partition("</ul>")[0]) is is_offered
        drain = text(client.get(f"{ROOT}/clusters/east/drain/"))
        assert ("Drain east</button>" in drain) is is_offered
        with in_hub(hub.hub.pk):
            _, address = draft_of(client, 5)
        review = text(client.get(f"{address}/review/"))
        assert ("Hub preview" in review) is is_offered
        actions = client.get(f"/api/v1{ROOT}/actions").json()
        allowed_actions = {action["action"]: action["allowed"] for action in actions}
        assert set(allowed_actions.values()) == {is_offered}
    assert not any(seen.plural.endswith("reviews") for seen in hub.fake.seen)
    hub.change(found={}, mode="read")
    page = text(client.get(f"{ROOT}/clusters/east/"))
    assert "Hub prod-eu is read only." in page
    assert (
        f'<a href="{ROOT}/hub-write/cordon/?name=east">Cordon</a>' in page
    )  # its copies stay in reach


def test_a_staged_update_run_is_started_from_the_page_of_its_placement(
    hub: WritableHub,
) -> None:
    web = placement("web")
    web["spec"]["strategy"] = {"type": "External"}
    hub.put("ClusterResourcePlacement", {**web, "status": scheduled(generation=2)})
    hub.put("ClusterStagedUpdateStrategy", strategy("plan", "canary"))
    hub.projected.project()
    client, url = visitor("operator"), f"{ROOT}/hub-write/start-run/"
    words = "Start staged update run"
    page = text(client.get(f"{ROOT}/placements/web/"))
    assert f'<a class="button primary" href="{url}?placement=web">{words}</a>' in page
    assert page.count(f">{words}") == 1

    verbs = {"list": True, "watch": True, "create": False}
    run = {
        "resource": KINDS["ClusterStagedUpdateRun"].resource,
        "isRequired": True,
        "verbs": verbs,
    }
    reasons: dict[str, dict[str, Any]] = {
        "You don't have permission to start staged update runs. Required role: operator.": {},
        "the account of the console may not create clusterstagedupdateruns": {
            "found": {"permissions": [run]}
        },
        "Hub prod-eu is read only.": {"mode": "read"},
    }
    for reason, columns in reasons.items():
        hub.change(**columns)
        page = text(
            (client if columns else visitor("viewer")).get(f"{ROOT}/placements/web/")
        )
        assert re.search(
            rf'aria-disabled="true"[^>]*>{words}<span class="hidden"> \([^)]*{reason}',
            page,
        ), reason

    hub.change(found={}, mode="operate")
    entered = {"placement": "web", "strategy": "plan", "name": "web-1"}
    preview = client.post(url, {**entered, "do": "preview"})
    client.post(url, hidden(preview))
    assert (
        hub.fake.get("clusterstagedupdateruns", "web-1")["spec"]["placementName"]
        == "web"
    )


def test_a_review_of_the_last_minute_is_known_to_pages(hub: WritableHub) -> None:
    """Also of an impersonated person, whose permissions the watcher cannot read."""
    hub.change(identity="impersonate")
    hub.fake.strangers.add("fleetui:operator")
    client = visitor("operator")
    assert "may not patch" not in text(client.get(f"{ROOT}/clusters/east/"))
    preview = text(
        client.post(f"{ROOT}/hub-write/cordon/", {"name": "east", "do": "preview"})
    )
    assert "binds a role that allows it to the group fleetui:operator" in preview
    requests = len(hub.fake.seen)
    assert "fleetui:operator may not patch memberclusters" in text(
        client.get(f"{ROOT}/clusters/east/")
    )
    assert "may not patch" not in text(
        visitor("operator", "viewer").get(f"{ROOT}/clusters/east/")
    )
    assert len(hub.fake.seen) == requests


def test_a_namespace_is_not_created_from_the_editor_of_a_live_hub(
    hub: WritableHub,
) -> None:
    hub.projected.project()
    client = visitor("operator")
    field = "spec.resourceSelectors[0].name"
    sent = {"mode": "form", "namespace": field}

    page = text(client.get(f"{ROOT}/placements/new/?from=web"))
    answer = client.post(
        f"{ROOT}/placements/new/?from=web", sent, headers={"HX-Request": "true"}
    )

    assert 'name="namespace"' not in page
    assert "The namespace was not created. The live hub decides this." in text(answer)
    assert hub.sent() == []
