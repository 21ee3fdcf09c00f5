"""Addresses of the admin, and forms as a browser would send them."""

from html.parser import HTMLParser
from typing import Any

from django.test import Client

from clusters.models import MemberCluster

CLUSTERS = "/admin/clusters/membercluster/"
ADD = f"{CLUSTERS}add/"


def change_url(name: str) -> str:
    """Return the address of a cluster's form."""
    return f"{CLUSTERS}{MemberCluster.objects.get(name=name).pk}/change/"


class _Fields(HTMLParser):
    """Collects what a form would send."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: dict[str, list[str]] = {}
        self._select = ""
        self._options: list[str] = []
        self._sends_text = False
        self.feed(text)

    def handle_starttag(
        self, tag: str, attributes: list[tuple[str, str | None]]
    ) -> None:
        given = dict(attributes)
        name = given.get("name") or ""
        kind = given.get("type")
        if kind == "radio" and "checked" not in given:
            return
        if tag == "input" and name and kind not in ("submit", "checkbox", "file"):
            self.found.setdefault(name, []).append(given.get("value") or "")
        elif tag == "textarea":
            self.found.setdefault(name, []).append("")
        elif tag == "select":
            self._select = name
            self._options = []
        elif tag == "option" and ("selected" in given or not self._options):
            self._options = [given.get("value") or ""]
            self._sends_text = "value" not in given

    def handle_data(self, data: str) -> None:
        if self._sends_text:
            self._options = [data.strip()]
            self._sends_text = False

    def handle_endtag(self, tag: str) -> None:
        if tag == "select":
            self.found.setdefault(self._select, []).extend(self._options)


def fields_of(answer: Any) -> dict[str, list[str]]:
    """Return the fields of a page with their values."""
    return _Fields(answer.content.decode()).found


def submit(client: Client, url: str, **changes: Any) -> Any:
    """Open a page, change some of its fields and send it; a double underscore is a dash."""
    given = fields_of(client.get(url))
    changed = {name.replace("__", "-"): value for name, value in changes.items()}
    return client.post(url, {**given, **changed})


def text_of(answer: Any) -> str:
    """Return the page as text."""
    return str(answer.content.decode())
