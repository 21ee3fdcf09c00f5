"""Budgets of requests: size, time, seconds of a user, waiting analyses, values of JSON."""

import inspect
import json
import pkgutil
import re
import time
from importlib import import_module
from io import BytesIO
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client, override_settings

from fleetui import middleware
from fleetui.apimachinery import yaml
from fleetui.apimachinery.errors import InvalidManifest
from fleetui.middleware import BudgetSpentError, reserve, settle
from placements import web
from placements.models import Decision, Placement
from tests.addresses import costly_addresses
from tests.caches import forget_budgets
from tests.rows import (
    api_token,
    config_map,
    decided,
    joined,
    person,
    pick_n_spec,
    placement_document,
    saved,
)

LONGEST = 64 * 1024 * 1024


@pytest.fixture(autouse=True)
def _full_budgets() -> None:
    forget_budgets()


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("[" + ",".join(["{}"] * 9) + "]", 10),
        ("[" + ",".join(["[ ]"] * 9) + "]", 10),
        (json.dumps({f"k{number}": "a,[{" for number in range(9)}), 10),
        ('["' + r"\",[{" * 20 + '"]', 2),
        (json.dumps([[1, 2, {"a": None}], True]), 7),
    ],
)
def test_values_of_json_are_counted_before_they_are_built(
    monkeypatch: pytest.MonkeyPatch, text: str, count: int
) -> None:
    monkeypatch.setattr(yaml, "MOST_VALUES", count)
    assert yaml.load_json(text) == json.loads(text)

    monkeypatch.setattr(yaml, "MOST_VALUES", count - 1)
    monkeypatch.setattr(json, "loads", None)
    with pytest.raises(InvalidManifest, match="holds too many values"):
        yaml.load_json(text)


