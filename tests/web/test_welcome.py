"""The front page, until the console takes its place."""

import re
from html.parser import HTMLParser

import pytest
from django.core.management import get_commands
from django.test import Client

_VOID = {"meta", "link", "br", "hr", "img", "input"}


class _Outline(HTMLParser):
    """Follows the tags of a page and notes those that are closed out of order."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.headings: list[str] = []
        self.faults: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, _attributes: list[tuple[str, str | None]]) -> None:
        if re.fullmatch("h[1-6]", tag):
            self.headings.append(tag)
        if tag not in _VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if not self.open or self.open.pop() != tag:
            self.faults.append(tag)


@pytest.fixture
def page(client: Client) -> str:
    """Give the page's text."""
    return client.get("/").content.decode()


def test_says_what_it_is_and_what_comes_next(page: str) -> None:
    assert "<h1>FleetUI</h1>" in page
    assert "The console" in page


def test_names_the_command_that_works_today(page: str) -> None:
    named = re.findall(r"manage\.py (\w+)", page)

    assert named == ["simulate"]
    assert "simulate" in get_commands()


def test_is_well_formed_with_headings_in_order(page: str) -> None:
    outline = _Outline(page)

    assert (outline.open, outline.faults) == ([], [])
    assert outline.headings == ["h1", "h2", "h2"]


def test_every_asset_is_our_own_and_can_be_fetched_for_good(client: Client, page: str) -> None:
    assets = re.findall(r'<link [^>]*href="([^"]+)"', page)

    answers = [client.get(asset) for asset in assets]

    assert len(assets) == 3
    assert [answer.status_code for answer in answers] == [200, 200, 200]
    assert all("immutable" in answer["Cache-Control"] for answer in answers)
    assert all(answer.getvalue() for answer in answers)


def test_is_read_only(client: Client) -> None:
    assert client.post("/").status_code == 405


def test_refuses_a_foreign_host(client: Client) -> None:
    assert client.get("/", headers={"host": "elsewhere.example"}).status_code == 400
