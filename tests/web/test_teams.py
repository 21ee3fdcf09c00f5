"""Roles by label: at every address that changes something, by pages, REST and the admin."""

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from django.apps import apps
from django.contrib.auth.models import Group, User
from django.contrib.sessions.models import Session
from django.core.exceptions import PermissionDenied
from django.db import connection
from django.test import Client

from clusters.models import MemberCluster
from fleetui.access.models import AccessEvent, ApiToken, TeamGrant
from fleetui.apimachinery.yaml import dump_yaml, load_documents
from placements.models import Draft, Placement, Problem, ProblemBook, Resource
from placements.services.disruption.budgets import save_budget
from placements.services.editor.operations import start_draft
from placements.services.overrides.operations import save_override
from placements.services.placements import save_placement
from placements.services.resources.operations import apply_resources, delete_resource
from placements.services.rollouts.staged_runs import save_run, save_strategy
from tests.addresses import Address, writing_addresses
from tests.api.test_schema import BODIES, BUDGET
from tests.database import compare_for_long, rolled_back, stored_rows
from tests.rows import (
    NOW,
    api_token,
    config_map,
    joined,
    member_document,
    namespace,
    person,
    pick_n_spec,
    placement_document,
    run_due,
)
from tests.services.rollouts.overrides import annotate, for_clusters, rule
from tests.services.rollouts.staged import (
    run_document,
    stage,
    staged_spec,
    strategy_document,
)

pytestmark = pytest.mark.django_db
FAULTS = Path(__file__).parents[2] / "../shared/faults/security"
OWN_ROUTES = (
    *(
        "/admin/login/",
        "/admin/logout/",
        "/login/",
        "/logout/",
        "/theme/",
        "/rows/",
        "/keys/",
        "/tokens/",
    ),
    "/snooze/",
    *("/admin/password_change/", "/api/v1/token", "/account/", "/oidc/"),
)
"""What belongs to the caller alone: sessions, preferences, tokens."""
OWN_DRAFTS = {"placement-new", "draft-discard"}
"""A draft of the caller; saving it is another address."""
READING = {"simulate", "preview", "preview-semantics", "plan", "what-if", "resilience"}
READING |= {"draft-completions", "exact", "staged-preview"}
"""They run analyses."""


ALIASES = {
    "/api/v1/placements/preview": "a placement of that name, which cannot exist",
}
HUB_ONLY = {"hub-writes", "hub-write", "draft-hub-write"}
"""They write to live hubs: see `tests/api/test_hub_writes.py`."""
ADMIN_READING = ("index", "_changelist", "_history", "view_on_site", "autocomplete")
"""Lists and pages of the admin; the actions of a list are sent to it."""
THROUGH = {
    *(
        "DELETE budget",
        "DELETE override",
        "DELETE placement",
        "DELETE resource",
        "DELETE staged-strategy",
    ),
    *(
        "PUT budget",
        "PUT override",
        "PUT placement",
        "PUT resource",
        "PUT staged-run",
        "PUT staged-strategy",
    ),
    *(
        "POST abandon",
        "POST abandon-cluster",
        "POST apply",
        "POST approve",
        "POST diffs",
        "POST evict",
    ),
    *("PATCH override", "PATCH placement", "PATCH staged-strategy"),
    *(
        "POST pause",
        "POST read-binding-objects",
        "POST reapply",
        "POST reschedule",
        "POST resume",
    ),
    *(
        "POST retry",
        "POST rollback",
        "POST skip-wait",
        "POST start",
        "POST state",
        "POST stop",
        "POST unpin",
    ),
    *(
        "POST placement-pause",
        "POST placement-resume",
        "POST placement-stop",
        "POST placement-start",
    ),
    *(
        "POST placement-unpin",
        "POST placement-roll-back",
        "POST placement-retry",
        "POST placement-reapply",
    ),
    "POST placement-retry-failed",
    "POST staged-run-retry-failed",
    *("POST placement-edit", "POST placement-delete", "POST placement-reschedule"),
    *(
        "POST placement-cluster-read",
        "POST staged-run-create",
        "POST staged-run-resume",
    ),
    *("POST staged-run-pause", "POST staged-run-abandon", "POST staged-run-approve"),
    *("POST staged-run-skip-wait", "POST staged-run-retry", "POST staged-strategy-new"),
    *(
        "POST staged-strategy-edit",
        "POST staged-strategy-delete",
        "POST draft",
        "POST draft-review",
    ),
    *(
        "POST draft-rebase",
        "POST draft-dry-run",
        "POST resource-apply",
        "POST resource-dry-run",
    ),
    "POST resource-delete",
}
"""What an operator and approver of a team does with the objects of the team, and nothing else."""


def labelled(document: Mapping[str, Any], team: str) -> dict[str, Any]:
    """Return a manifest with the label of a team."""
    metadata = {**document["metadata"], "labels": {"team": team}}
    return {**document, "metadata": metadata}


