"""Who may call what: every address of the schema, by every role."""

from typing import Any

import pytest
from drf_spectacular.generators import SchemaGenerator
from rest_framework.test import APIClient

from placements.models import Decision
from tests.rows import decided, joined, pick_n_spec

READING_POSTS = {
    "/api/v1/placements/preview",
    "/api/v1/placements/preview/semantics",
    "/api/v1/placements/{name}/plan",
    "/api/v1/simulate",
    "/api/v1/what-if",
}
OPEN = {"/api/v1/token"}
SCHEMA = SchemaGenerator().get_schema(request=None, public=True)
OPERATIONS = sorted(
    (method.upper(), path)
    for path, operations in SCHEMA["paths"].items()
    for method in operations
    if path not in OPEN
)
APPROVING = [("POST", "/api/v1/staged-runs/{name}/approve")]
WRITING = [
    (method, path)
    for method, path in OPERATIONS
    if method != "GET" and path not in READING_POSTS and (method, path) not in APPROVING
]
READING = [one for one in OPERATIONS if one not in WRITING and one not in APPROVING]
ROLES = [(), ("viewer",), ("approver",), ("operator",)]

pytestmark = pytest.mark.django_db


def address(path: str) -> str:
    """Put names into an address."""
    names = {"name": "a", "number": "1", "decision": "d-0000", "group": "core", "kind": "X", "namespace": "-"}
    for key, value in names.items():
        path = path.replace(f"{{{key}}}", value)
    return path


def call(client: APIClient, method: str, path: str) -> Any:
    """Call an address with a body that is no document."""
    return client.generic(method, address(path), "[]", content_type="application/json")


def test_the_matrix_covers_what_changes_something() -> None:
    assert len(WRITING) == 37
    assert all(path in {path for _, path in READING} for path in READING_POSTS)


@pytest.mark.parametrize(("method", "path"), OPERATIONS)
def test_nobody_calls_without_a_name(method: str, path: str) -> None:
    answer = call(APIClient(), method, path)

    assert answer.status_code == 401
    assert answer.headers["WWW-Authenticate"] == "Token"
    assert answer.headers["Content-Type"] == "application/problem+json"


@pytest.mark.parametrize("roles", ROLES)
@pytest.mark.parametrize(("method", "path"), WRITING)
def test_only_operators_write(caller, method: str, path: str, roles: tuple[str, ...]) -> None:
    answer = call(caller(*roles), method, path)

    assert (answer.status_code == 403) == (roles != ("operator",))


@pytest.mark.parametrize("roles", ROLES)
@pytest.mark.parametrize(("method", "path"), APPROVING)
def test_only_approvers_approve(caller, method: str, path: str, roles: tuple[str, ...]) -> None:
    answer = call(caller(*roles), method, path)

    assert (answer.status_code == 403) == (roles != ("approver",))


@pytest.mark.parametrize("roles", ROLES)
@pytest.mark.parametrize(("method", "path"), READING)
def test_every_role_reads(caller, method: str, path: str, roles: tuple[str, ...]) -> None:
    answer = call(caller(*roles), method, path)

    assert (answer.status_code == 403) == (not roles)


def test_what_a_viewer_may_not_do_is_not_done(reader: APIClient) -> None:
    joined("a")
    decided("web", pick_n_spec(1))

    answers = [reader.delete("/api/v1/placements/web"), reader.post("/api/v1/clusters/a/cordon")]

    assert [answer.status_code for answer in answers] == [403, 403]
    assert Decision.objects.get().placement is not None
