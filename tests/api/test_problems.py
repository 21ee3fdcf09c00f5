"""Bad requests are answered with what is wrong, never with a server error."""

import base64
import json
from itertools import product
from typing import Any

import pytest
from django.core.cache import cache
from rest_framework.test import APIClient

from fleetui.apimachinery.yaml import LARGEST_UPLOAD
from placements.models import Placement, Resource
from tests.database import rolled_back
from tests.rows import (
    joined,
    member_document,
    namespace,
    pick_n_spec,
    placement_document,
    saved,
)

WEB = "/api/v1/placements/web"
DEEP = "[" * 100_000
BODIES: dict[str, Any] = {
    "nothing": b"",
    "half of it": b'{"apiVersion": ',
    "a NUL": b'{"kind": "\x00"}',
    "an escaped NUL": b'{"kind": "ClusterResourcePlacement", "metadata": {"name": "a\\u0000b"}}',
    "half a character": b'{"kind": "ClusterResourcePlacement", "metadata": {"name": "\\ud800"}}',
    "half a character as a key": b'{"\\ud800": 1}',
    "a huge integer": b'{"spec": 1' + b"0" * 5000 + b"}",
    "a large integer": b'{"apiVersion": 1' + b"0" * 60 + b"}",
    "no number": b'{"a": NaN}',
    "infinity": b'{"a": 1e999}',
    "bottomless nesting": DEEP.encode(),
    "deep nesting": b'{"a":' * 5000 + b"1" + b"}" * 5000,
    "a key twice": b'{"kind": "A", "kind": "B"}',
    "not UTF-8": b"\xff\xfe\x00",
    "text": b'"text"',
    "null": b"null",
    "a number": b"12",
    "a list": b"[1, null]",
    "odd metadata": b'{"kind": "ClusterResourcePlacement", "metadata": [], "spec": null}',
    "an odd kind": b'{"kind": {"a": 1}, "metadata": {"name": {}}}',
}
TARGETS = [
    ("PUT", WEB),
    ("PUT", "/api/v1/clusters/a"),
    ("PUT", "/api/v1/resources/core/Namespace/-/shop"),
    ("PUT", "/api/v1/clusters/a/labels"),
    ("PATCH", "/api/v1/clusters/a/labels"),
    ("PUT", "/api/v1/clusters/a/taints"),
    ("POST", "/api/v1/clusters/a/heartbeat"),
    ("POST", "/api/v1/apply"),
    ("POST", "/api/v1/simulate"),
    ("POST", "/api/v1/placements/preview"),
    ("POST", "/api/v1/token"),
]


def is_problem(answer: Any) -> bool:
    """Return whether an answer is a problem with all that belongs to one."""
    problem = answer.json()
    return (
        answer.headers["Content-Type"] == "application/problem+json"
        and problem["status"] == answer.status_code
        and bool(problem["title"] and problem["detail"] and problem["type"])
    )


@pytest.mark.nightly
@pytest.mark.parametrize(("method", "path"), TARGETS)
def test_an_odd_body_is_refused(
    api: APIClient, method: str, path: str, subtests: pytest.Subtests
) -> None:
    joined("a")

    for kind, (name, body) in product(
        ["application/json", "application/yaml"], BODIES.items()
    ):
        cache.clear()  # attempts to get a token are counted
        with subtests.test(name, kind=kind), rolled_back():
            answer = api.generic(method, path, body, content_type=kind)

            assert answer.status_code in (400, 413, 422)
            assert is_problem(answer)


def test_faults_have_path_code_words_and_line(api: APIClient) -> None:
    text = (
        "apiVersion: placement.kubernetes-fleet.io/v1\nkind: ClusterResourcePlacement\n"
    )
    text += "metadata:\n  name: web\nspec:\n  resourceSelectors: []\n  policy:\n    placementType: PickSome\n"

    answer = api.generic("PUT", WEB, text, content_type="application/yaml")

    errors = answer.json()["faults"]
    assert answer.status_code == 422
    assert [(error["path"], error["code"], error["line"]) for error in errors] == [
        ("spec.resourceSelectors", "too-few", 6),
        ("spec.policy.placementType", "not-one-of", 8),
    ]
    assert "PickAll" in errors[1]["allowed"]


