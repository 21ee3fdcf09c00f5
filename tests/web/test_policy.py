"""The Content-Security-Policy, on what really goes out."""

from django.test import Client

PAGES = (
    "default-src 'self'; script-src 'self'; "
    "style-src 'self' 'sha256-47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU='; style-src-attr 'unsafe-inline'; "
    "img-src 'self' data:; object-src 'none'; frame-ancestors 'none'; base-uri 'none'; form-action 'self'"
)


def test_pages_run_only_scripts_of_their_own(client: Client) -> None:
    assert client.get("/").headers["Content-Security-Policy"] == PAGES


def test_errors_carry_the_policy_too(client: Client) -> None:
    assert client.get("/nowhere").headers["Content-Security-Policy"] == PAGES
