"""When the console itself is at fault, or a form is not taken: a page like ours, and an id to quote."""

import logging
import re

import pytest
from django.test import Client

from fleetui.middleware import RequestIdFilter
from placements.services.dashboard import queries
from tests.rows import joined
from tests.web.reading import Outline

pytestmark = pytest.mark.django_db


class _BrokenError(Exception):
    """An unexpected error."""


@pytest.fixture
def broken(monkeypatch: pytest.MonkeyPatch, viewer: Client) -> Client:
    """Make the overview of a hub with objects fail, on the page and over REST."""
    joined("a")

    def fail() -> None:
        raise _BrokenError

    monkeypatch.setattr(queries, "counts", fail)
    viewer.raise_request_exception = False
    return viewer


def test_a_fault_of_ours_gives_an_id_that_the_log_has_too(
    broken: Client, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.ERROR, "django.request"):
        answer = broken.get("/")

    page = answer.content.decode()
    request_id = re.search(r"<code>([0-9a-f]{8})</code>", page)
    [record] = [
        log_record
        for log_record in caplog.records
        if log_record.levelno == logging.ERROR
    ]
    assert answer.status_code == 500
    assert request_id
    assert answer["X-Request-ID"] == request_id[1]
    assert RequestIdFilter().filter(record)
    assert (
        record.__dict__["request_id"]
        == f" [request {request_id[1]}, user vera, address 127.0.0.1]"
    )
    assert Outline(page).problems == []
    assert "script-src 'self'" in answer["Content-Security-Policy"]


def test_over_rest_it_is_a_problem_document(broken: Client) -> None:
    answer = broken.get("/api/v1/overview")

    assert (answer.status_code, answer["Content-Type"]) == (
        500,
        "application/problem+json",
    )
    assert answer["X-Request-ID"] in answer.json()["detail"]


def test_every_answer_has_an_id_of_its_own(viewer: Client) -> None:
    ids = {viewer.get("/clusters/")["X-Request-ID"] for _ in range(3)}

    assert len(ids) == 3


def test_a_form_without_its_token_is_refused_in_words(viewer: Client) -> None:
    checking = Client(enforce_csrf_checks=True)
    checking.cookies = viewer.cookies

    answer = checking.post("/theme/", {"theme": "dark"})

    assert answer.status_code == 403
    assert "Session expired" in answer.content.decode()
    assert Outline(answer.content.decode()).problems == []


def test_what_is_refused_or_missing_offers_no_json(viewer: Client) -> None:
    for address in ("/placements/nothing/", "/placements/new/", "/placements/%01/"):
        assert "data-twin" not in viewer.get(address).content.decode()


def test_what_is_not_there_is_explained_in_plain_words(viewer: Client) -> None:
    answer = viewer.get("/clusters/missing/")

    assert answer.status_code == 404
    assert "The object does not exist or was deleted." in answer.content.decode()


@pytest.mark.servers
@pytest.mark.parametrize(
    "address",
    ["/search/?q=%00", "/resources/?namespace=a%00", "/placements/?cluster=%00"],
)
def test_an_address_with_a_null_is_a_bad_request(viewer: Client, address: str) -> None:
    assert viewer.get(address).status_code == 400
