"""The page with the API's schema: nothing from elsewhere, no script inside it."""

import re
from typing import Any

import pytest
from django.test import Client
from drf_spectacular.generators import SchemaGenerator

from fleetui.apimachinery.yaml import load_documents
from placements.api import documentation
from tests.api.schema import generated_schema

pytestmark = pytest.mark.django_db


def test_it_has_no_script_of_its_own_and_nothing_from_elsewhere(viewer: Client) -> None:
    page = viewer.get("/api/docs").content.decode()

    assert re.findall(r"<script[^>]*>(.+?)</script>", page) == []
    assert re.findall(r'(?:href|src|action)="(?:https?:)?//', page) == []
    assert "style=" not in page


def test_every_asset_can_be_fetched_for_good(viewer: Client) -> None:
    page = viewer.get("/api/docs").content.decode()
    assets = re.findall(r'(?:href|src)="(/static/[^"]+)"', page)

    answers = [viewer.get(asset) for asset in assets]

    assert any("swagger-ui-bundle" in asset for asset in assets)
    assert all("immutable" in answer["Cache-Control"] for answer in answers)
    assert all(answer.getvalue() for answer in answers)


def test_it_and_the_schema_are_for_users_with_a_role(
    client: Client, stranger: Client
) -> None:
    page, schema = "/api/docs", "/api/schema"

    assert client.get(page)["Location"] == "/login/?next=/api/docs"
    assert [stranger.get(page).status_code, stranger.get(schema).status_code] == [
        403,
        403,
    ]
    for query in ("", "?format=json", "?version=2", "?lang=de"):
        answer = client.get(schema + query)
        assert (answer.status_code, "paths" in answer.content.decode()) == (401, False)


def test_a_process_builds_the_schema_once(
    viewer: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    built, build = [], SchemaGenerator.get_schema

    def count(*args: Any, **options: Any) -> Any:
        built.append(options)
        return build(*args, **options)

    monkeypatch.setattr(SchemaGenerator, "get_schema", count)
    documentation._document.cache_clear()
    documentation._written.cache_clear()

    answers = [
        viewer.get(f"/api/schema{query}")
        for query in ("?format=json", "?format=json&version=9")
    ]
    answers += [
        viewer.get("/api/schema", headers={"Accept": f"application/{one}"})
        for one in ("json", "yaml")
    ]

    assert [answer.status_code for answer in answers] == [200] * 4
    assert len(built) == 1
    as_json, as_yaml = (
        answers[2].json(),
        load_documents(answers[3].content.decode())[0].data,
    )
    assert (
        as_json["paths"].keys()
        == as_yaml["paths"].keys()
        == generated_schema()["paths"].keys()
    )


@pytest.mark.nightly
def test_it_names_where_the_schema_is(viewer: Client) -> None:
    page = viewer.get("/api/docs").content.decode()

    assert viewer.get(re.findall(r'data-schema="([^"]+)"', page)[0]).status_code == 200


def test_scripts_in_the_page_would_not_run(viewer: Client) -> None:
    policy = viewer.get("/api/docs").headers["Content-Security-Policy"]

    assert "script-src 'self';" in policy