def settings_of(team: str) -> dict[str, Any]:
    return labelled(config_map("settings"), team)


def web_of(team: str, number: int = 1) -> dict[str, Any]:
    return labelled(placement_document("web", pick_n_spec(number)), team)


def grant(user: User, *roles: str, key: str = "team", value: str = "payments") -> None:
    """Grant a user roles for a label, through a group of its own."""
    group = Group.objects.create(name=f"{value}-{user.username}-{'-'.join(roles)}")
    user.groups.add(group)
    for role in roles:
        TeamGrant.objects.create(group=group, role=role, key=key, value=value)


@pytest.fixture
def pia() -> User:
    """Return an operator and approver of the team payments."""
    user = person("pia")
    grant(user, "operator", "approver")
    return user


def load(team: str) -> None:
    """Put an object of every kind on the hub, with the label of a team."""
    joined("a")
    apply_resources(
        [labelled(namespace("shop"), team), settings_of(team)], by=None, now=NOW
    )
    save_placement(web_of(team), by=None, now=NOW)
    save_placement(
        labelled(placement_document("shelf", staged_spec()), team), by=None, now=NOW
    )
    save_budget(BUDGET, by=None, now=NOW)
    override = for_clusters("tier", rule(annotate(tier="1")))
    save_override(labelled(override, team), by=None, now=NOW)
    save_strategy(
        labelled(strategy_document(stage("all", before=True)), team), by=None, now=NOW
    )
    save_run(run_document("one", placementName="shelf"), by=None, now=NOW)
    run_due()


class Caller:
    """Calls addresses as one user, REST by a token and pages by a session."""

    def __init__(self, user: User, team: str) -> None:
        self.user, self.team = user, team
        self.client = Client()
        self.client.force_login(user)
        self.token = api_token(user)
        web = Placement.objects.get(name="web")
        self.draft = start_draft(
            dump_yaml(web_of(team, 2)), placement=web, by=user, now=NOW
        )

    def name_at(self, route: str, part: str) -> Any:
        """Return what is there for a place in a route."""
        starts: dict[str, dict[str, Any]] = {
            "/admin/": {"object_id": 1, "id": self.user.pk, "name": "cordon"},
            "/api/v1/staged-strategies": {"name": "careful"},
            "/api/v1/staged-runs": {"name": "one"},
            "/api/v1/overrides": {
                "kind": "ClusterResourceOverride",
                "namespace": "-",
                "name": "tier",
            },
            "/api/v1/resources": {
                "group": "core",
                "kind": "ConfigMap",
                "namespace": "shop",
                "name": "settings",
            },
            "/resources": {
                "group": "_",
                "kind": "ConfigMap",
                "namespace": "shop",
                "name": "settings",
            },
            "/overrides": {
                "kind": "ClusterResourceOverride",
                "namespace": "-",
                "name": "tier",
            },
            "/drafts": {"number": self.draft.pk},
            "/rollouts/staged/runs": {"name": "one"},
            "/rollouts/staged/strategies": {"name": "careful"},
            "/placements/<full_name:name>/staged-run": {"name": "shelf"},
            "/api/v1/placements": {"name": "web"},
            "/placements": {"name": "web"},
            "/rollouts": {"name": "web"},
        }
        names = next(
            (names for start, names in starts.items() if route.startswith(start)), {}
        )
        rest = {
            "number": 1,
            "name": "a",
            "cluster": "a",
            "value": "a",
            "before": "p0",
            "after": "p0",
        }
        rest |= {"action": "cordon"}
        return {
            **rest,
            "prefix": "d-0",
            "form": "csv",
            "content_type_id": 1,
            "provider_id": "oidc",
            "path": "guides/index",
            **names,
        }[part]

    def call(self, one: Address) -> Any:
        path = one.path(self.name_at)
        if one.is_rest:
            body = self.body(one)
            return Client().generic(
                *(one.method, path, json.dumps(body)),
                content_type="application/json",
                headers={"Authorization": f"Token {self.token}"},
            )
        return self.client.post(path, self.form(one))

    def body(self, one: Address) -> Any:
        if one.name == "apply":
            return {
                "kind": "List",
                "items": [settings_of(self.team), web_of(self.team, 2)],
            }
        if one.name == "placement":
            return web_of(self.team, 2)
        if one.name == "resource":
            return settings_of(self.team)
        route = (
            one.route.replace("<full_name:", "{")
            .replace("<named:", "{")
            .replace(">", "}")
        )
        document: Any = BODIES.get(f"{one.method} {route}", {})
        is_labelled = one.method == "PUT" and one.name in (
            "override",
            "staged-strategy",
        )
        return labelled(document, self.team) if is_labelled else document

    def form(self, one: Address) -> dict[str, str]:
        if one.route.startswith("/admin/"):
            cluster = str(MemberCluster.objects.get().pk)
            return {
                "action": "cordon",
                "_selected_action": cluster,
                "names": "a",
                "apply": "1",
            }
        name = "new" if one.name == "staged-strategy-new" else "careful"
        changed = {**settings_of(self.team), "data": {"a": "b"}}
        manifest = (
            strategy_document(stage("x"), name=name)
            if "strategy" in one.name
            else changed
        )
        return {
            "manifest": dump_yaml(labelled(manifest, self.team)),
            "do": "save",
            "revision": "1",
        }