def test_a_text_that_ends_in_a_string_is_counted_in_one_pass(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(yaml, "MOST_VALUES", 3)
    started = time.process_time()

    with pytest.raises(InvalidManifest):
        yaml.load_json('[",,,' + r"\"" * 500_000)

    assert time.process_time() - started < 5


def test_many_quick_previews_pass_and_long_ones_do_not() -> None:
    with override_settings(COMPUTE_SECONDS=60):
        for number in range(600):  # five a second, each a tenth of a second
            settle(
                "ann", deposit=reserve("ann", now=number / 5), used=0.1, now=number / 5
            )
        for _ in range(6):
            settle("bob", deposit=reserve("bob", now=0), used=10, now=0)
        with pytest.raises(BudgetSpentError) as spent:
            reserve("bob", now=0)
        reserve("ann", now=120)
        reserve("bob", now=spent.value.wait + 0.01)

    assert spent.value.wait == pytest.approx(0.1)


@pytest.fixture
def ann() -> dict[str, str]:
    return {"Authorization": f"Token {api_token(person('ann', 'operator'))}"}


@pytest.mark.nightly
@pytest.mark.django_db
@pytest.mark.usefixtures("collected_static")
def test_what_computes_much_is_throttled_for_its_user_alone(
    ann: dict[str, str],
) -> None:
    joined("a")
    document = placement_document("web", pick_n_spec(1))
    simulate = {"clusters": [{"name": "a"}], "placement": document}
    calls: list[tuple[str, Any]] = [
        ("/api/v1/simulate", simulate),
        ("/api/v1/placements/preview", document),
        ("/api/v1/placements/preview/semantics", document),
        ("/api/v1/what-if", {"clusters": ["a"]}),
        ("/api/v1/apply?dryRun=All", document),
    ]
    user, other = User.objects.get(username="ann"), person("bob", "viewer")
    for address, body in calls:
        forget_budgets()
        first = Client().post(
            address, body, content_type="application/json", headers=ann
        )
        assert first.status_code < 300, (address, first.content)
        settle(user.pk, deposit=0, used=1000)

        again = Client().post(
            address, body, content_type="application/json", headers=ann
        )

        assert again.status_code == 429, address
        assert int(again.headers["Retry-After"]) > 0
        assert again.headers["Content-Type"] == "application/problem+json"
        assert Client().get("/api/v1/clusters", headers=ann).status_code == 200
    bob = {"Authorization": f"Token {api_token(other)}"}
    answer = Client().post(
        "/api/v1/simulate", simulate, content_type="application/json", headers=bob
    )
    assert answer.status_code == 200


@pytest.mark.django_db
@pytest.mark.usefixtures("collected_static")
def test_pages_that_compute_much_are_throttled() -> None:
    saved("web", pick_n_spec(1))
    user, client = person("ana", "operator"), Client()
    client.force_login(user)
    assert client.get("/placements/web/edit/").status_code == 200
    settle(user.pk, deposit=0, used=1000)

    answer = client.get("/placements/web/edit/")

    assert (answer.status_code, client.get("/placements/web/").status_code) == (
        429,
        200,
    )
    assert int(answer.headers["Retry-After"]) > 0


@pytest.mark.django_db
@pytest.mark.usefixtures("collected_static")
def test_a_request_that_takes_too_long_is_ended_and_changes_nothing(
    ann: dict[str, str],
) -> None:
    client = Client()
    client.force_login(person("ana", "operator"))
    with override_settings(REQUEST_SECONDS=-1):
        rest = Client().put(
            "/api/v1/placements/web",
            placement_document("web", pick_n_spec(1)),
            content_type="application/json",
            headers=ann,
        )

    assert (rest.status_code, rest.json()["type"]) == (
        503,
        "urn:fleetui:problem:too-long",
    )
    assert rest.headers["Retry-After"]
    assert not Placement.objects.exists()


@pytest.mark.nightly
@pytest.mark.django_db
@pytest.mark.usefixtures("collected_static")
@pytest.mark.parametrize(
    ("address", "size", "status"),
    [
        ("/api/v1/token", 64 * 1024 + 1, 413),
        ("/api/v1/apply", LONGEST + 1, 413),
        ("/clusters/a/cordon/", 1024 * 1024 + 1, 413),
        ("/resources/apply/", 4 * LONGEST, 413),
        ("/resources/apply/", 1024, 302),
    ],
)
def test_a_body_that_is_too_large_is_not_read(
    address: str, size: int, status: int
) -> None:
    class Unread(BytesIO):
        def read(self, *_size: Any) -> bytes:
            raise AssertionError("the body was read")

    environment: dict[str, Any] = {"CONTENT_LENGTH": str(size)}
    if status == 413:
        environment["wsgi.input"] = Unread()

    answer = Client().post(address, content_type="application/json", **environment)

    assert answer.status_code == status


@pytest.mark.django_db
@pytest.mark.usefixtures("collected_static")
def test_an_upload_is_in_no_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("django.core.files.temp.NamedTemporaryFile", None)
    client = Client()
    client.force_login(person("ana", "operator"))
    file = BytesIO(
        json.dumps(config_map("large", data={"a": "x" * 4 * 1024 * 1024})).encode()
    )
    file.name = "large.json"

    answer = client.post("/resources/apply/", {"file": file, "do": "preview"})

    assert answer.status_code == 422
    assert "Too large: 4.00 MiB as compact JSON" in answer.content.decode()


@pytest.mark.django_db
@pytest.mark.usefixtures("collected_static")
def test_two_large_requests_at_once_and_no_more(
    monkeypatch: pytest.MonkeyPatch, ann: dict[str, str]
) -> None:
    monkeypatch.setattr(middleware, "LARGE_PATIENCE", 0.01)
    body = json.dumps([{"a": "x" * 1024 * 1024}])
    places = [middleware._large_places.acquire(timeout=1) for _ in range(2)]
    try:
        busy = Client().post(
            "/api/v1/apply", body, content_type="application/json", headers=ann
        )
    finally:
        for _ in places:
            middleware._large_places.release()
    free = Client().post(
        "/api/v1/apply", body, content_type="application/json", headers=ann
    )

    assert (busy.status_code, free.status_code) == (503, 422)
    assert busy.headers["Retry-After"]


_COMPUTES = re.compile(
    r"/(export|report|simulate|preview|semantics|what-if|resilience|plan|advice|diff|compare|drain|reschedule"
    r"|restore|dry-run|draft|import|cluster-change|hub-write)s?(/|$)|[.]csv$|exact"
)
_LIGHT = {
    "GET /api/v1/exact/<named:name>": "the result of a search that a worker does",
    "/drafts/<int:number>/discard/": "deletes a row",
    "/drafts/<int:number>/rebase/": "writes a row",
    "/placements/<full_name:name>/compare/": "redirects",
    "GET /api/v1/what-if/resilience/placements/<full_name:name>": "shows saved rows",
    **{
        f"{one} /api/v1/placements/preview": "a placement of this name"
        for one in ("GET", "PUT", "DELETE")
    },
    "/help/semantics/": "is text",
    "placements.web.connections.prepare_cluster": "fills a template",
    "placements.web.placements.placement_yaml": "writes one saved object",
    "placements.web.request.as_file": "names the file of a response",
}
"""Addresses and functions that sound or look as if they computed, and why they do not."""


@pytest.mark.nightly
def test_every_address_that_exports_or_computes_is_throttled() -> None:
    addresses = {
        address: is_costly
        for address, is_costly in costly_addresses().items()
        if "/admin/" not in address
        and _COMPUTES.search(re.sub(r"<[^>]*>", "x", address))
    }
    downloads = {
        f"{module.__name__}.{name}": getattr(value, "is_costly", False)
        for module_info in pkgutil.iter_modules(web.__path__)
        for module in [import_module(f"placements.web.{module_info.name}")]
        for name, value in vars(module).items()
        if inspect.isfunction(value) and value.__module__ == module.__name__
        if re.search(r"Content-Disposition|\bas_file\(", inspect.getsource(value))
    }
    found = addresses | downloads

    assert len(addresses) > 40
    assert {one for one, is_costly in found.items() if not is_costly} == set(_LIGHT)


@pytest.mark.nightly
@pytest.mark.django_db
@pytest.mark.usefixtures("collected_static")
def test_downloads_of_lists_and_decisions_are_throttled() -> None:
    joined("a")
    decided("web", pick_n_spec(1))
    key = Decision.objects.get().record.decision_id
    user, client = person("ana", "operator"), Client()
    client.force_login(user)
    for address in (
        "/clusters/?download=csv",
        "/clusters/?download=json",
        f"/api/v1/decisions/{key}.csv",
    ):
        forget_budgets()
        first = client.get(address)
        settle(user.pk, deposit=0, used=1000)

        assert (address, first.status_code, client.get(address).status_code) == (
            address,
            200,
            429,
        )
    assert client.get("/clusters/").status_code == 200
