"""Who may call what: every address of the schema, by every role."""

from functools import cache
from typing import Any

import pytest
from rest_framework.test import APIClient

from placements.models import Decision
from tests.api.schema import generated_schema
from tests.database import rolled_back
from tests.rows import decided, joined, pick_n_spec

READING_POSTS = {
    "/api/v1/decisions/{decision}/exact",
    "/api/v1/placements/preview",
    "/api/v1/placements/preview/semantics",
    "/api/v1/placements/{name}/plan",
    "/api/v1/simulate",
    "/api/v1/staged-strategies/{name}/preview",
    "/api/v1/what-if",
    "/api/v1/what-if/resilience",
}
OWN = {"/api/v1/tokens", "/api/v1/tokens/{number}"}
"""What everyone with a role changes: their own tokens."""
OPEN = {"/api/v1/token"}
APPROVING = [("POST", "/api/v1/staged-runs/{name}/approve")]
HUB_WRITES = "/api/v1/hubs/{name}/writes"
"""Each action of it has a role of its own: see test_hub_writes."""
IMPORTING = ("POST", "/api/v1/cluster-imports")
"""Operators, and administrators of connections: which of them is known by the file."""
ADMINISTERING = ("/connection", "/connection/check", "/connection/renew", "/prepare")
"""The ends of the paths that show or change the connections of clusters and hubs."""
MANAGED = ("/api/v1/notifications/", "/api/v1/access-log")
ROLES = [(), ("viewer",), ("approver",), ("operator",), ("cluster-administrator",)]

pytestmark = pytest.mark.django_db


@cache
def operations() -> list[tuple[str, str]]:
    """Return the method and path of every operation of the schema that needs a token."""
    return sorted(
        (method.upper(), path)
        for path, methods in generated_schema()["paths"].items()
        for method in methods
        if path not in OPEN and (path, method) != (HUB_WRITES, "post")
    )


@cache
def administering() -> list[tuple[str, str]]:
    """Return the operations on connections of clusters, reading ones included."""
    return [
        (method, path)
        for method, path in operations()
        if path.endswith(ADMINISTERING)
        or (method != "GET" and path.startswith("/api/v1/hubs"))
    ]


@cache
def writing() -> list[tuple[str, str]]:
    """Return the operations that change something, approvals and connections apart."""
    return [
        (method, path)
        for method, path in operations()
        if method != "GET"
        and path not in READING_POSTS | OWN
        and (method, path) not in [*APPROVING, IMPORTING, *administering(), *managing()]
    ]


@cache
def managing() -> list[tuple[str, str]]:
    """Return the operations on notifications and the access log, which no role permits."""
    return [(method, path) for method, path in operations() if path.startswith(MANAGED)]


@cache
def reading() -> list[tuple[str, str]]:
    """Return the operations that change nothing."""
    return [
        operation
        for operation in operations()
        if operation not in [*writing(), *APPROVING, IMPORTING]
        and operation not in [*administering(), *managing()]
    ]


def address(path: str) -> str:
    """Put names into an address."""
    names = {
        "name": "a",
        "number": "1",
        "decision": "d-0000",
        "group": "core",
        "kind": "X",
        "namespace": "-",
    }
    names |= {"cluster": "a"}
    for key, value in names.items():
        path = path.replace(f"{{{key}}}", value)
    return path


def call(client: APIClient, method: str, path: str) -> Any:
    """Call an address with a body that is no document."""
    return client.generic(method, address(path), "[]", content_type="application/json")


def test_the_matrix_covers_what_changes_something() -> None:
    assert len(writing()) == 46
    assert all(path in {path for _, path in reading()} for path in READING_POSTS)


def test_no_calls_without_a_token(subtests: pytest.Subtests) -> None:
    for method, path in operations():
        with subtests.test(path, method=method):
            answer = call(APIClient(), method, path)

            assert answer.status_code == 401
            assert answer.headers["WWW-Authenticate"] == "Token"
            assert answer.headers["Content-Type"] == "application/problem+json"


def test_no_role_manages_notifications_or_views_the_access_log(
    caller, subtests: pytest.Subtests
) -> None:
    clients = [caller(*roles) for roles in ROLES]
    assert len(managing()) == 9
    for method, path in managing():
        with subtests.test(path, method=method):
            assert {call(client, method, path).status_code for client in clients} == {
                403
            }


@pytest.mark.parametrize("roles", ROLES)
def test_only_operators_write(
    caller, roles: tuple[str, ...], subtests: pytest.Subtests
) -> None:
    client = caller(*roles)
    for method, path in writing():
        with subtests.test(path, method=method), rolled_back():
            answer = call(client, method, path)

            assert (answer.status_code == 403) == (roles != ("operator",))


@pytest.mark.parametrize("roles", ROLES)
@pytest.mark.parametrize(("method", "path"), APPROVING)
def test_only_approvers_approve(
    caller, method: str, path: str, roles: tuple[str, ...]
) -> None:
    answer = call(caller(*roles), method, path)

    assert (answer.status_code == 403) == (roles != ("approver",))


@pytest.mark.parametrize("roles", ROLES)
def test_only_operators_and_approvers_write_to_hubs(
    caller, roles: tuple[str, ...]
) -> None:
    answer = call(caller(*roles), "POST", HUB_WRITES)

    assert (answer.status_code == 403) == (roles not in (("operator",), ("approver",)))


@pytest.mark.parametrize("roles", ROLES)
def test_only_cluster_administrators_see_and_set_connections(
    caller, roles: tuple[str, ...], subtests: pytest.Subtests
) -> None:
    assert len(administering()) == 10
    client = caller(*roles)
    for method, path in administering():
        with subtests.test(path, method=method), rolled_back():
            answer = call(client, method, path)

            assert (answer.status_code == 403) == (roles != ("cluster-administrator",))


@pytest.mark.parametrize(
    "roles",
    [
        *ROLES[:2],
        *(pytest.param(role, marks=pytest.mark.nightly) for role in ROLES[2:]),
    ],
)
def test_every_role_reads(
    caller, roles: tuple[str, ...], subtests: pytest.Subtests
) -> None:
    client = caller(*roles)
    for method, path in reading():
        with subtests.test(path, method=method), rolled_back():
            answer = call(client, method, path)

            assert (answer.status_code == 403) == (not roles)


def test_what_a_viewer_may_not_do_is_not_done(reader: APIClient) -> None:
    joined("a")
    decided("web", pick_n_spec(1))

    answers = [
        reader.delete("/api/v1/placements/web"),
        reader.post("/api/v1/clusters/a/cordon"),
    ]

    assert [answer.status_code for answer in answers] == [403, 403]
    assert Decision.objects.get().placement is not None