def is_own(one: Address) -> bool:
    return one.route.startswith(OWN_ROUTES) or one.name in OWN_DRAFTS


def checked_addresses() -> list[Address]:
    """Return the addresses to which the rule applies."""
    return [
        address
        for address in writing_addresses()
        if not is_own(address)
        and not (address.name in READING and address.method == "POST")
        and address.route not in ALIASES
        and address.name not in HUB_ONLY
    ]


def is_refused(answer: Any) -> bool:
    is_login = answer.status_code == 302 and "/login/" in answer["Location"]
    return answer.status_code in (403, 405) or is_login


def counts() -> dict[str, int]:
    """Return how many rows each table has, the access log and sessions apart; every change has an event."""
    tables = [
        model._meta.db_table
        for model in apps.get_models()
        if model not in (AccessEvent, Session)
    ]
    with connection.cursor() as cursor:
        cursor.execute(
            " UNION ALL ".join(
                f"SELECT '{table}', COUNT(*) FROM {table}" for table in tables
            )
        )
        return dict(cursor.fetchall())


def stored() -> dict[str, dict[Any, tuple[Any, ...]]]:
    """Return all rows, without tokens and without what any reader has compared with all else."""
    unchanged = {one._meta.label for one in (ApiToken, Problem, ProblemBook)}
    return {
        label: rows for label, rows in stored_rows().items() if label not in unchanged
    }


@pytest.mark.parametrize(
    "part", ["console", pytest.param("admin", marks=pytest.mark.nightly)]
)
def test_every_address_refuses_what_is_of_another_team(pia: User, part: str) -> None:
    load("other")
    caller = Caller(pia, "other")
    compare_for_long()
    errors, before = [], stored()
    for address in checked_addresses():
        if address.route.startswith("/admin/") != (part == "admin"):
            continue
        with rolled_back():
            answer = caller.call(address)
            after = stored()
        is_admin = address.route.startswith("/admin/")
        is_read = is_admin and (
            not address.name or address.name.endswith(ADMIN_READING)
        )
        if not (is_read or is_refused(answer)) or before != after:
            errors.append(f"{address.method} {address.route}: {answer.status_code}")

    assert not errors, "\n".join(errors)


def test_no_address_changes_what_is_of_another_team_by_a_label_of_ones_own(
    pia: User,
) -> None:
    load("other")
    caller = Caller(pia, "payments")
    compare_for_long()
    errors, before = [], stored()
    for address in checked_addresses():
        if address.route.startswith("/admin/"):
            continue
        with rolled_back():
            caller.call(address)
            after = stored()
        for table, rows in before.items():
            is_changed = any(after[table].get(key) != row for key, row in rows.items())
            if (
                is_changed and table != Draft._meta.label
            ):  # a draft of the caller is changed before it is saved
                errors.append(f"{address.method} {address.route}: {table}")

    assert not errors, "\n".join(errors)


def inputs_of_the_audit() -> list[dict[str, Any]]:
    """Return what the audit applied: rights in the namespace of others, and their namespace on a cluster."""
    documents = load_documents((FAULTS / "poc-team-inject.yaml").read_text())
    return [
        json.loads(json.dumps(document.data).replace("blue", "payments"))
        for document in documents
    ]


@pytest.mark.skipif(not FAULTS.is_dir(), reason="needs ../shared")
def test_the_attacks_of_the_audit_are_refused_at_every_door(pia: User) -> None:
    load("other")
    TeamGrant.objects.update(namespaces="payments-*")
    client, token = Client(), api_token(pia)
    client.force_login(pia)
    how: Any = {
        "content_type": "application/json",
        "headers": {"Authorization": f"Token {token}"},
    }
    before, answers = stored(), []
    for document in inputs_of_the_audit():
        text, name = json.dumps(document), document["metadata"]["name"]
        answers += [
            Client().post(f"/api/v1/apply{query}", text, **how)
            for query in ("", "?dryRun=All")
        ]
        if document["kind"] == "ClusterResourcePlacement":
            answers.append(Client().put(f"/api/v1/placements/{name}", text, **how))
        else:
            group, namespace = (
                document["apiVersion"].split("/")[0],
                document["metadata"].get("namespace", "-"),
            )
            path = f"/api/v1/resources/{group}/{document['kind']}/{namespace}/{name}"
            answers.append(Client().put(path, text, **how))
        for do in ("preview", "apply"):
            form = {"manifest": dump_yaml(document), "do": do}
            answers.append(client.post("/resources/apply/", form))

    assert [answer.status_code for answer in answers] == [403] * 15
    assert all(
        "The grant of team=payments does not include" in answer.content.decode()
        for answer in answers
    )
    assert stored() == before


