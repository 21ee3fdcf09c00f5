"""All pages of a live hub: no link and no form leads to something that the hub refuses (11, 13.1)."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from html.parser import HTMLParser
from typing import Any
from urllib.parse import urljoin, urlsplit

import pytest
from django.test import Client
from django.urls import resolve

from clusters.models import MemberCluster
from fleetui.hub_backend import current_backend
from fleetui.hub_scope import in_hub
from tests.effort import IS_FULL
from tests.hubs.hub_documents import (
    approval,
    budget,
    condition,
    eviction,
    member,
    override,
    placement,
    run_status,
    staged_run,
    strategy,
)
from tests.hubs.projecting import ProjectedHub
from tests.hubs.test_observed_rollouts import at
from tests.hubs.test_projection_placements import changed, put_web, scheduled
from tests.hubs.test_projection_staged import (
    DONE,
    PROD,
    STARTED,
    WAITS,
    canary,
    cluster,
    progressing,
)
from tests.rows import person

pytestmark = [pytest.mark.django_db, pytest.mark.servers_nightly]
MOUNT = "/hubs/prod-eu"
MOST_OF_A_PAGE, MOST = 4 if IS_FULL else 2, 400
ROLES = ("operator", "approver", "cluster-administrator")
EXPECTED = frozenset(
    {
        *(
            "overview",
            "clusters",
            "cluster",
            "topology",
            "placements",
            "placement",
            "placement-history",
        ),
        *(
            "rollouts",
            "rollout",
            "staged-run",
            "staged-strategies",
            "staged-strategy",
            "activity",
            "event",
        ),
        *(
            "what-if",
            "resources",
            "cluster-drain",
            "placement-edit",
            "draft",
            "draft-review",
        ),
    }
)
"""Pages that a reader of a hub reaches by links and forms."""


@dataclass
class Form:
    """A form with the values that a browser sends without any input."""

    action: str
    values: dict[str, str] = field(default_factory=dict)
    buttons: list[tuple[str, str]] = field(default_factory=list)


class Page(HTMLParser):
    """The links and the forms with method POST of a page."""

    def __init__(self, address: str) -> None:
        super().__init__()
        self.address, self.links = address, set[str]()
        self.forms: list[Form] = []
        self._form: Form | None = None
        self._text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {key: value or "" for key, value in attrs}
        for key in ("href", "hx-get") if tag != "link" else ():
            if key in values:
                self.links.add(urljoin(self.address, values[key]))
        if tag == "form":
            self._form = None
            if values.get("method", "").lower() == "post":
                action = values.get("action") or self.address
                self._form = Form(urljoin(self.address, action))
                self.forms.append(self._form)
        elif self._form is not None and tag == "button":
            self._form.buttons.append((values.get("name", ""), values.get("value", "")))
        elif self._form is not None and values.get("name"):
            is_choice = values.get("type") in ("radio", "checkbox")
            if tag == "textarea":
                self._text = values["name"]
                self._form.values[self._text] = ""
            elif tag == "input" and (not is_choice or "checked" in values):
                self._form.values[values["name"]] = values.get("value", "")

    def handle_endtag(self, tag: str) -> None:
        if tag == "form":
            self._form = None
        elif tag == "textarea":
            self._text = ""

    def handle_data(self, data: str) -> None:
        if self._form is not None and self._text:
            self._form.values[self._text] += data


def is_ours(url: str) -> bool:
    path = urlsplit(url).path
    shared = ("about/", "admin/", "hubs/", "inbox/", "help/", "users/")
    return path.startswith(f"{MOUNT}/") and not path.startswith(
        tuple(f"{MOUNT}/{one}" for one in shared)
    )


def name_of(url: str) -> str:
    """Return the name of the page at an address of the hub; the REST API has none."""
    match = resolve(urlsplit(url).path.removeprefix(MOUNT))
    return match.url_name if match.namespace == "web" else ""  # type: ignore[return-value]


def pages(client: Client, start: str) -> Iterator[Page]:
    """Yield the pages that links, and redirects after a form, lead to; of each kind a few."""
    waiting, done, counts = [start], {start}, Counter[str]()
    while waiting and sum(counts.values()) < MOST:
        url = waiting.pop(0)
        name = name_of(url)
        if not name or counts[name] >= MOST_OF_A_PAGE:
            continue
        counts[name] += 1
        answer = client.get(url)
        if answer.status_code in (301, 302):
            found = {urljoin(url, answer["Location"])}
        else:
            assert answer.status_code == 200, (
                url,
                answer.status_code,
                answer.content[-600:],
            )
            page = Page(url)
            if answer["Content-Type"].startswith("text/html"):
                page.feed(answer.content.decode())
            yield page
            found = {link.partition("#")[0] for link in page.links}
            for form in page.forms:
                if (
                    is_ours(form.action) and name_of(form.action) != "draft-discard"
                ):  # which is visited later
                    found |= submitted(client, form)
        new = sorted(one for one in found if is_ours(one) and one not in done)
        done.update(new)
        waiting += new
    assert set(counts) >= EXPECTED


def submitted(client: Client, form: Form) -> set[str]:
    """Send a form with each of its buttons; return where it redirects to."""
    found = set()
    for name, value in form.buttons:
        answer = client.post(
            form.action, {**form.values, **({name: value} if name else {})}
        )
        assert answer.status_code != 404, form
        assert b"The live hub decides this" not in answer.content, form
        if answer.status_code == 302:
            found.add(urljoin(form.action, answer["Location"]))
    return found


def busy_hub() -> ProjectedHub:
    """Return a hub with objects of every kind, in states that offer most on a local hub."""
    live = ProjectedHub()
    put_web(live)
    tainted = member("oslo")
    tainted["spec"]["taints"] = [
        {"key": "cordon-key", "value": "cordon-value", "effect": "NoSchedule"}
    ]
    live.put("MemberCluster", tainted)
    external = {"spec": {"strategy": {"type": "External"}}, "status": scheduled()}
    live.put(
        "ClusterResourcePlacement",
        changed(placement("staged"), **external),
        placement("pending"),
        changed(
            placement("leaving"), metadata={"deletionTimestamp": "2026-11-01T09:59:00Z"}
        ),
    )
    live.put("ResourcePlacement", placement("web", namespace="shop"))
    live.put("ClusterStagedUpdateStrategy", strategy("canary-first", "canary", "prod"))
    stages = [canary(cluster("paris", STARTED, DONE), afterStageTaskStatus=WAITS), PROD]
    failed = canary(cluster("paris", STARTED, condition("Succeeded", "False")))
    runs = {
        "run-1": run_status(progressing("UpdateRunWaiting"), stages=stages),
        "run-2": run_status(progressing("UpdateRunStopped"), stages=stages),
        "run-3": run_status(progressing("UpdateRunStuck"), stages=[failed, PROD]),
        "run-4": run_status(condition("Succeeded"), stages=stages),
    }
    for name, status in runs.items():
        live.put(
            "ClusterStagedUpdateRun", {**staged_run(name, "staged"), "status": status}
        )
    live.put("ClusterApprovalRequest", approval("run-1", "canary"))
    live.put("ClusterResourceOverride", override("tier"))
    live.put("ClusterResourcePlacementDisruptionBudget", budget("web", minAvailable=1))
    live.put("ClusterResourcePlacementEviction", eviction("evict-1", "web", "paris"))
    live.project()
    live.put("ClusterResourceBinding", at("rome", steps=2))
    failure = condition("Applied", "False", reason="NotAllWorkHaveBeenApplied")
    broken: dict[str, Any] = at("oslo", steps=3)
    broken["status"]["conditions"][3] |= {**failure, "observedGeneration": 3}
    broken["status"]["failedPlacements"] = [
        {"kind": "ConfigMap", "name": "a", "condition": {}}
    ]
    live.put("ClusterResourceBinding", broken)
    live.put(
        "ClusterResourcePlacement",
        changed(placement("web", clusters=3), status=scheduled()),
    )
    live.project()
    return live


@pytest.mark.larger
def test_no_page_of_a_live_hub_offers_what_the_hub_refuses(client: Client) -> None:
    live = busy_hub()
    user = person("root")
    user.is_superuser = user.is_staff = True  # is offered what any role is
    user.save()
    client.force_login(user)

    for page in pages(client, f"{MOUNT}/"):
        for url in filter(is_ours, page.links):
            match = resolve(urlsplit(url).path.removeprefix(MOUNT))
            with in_hub(live.hub.pk):
                refusal = current_backend().refusal(match.view_name, is_form=False)
            assert refusal is None, (page.address, url)


def test_the_admin_of_a_live_hub_reads_only(client: Client) -> None:
    live = busy_hub()
    user = person("root", *ROLES)
    user.is_superuser = user.is_staff = True
    user.save()
    client.force_login(user)
    with live.scope():
        key = MemberCluster.objects.get(name="paris").pk

    listed = client.get(f"{MOUNT}/admin/clusters/membercluster/").content.decode()
    shown = client.get(
        f"{MOUNT}/admin/clusters/membercluster/{key}/change/"
    ).content.decode()

    assert "paris" in listed
    assert "paris" in shown
    for words in (
        'name="action"',
        "Add member cluster",
        "Import clusters",
        ">Cordon<",
        'name="_save"',
    ):
        assert words not in listed + shown
    assert client.get(f"{MOUNT}/admin/clusters/membercluster/add/").status_code == 403
    assert (
        "Add member cluster"
        in client.get("/admin/clusters/membercluster/").content.decode()
    )


def test_a_page_that_could_only_refuse_is_not_shown(client: Client) -> None:
    busy_hub()
    client.force_login(person("root", *ROLES))

    for address in (
        "clusters/new/",
        "clusters/import/",
        "clusters/paris/cordon/",
        "placements/web/delete/",
        "placements/web/pause/",
        "placements/staged/staged-run/",
        "rollouts/staged/new-strategy/",
        "rollouts/staged/runs/run-1/approve/canary/",
        "resources/apply/",
    ):
        answer = client.get(f"{MOUNT}/{address}")
        assert (answer.status_code, b"The live hub decides this" in answer.content) == (
            409,
            True,
        ), address
        assert client.get(f"/{address}").status_code in (200, 404), address
    assert Client().get(f"{MOUNT}/clusters/new/").status_code == 302
