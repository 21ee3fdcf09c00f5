"""On a live hub every door refuses what may change something, unless it is sent to the hub or kept here."""

import json
from typing import Any

import pytest
from django.core.management import get_commands
from django.test import Client

from clusters.middleware import HUB_INDEPENDENT
from fleetui.hub_backend import live_backend
from fleetui.hub_scope import HubDecidesError
from placements.hubs import abilities
from placements.hubs.api.objects import HANDLERS
from tests.addresses import Address, page_names, writing_addresses
from tests.database import rolled_back
from tests.live_hubs import live_hub, move_rows_to
from tests.rows import person
from tests.web.test_teams import Caller, counts, load

pytestmark = pytest.mark.django_db
MOUNT = "/hubs/paris"


def own(one: Address) -> bool:
    """Return whether an address is served below the mount of a hub."""
    return not one.route.startswith(HUB_INDEPENDENT)


def is_done(one: Address) -> bool:
    operation = f"{one.method} {one.name}"
    if one.is_rest:
        return operation in abilities.SAME_IN_REST or operation in HANDLERS
    return one.name in abilities.FORMS


class CallerOfHub(Caller):
    """Calls the addresses of a live hub, as a user who may do everything."""

    def name_at(self, route: str, part: str) -> Any:
        return "d-0" if part == "decision" else super().name_at(route, part)

    def call(self, one: Address) -> Any:
        path = f"{MOUNT}{one.path(self.name_at)}"
        if not one.is_rest:
            form = (
                {"action": "cordon"}
                if one.route.startswith("/admin/")
                else self.form(one)
            )
            return self.client.post(path, form)
        headers = {"Authorization": f"Token {self.token}"}
        body = json.dumps(self.body(one))
        return Client().generic(
            one.method, path, body, content_type="application/json", headers=headers
        )


def test_the_tables_name_what_there_is() -> None:
    pages = page_names()
    rest = {
        f"{address.method} {address.name}"
        for address in writing_addresses()
        if address.is_rest
    }
    names = {one.partition(" ")[2] for one in rest}

    assert sorted(abilities.NO_PAGES - pages - names) == []
    assert sorted(abilities.FORMS - pages) == []
    assert sorted(abilities.SAME_IN_REST - rest) == []
    assert sorted(HANDLERS.keys() - rest) == []
    assert sorted(abilities.COMMANDS - get_commands().keys()) == []


@pytest.mark.larger
def test_what_is_not_sent_to_the_hub_is_refused_and_changes_nothing() -> None:
    load("payments")
    user = person("ana", "viewer", "operator", "approver", "cluster-administrator")
    user.is_superuser = user.is_staff = True
    user.save()
    caller = CallerOfHub(user, "payments")
    move_rows_to(live_hub("paris"))
    caller.client.get(f"{MOUNT}/")  # which compares the problems once
    refused, changed, accepted = [], [], set()
    for address in filter(own, writing_addresses()):
        with rolled_back():
            before = counts()
            answer = caller.call(address)
            is_refused = (
                answer.status_code == 409 and b"live hub decides" in answer.content
            )
            if is_done(address):
                accepted.add(address.name)
                if is_refused:
                    refused.append(address)
                continue
            is_admin = address.route.startswith("/admin/")
            if before != counts() or not (
                is_refused or (is_admin and answer.status_code in (403, 404, 405))
            ):
                changed.append((address, answer.status_code))

    assert refused == []
    assert changed == []
    assert len(accepted) > 25


@pytest.mark.parametrize("path", ["resilience", "resilience/placements/web"])
def test_a_report_that_only_the_local_hub_has_is_refused_with_that_reason(
    path: str,
) -> None:
    live_hub("paris")
    user = person("ana", "viewer")
    user.is_superuser = True
    user.save()
    client = Client()
    client.force_login(user)

    answer = client.get(f"{MOUNT}/api/v1/what-if/{path}")

    assert answer.status_code == 409
    assert "available on the local hub only" in answer.json()["detail"]


@pytest.mark.parametrize("name", sorted(get_commands()))
def test_a_command_that_may_change_something_is_refused(name: str) -> None:
    refusal = live_backend().refusal_of_command(name)

    assert (refusal is None) == (name in abilities.READING)
    assert refusal is None or isinstance(refusal, HubDecidesError)