def test_json_is_read_strictly(api: APIClient) -> None:
    answer = api.generic("PUT", WEB, "{kind: Yaml}", content_type="application/json")

    assert (answer.status_code, answer.json()["faults"][0]["code"]) == (
        400,
        "bad-syntax",
    )


def test_several_documents_are_not_one(api: APIClient) -> None:
    answer = api.generic(
        "PUT", WEB, "a: 1\n---\nb: 2\n", content_type="application/yaml"
    )

    assert (answer.status_code, answer.json()["faults"][0]["code"]) == (400, "too-many")


def test_too_large_a_body_is_refused(api: APIClient) -> None:
    body = "#" * (LARGEST_UPLOAD + 1)
    answer = api.generic("PUT", WEB, body, content_type="application/yaml")

    assert answer.status_code == 413
    assert is_problem(answer)


@pytest.mark.parametrize(
    "kind",
    [
        "text/plain",
        "multipart/form-data; boundary=x",
        "application/x-www-form-urlencoded",
    ],
)
def test_another_type_of_body_is_refused(api: APIClient, kind: str) -> None:
    answer = api.generic("PUT", WEB, "a=b", content_type=kind)

    assert answer.status_code == 415
    assert is_problem(answer)


@pytest.mark.parametrize("method", ["POST", "OPTIONS", "TRACE"])
def test_another_method_is_refused(api: APIClient, method: str) -> None:
    answer = api.generic(method, WEB)

    assert answer.status_code == 405
    assert answer.headers["Allow"] == "GET, PUT, PATCH, DELETE, HEAD, OPTIONS"
    assert is_problem(answer)


@pytest.mark.parametrize(
    "path",
    ["", "v1/", "v1/nothing", "v1/clusters/", "v1/clusters/a%00b", "v1/events/x"],
)
def test_an_unknown_address_is_a_problem(api: APIClient, path: str) -> None:
    answer = api.get(f"/api/{path}")

    assert answer.status_code == 404
    assert is_problem(answer)


def test_html_is_not_acceptable(api: APIClient) -> None:
    answer = api.get("/api/v1/clusters", headers={"accept": "text/html"})

    assert answer.status_code == 406
    assert is_problem(answer)


LISTS = ["clusters", "placements", "resources", "decisions", "events"]


QUERIES = [
    "limit=0",
    "limit=501",
    "limit=x",
    "limit=" + "9" * 5000,
    "after=%00",
    "after=nonsense",
    "odd=1",
]
FORGED: list[object] = [
    *(
        [],
        ["a"],
        [1, 2],
        ["a", "b", "c"],
        [10**300, 10**300],
        [True],
        [None],
        ["a\0", 1],
        [10**30],
        "x",
        1,
    )
]


@pytest.mark.servers_only
@pytest.mark.servers
@pytest.mark.parametrize("name", LISTS)
def test_an_odd_parameter_is_refused(
    reader: APIClient, name: str, subtests: pytest.Subtests
) -> None:
    for query in QUERIES:
        with subtests.test(query):
            answer = reader.get(f"/api/v1/{name}?{query}")

            assert answer.status_code == 400
            assert is_problem(answer)


@pytest.mark.servers
@pytest.mark.parametrize("name", LISTS)
def test_a_forged_cursor_is_refused_or_finds_something(
    reader: APIClient, name: str, subtests: pytest.Subtests
) -> None:
    for values in FORGED:
        with subtests.test(str(values)), rolled_back():
            cursor = (
                base64.urlsafe_b64encode(json.dumps(values).encode())
                .decode()
                .rstrip("=")
            )

            assert reader.get(f"/api/v1/{name}?after={cursor}").status_code in (
                200,
                400,
            )


def test_a_bottomless_cursor_is_refused(reader: APIClient) -> None:
    cursor = base64.urlsafe_b64encode(b"[" * 1490).decode().rstrip("=")

    assert reader.get(f"/api/v1/clusters?after={cursor}").status_code == 400


