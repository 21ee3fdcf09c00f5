"""Tokens and sessions: who is calling."""

import pytest
from rest_framework.test import APIClient

from fleetui.access.models import ApiToken
from fleetui.access.tokens import digest_of_token
from tests.rows import api_token, joined, person

PASSWORD = "a long enough password"
TOKEN = "/api/v1/token"

pytestmark = pytest.mark.django_db


def test_name_and_password_give_a_token_that_works() -> None:
    person("ann", "viewer")
    client = APIClient()

    token = client.post(TOKEN, {"username": "ann", "password": PASSWORD}).json()[
        "token"
    ]

    client.credentials(HTTP_AUTHORIZATION=f"Token {token}")
    assert client.get("/api/v1/clusters").status_code == 200
    assert ApiToken.objects.get().digest == digest_of_token(token)


@pytest.mark.nightly
@pytest.mark.parametrize("password", ["wrong", PASSWORD + " ", "\ud7ff"])
def test_a_wrong_password_gives_none(password: str) -> None:
    person("ann", "viewer")

    answer = APIClient().post(TOKEN, {"username": "ann", "password": password})

    assert answer.status_code == 401
    assert ApiToken.objects.count() == 0


@pytest.mark.parametrize(
    "body", [[], {}, {"username": "ann"}, {"username": [], "password": {}}]
)
def test_half_of_it_is_refused(body: object) -> None:
    assert APIClient().post(TOKEN, body).status_code in (400, 422)


def test_attempts_are_counted_whatever_the_caller_says_it_is() -> None:
    client = APIClient()
    wrong = {"username": "ann", "password": "wrong"}

    answers = [
        client.post(TOKEN, wrong, headers={"X-Forwarded-For": f"10.0.0.{each}"})
        for each in range(11)
    ]

    assert [answer.status_code for answer in answers] == [401] * 10 + [429]
    assert int(answers[-1].headers["Retry-After"]) > 0
    assert answers[-1].headers["Content-Type"] == "application/problem+json"


def test_an_invalid_token_is_refused() -> None:
    client = APIClient()
    client.credentials(HTTP_AUTHORIZATION="Token nonsense")

    assert client.get("/api/v1/clusters").status_code == 401


def test_someone_who_was_shut_out_stays_out() -> None:
    user = person("ann", "operator")
    client = APIClient()
    client.credentials(HTTP_AUTHORIZATION=f"Token {api_token(user)}")
    user.is_active = False
    user.save()

    assert client.get("/api/v1/clusters").status_code == 401
    assert (
        client.post(TOKEN, {"username": "ann", "password": PASSWORD}).status_code == 401
    )


def test_a_session_reads_without_and_writes_with_a_csrf_token() -> None:
    joined("a")
    client = APIClient(enforce_csrf_checks=True)
    client.force_login(person("ann", "operator"))
    client.cookies["csrftoken"] = "a" * 32

    assert client.get("/api/v1/clusters").status_code == 200
    assert client.post("/api/v1/clusters/a/cordon").status_code == 403
    with_token = client.post(
        "/api/v1/clusters/a/cordon", headers={"X-CSRFToken": "a" * 32}
    )
    assert with_token.status_code == 200
