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
        self.found: dict[str, Any] = {}
        self._select = ""
        self.feed(text)

    def handle_starttag(
        self, tag: str, attributes: list[tuple[str, str | None]]
    ) -> None:
        given = dict(attributes)
        name, kind = given.get("name") or "", given.get("type")
        if tag == "input" and name and kind not in ("submit", "checkbox", "file"):
            self.found[name] = given.get("value") or ""
        elif tag == "textarea":
            self.found[name] = ""
        elif tag == "select":
            self._select = name
        elif (
            tag == "option"
            and self._select
            and ("selected" in given or self._select not in self.found)
        ):
            self.found[self._select] = given.get("value") or ""


def fields_of(answer: Any) -> dict[str, Any]:
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