@pytest.mark.parametrize(
    "query", ["state=odd", "order=secret", "type=PickSome", "semantics=x"]
)
def test_a_filter_that_there_is_not_is_refused(reader: APIClient, query: str) -> None:
    answer = reader.get(f"/api/v1/placements?{query}")

    assert answer.status_code == 400
    assert answer.json()["faults"][0]["path"] == query.partition("=")[0]


def test_a_stale_edit_learns_who_saved_what(api: APIClient) -> None:
    joined("a")
    tag = api.get("/api/v1/clusters/a").headers["ETag"]
    api.patch("/api/v1/clusters/a/labels", {"env": "prod"})

    answer = api.patch(
        "/api/v1/clusters/a/labels", {"env": "test"}, headers={"If-Match": tag}
    )

    problem = answer.json()
    assert (answer.status_code, problem["revision"]) == (412, 2)
    assert [
        (change["by"], change["what"], change["revision"])
        for change in problem["changes"]
    ] == [("operator", "changed", 2)]


EDITS: list[tuple[str, str, Any]] = [
    ("PUT", "clusters/a", member_document("a", {"x": "y"})),
    ("DELETE", "clusters/a", None),
    ("PUT", "clusters/a/labels", {"x": "y"}),
    ("PATCH", "clusters/a/labels", {"x": "y"}),
    ("PUT", "clusters/a/taints", []),
    ("POST", "clusters/a/cordon", None),
    ("POST", "clusters/a/uncordon", None),
    ("PUT", "placements/web", placement_document("web", pick_n_spec(2))),
    ("DELETE", "placements/web", None),
    ("PUT", "resources/core/Namespace/-/shop", namespace("shop", team="a")),
    ("DELETE", "resources/core/Namespace/-/shop", None),
]


@pytest.mark.nightly
@pytest.mark.parametrize(("method", "path", "body"), EDITS)
def test_every_edit_honours_if_match(
    api: APIClient, method: str, path: str, body: object
) -> None:
    joined("a")
    saved("web", pick_n_spec(1))
    api.put("/api/v1/resources/core/Namespace/-/shop", namespace("shop"))
    address, text = f"/api/v1/{path}", json.dumps(body) if body is not None else ""

    answers = [
        api.generic(
            method,
            address,
            text,
            content_type="application/json",
            headers={"If-Match": tag},
        )
        for tag in ('"9"', '"odd"', "9", '"1"')
    ]

    assert [answer.status_code for answer in answers[:3]] == [412, 412, 412]
    assert answers[3].status_code in (200, 202, 204)


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("path", "document"),
    [(path, body) for method, path, body in EDITS if method == "PUT"],
)
def test_what_must_be_new_is_refused_when_it_is_there(
    api: APIClient, path: str, document: object
) -> None:
    if path.endswith(("labels", "taints")):
        pytest.skip("parts are there with their cluster")
    new = {"If-None-Match": "*"}

    first = api.put(f"/api/v1/{path}", document, headers=new)
    second = api.put(f"/api/v1/{path}", document, headers=new)

    assert (first.status_code, second.status_code) == (201, 412)


def test_what_must_be_there_is_refused_when_it_is_not(api: APIClient) -> None:
    document = placement_document("web", pick_n_spec(1))

    answers = [
        api.put(WEB, document, headers={"If-Match": tag}) for tag in ("*", '"1"')
    ]

    assert [answer.status_code for answer in answers] == [412, 412]
    assert Placement.objects.count() == 0


def test_a_reader_who_has_it_already_gets_nothing(api: APIClient) -> None:
    api.put("/api/v1/resources/core/Namespace/-/shop", namespace("shop"))
    address = "/api/v1/resources/core/Namespace/-/shop"
    tag = api.get(address).headers["ETag"]

    answers = [
        api.get(address, headers={"If-None-Match": each})
        for each in (tag, f'W/{tag}, "x"', '"0"')
    ]

    assert [answer.status_code for answer in answers] == [304, 304, 200]
    assert answers[0].content == b""
    assert Resource.objects.count() == 1
