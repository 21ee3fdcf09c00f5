"""The page with the API's schema: nothing from elsewhere, no script inside it."""

import re

import pytest
from django.test import Client


def test_it_has_no_script_of_its_own_and_nothing_from_elsewhere(client: Client) -> None:
    page = client.get("/api/docs").content.decode()

    assert re.findall(r"<script[^>]*>(.+?)</script>", page) == []
    assert re.findall(r'(?:href|src|action)="(?:https?:)?//', page) == []
    assert "style=" not in page


def test_every_asset_can_be_fetched_for_good(client: Client) -> None:
    page = client.get("/api/docs").content.decode()
    assets = re.findall(r'(?:href|src)="(/static/[^"]+)"', page)

    answers = [client.get(asset) for asset in assets]

    assert any("swagger-ui-bundle" in asset for asset in assets)
    assert all("immutable" in answer["Cache-Control"] for answer in answers)
    assert all(answer.getvalue() for answer in answers)


@pytest.mark.nightly
def test_it_names_where_the_schema_is(client: Client) -> None:
    page = client.get("/api/docs").content.decode()

    assert client.get(re.findall(r'data-schema="([^"]+)"', page)[0]).status_code == 200


def test_scripts_in_the_page_would_not_run(client: Client) -> None:
    policy = client.get("/api/docs").headers["Content-Security-Policy"]

    assert "script-src 'self';" in policy