@pytest.mark.nightly
def test_every_address_of_a_team_lets_its_operators_through(pia: User) -> None:
    load("payments")
    caller = Caller(pia, "payments")
    compare_for_long()
    through = set()
    for address in checked_addresses():
        with rolled_back():
            answer = caller.call(address)
            if (
                not address.route.startswith("/admin/")
                and not is_refused(answer)
                and answer.status_code != 404
            ):
                through.add(f"{address.method} {address.name}")

    assert sorted((through - {"POST "}) ^ THROUGH) == []


@pytest.mark.nightly
def test_nothing_leaves_or_enters_a_team(pia: User) -> None:
    load("payments")
    apply_resources([labelled(config_map("theirs"), "other")], by=None, now=NOW)
    changes = [
        lambda: save_placement(web_of("other"), by=pia, now=NOW),
        lambda: save_placement(
            placement_document("web", pick_n_spec(2)), by=pia, now=NOW
        ),
        lambda: apply_resources([settings_of("other")], by=pia, now=NOW),
        lambda: apply_resources(
            [labelled(config_map("theirs"), "payments")], by=pia, now=NOW
        ),
        lambda: delete_resource(("", "Namespace", "", "shop"), by=pia, now=NOW),
    ]
    for change in changes:
        with pytest.raises(PermissionDenied, match="team=payments only"):
            change()

    assert Placement.objects.get(name="web").document["metadata"]["labels"] == {
        "team": "payments"
    }
    assert Resource.objects.count() == 3
    save_placement(web_of("payments", 2), by=pia, now=datetime.now(UTC))


def test_an_override_of_a_team_patches_nothing_of_another(pia: User) -> None:
    load("payments")
    apply_resources([labelled(namespace("theirs"), "other")], by=None, now=NOW)
    theirs = {"group": "", "version": "v1", "kind": "Namespace", "name": "theirs"}
    override = for_clusters("theirs", rule(annotate(tier="1")), of=theirs)

    with pytest.raises(PermissionDenied):
        save_override(labelled(override, "payments"), by=pia, now=NOW)


@pytest.mark.nightly
def test_documents_of_clusters_are_for_operators_of_the_fleet(pia: User) -> None:
    load("payments")
    answer = Client().post(
        "/api/v1/apply",
        json.dumps(member_document("a", {"region": "west"})),
        content_type="application/json",
        headers={"Authorization": f"Token {api_token(pia)}"},
    )

    assert answer.status_code == 403
    assert "member clusters" in answer.json()["detail"]


def test_pages_offer_what_the_rule_allows(pia: User) -> None:
    load("payments")
    save_placement(
        labelled(placement_document("theirs", pick_n_spec(1)), "other"),
        by=None,
        now=NOW,
    )
    client = Client()
    client.force_login(pia)

    ours, theirs = (
        client.get(f"/placements/{one}/").content.decode() for one in ("web", "theirs")
    )

    assert 'href="/placements/web/edit/"' in ours
    assert 'href="/placements/theirs/edit/"' not in theirs
    assert "for its label" in theirs
    listed = client.get("/placements/").content.decode()
    assert 'href="/placements/web/edit/"' in listed
    assert 'href="/placements/theirs/edit/"' not in listed
    assert (
        "Your role applies to the label team=payments only"
        in client.get("/placements/theirs/edit/").content.decode()
    )


def test_the_page_to_apply_manifests_hides_secrets_of_other_teams(pia: User) -> None:
    load("payments")
    secret = {**config_map("key"), "kind": "Secret", "data": {"key": "cGxhbnRlZA=="}}
    apply_resources([labelled(secret, "other")], by=None, now=NOW)
    client = Client()
    client.force_login(pia)

    page = client.get("/resources/apply/?from=/Secret/shop/key").content.decode()

    assert "(hidden)" in page
    assert "cGxhbnRlZA==" not in page


@pytest.mark.nightly
def test_lists_cost_no_query_more_for_a_row(
    pia: User, django_assert_max_num_queries: Any
) -> None:
    load("payments")
    for number in range(5):
        document = labelled(
            placement_document(f"p{number}", pick_n_spec(1)), "payments"
        )
        save_placement(document, by=None, now=NOW)
    compare_for_long()
    client = Client()
    client.force_login(pia)

    with django_assert_max_num_queries(12):
        client.get("/placements/")
