"""Who gets through at every address of the URL configuration that may change something, by role."""

import json
from typing import Any

import pytest
from django.test import Client

from tests.addresses import Address
from tests.database import compare_for_long, rolled_back
from tests.rows import person
from tests.web.test_teams import (
    ADMIN_READING,
    Caller,
    checked_addresses,
    counts,
    is_refused,
    load,
)

pytestmark = [
    pytest.mark.django_db,
    pytest.mark.nightly,
]  # each is a call of every address
APPROVING = {"POST approve", "POST staged-run-approve"}
ADMINISTERING = {
    *("POST check", "PUT connection", "DELETE connection", "POST renew", "POST hubs"),
    *(
        "POST cluster-new",
        "POST cluster-import",
        "POST cluster-connection-edit",
        "POST cluster-connection-check",
    ),
    *(
        "POST cluster-connection-renew",
        "POST cluster-connection-remove",
        "POST hub-new",
    ),
}


class Stranger(Caller):
    """Calls addresses without logging in."""

    def call(self, one: Address) -> Any:
        path = one.path(self.name_at)
        if one.is_rest:
            body = json.dumps(self.body(one))
            return Client().generic(
                one.method, path, body, content_type="application/json"
            )
        return Client().post(path, self.form(one))


def through(caller: Caller) -> tuple[set[str], set[str]]:
    """Return the addresses that did not refuse, and those that changed something."""
    compare_for_long()
    passed, changed, before = set(), set(), counts()
    for address in checked_addresses():
        name = f"{address.method} {address.name}"
        with rolled_back():
            answer = caller.call(address)
            if before != counts():
                changed.add(name)
        is_admin = address.route.startswith("/admin/")
        is_read = is_admin and (
            not address.name or address.name.endswith(ADMIN_READING)
        )
        if (
            not is_read
            and not is_refused(answer)
            and answer.status_code not in (401, 404)
        ):
            passed.add(name)
    return passed, changed


@pytest.mark.parametrize("roles", [(), ("viewer",)])
def test_without_a_role_that_changes_nothing_is_changed(roles: tuple[str, ...]) -> None:
    load("payments")

    assert through(Caller(person("vera", *roles), "payments")) == (set(), set())


def test_without_logging_in_nothing_is_changed() -> None:
    load("payments")

    assert through(Stranger(person("ana", "operator"), "payments")) == (set(), set())


@pytest.mark.parametrize(
    ("role", "allowed"),
    [("approver", APPROVING), ("cluster-administrator", ADMINISTERING)],
)
def test_a_role_gets_through_where_it_counts(role: str, allowed: set[str]) -> None:
    load("payments")

    passed, changed = through(Caller(person("ana", role), "payments"))

    assert passed <= allowed
    assert changed <= allowed


def test_an_operator_neither_approves_nor_administers() -> None:
    load("payments")

    passed, changed = through(Caller(person("ana", "operator"), "payments"))

    assert len(passed) > 60
    assert (passed | changed) & (APPROVING | ADMINISTERING) == {
        "POST cluster-new",
        "POST cluster-import",
    }  # simulated ones
