"""What goes out to browsers: the Content-Security-Policy, scripts, templates and static files."""

import re
from pathlib import Path

import pytest
from django.test import Client

ROOT = Path(__file__).parents[2]

PAGES = (
    "default-src 'self'; script-src 'self'; "
    "style-src 'self' 'sha256-47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU='; style-src-attr 'unsafe-inline'; "
    "img-src 'self' data:; object-src 'none'; frame-ancestors 'none'; base-uri 'none'; form-action 'self'"
)


def test_pages_run_only_scripts_of_their_own(client: Client) -> None:
    assert client.get("/").headers["Content-Security-Policy"] == PAGES


def test_errors_carry_the_policy_too(client: Client) -> None:
    assert client.get("/nowhere").headers["Content-Security-Policy"] == PAGES


@pytest.mark.parametrize(
    "folder",
    ["/static/", "/static/css/", "/static/css", "/static/../fleetui/settings.py"],
)
def test_folders_are_not_listed(client: Client, folder: str) -> None:
    assert client.get(folder).status_code == 404


def test_scripts_put_no_text_into_a_page_as_markup_and_keep_one_preference() -> None:
    scripts = [path.read_text(encoding="utf-8") for path in ROOT.glob("static/js/*.js")]
    markup = r"\b(innerHTML|outerHTML|insertAdjacentHTML|document\.write|DOMParser|setHTMLUnsafe)\b"
    code = r"\beval\(|\bnew Function\b|\bpostMessage\b|\bsessionStorage\b|\bindexedDB\b|__proto__"

    assert len(scripts) > 5
    assert [
        found for text in scripts for found in re.findall(f"{markup}|{code}", text)
    ] == []
    kept = {
        one
        for text in scripts
        for one in re.findall(r"localStorage\.setItem\((\w+)", text)
    }
    assert kept == {"TABS"}


def test_no_template_shows_a_value_unescaped() -> None:
    templates = {
        path: path.read_text(encoding="utf-8")
        for path in ROOT.glob("templates/**/*.html")
    }
    unescaped = re.compile(r"\|\s*safe(seq)?\b|autoescape\s+off")

    assert len(templates) > 100
    assert [
        str(path) for path, text in templates.items() if unescaped.search(text)
    ] == []
