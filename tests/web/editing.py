"""Writing a manifest through the editor or *Apply YAML*, in the steps that a person takes."""

import re
from typing import Any

from django.test import Client

from placements.models import Draft
from tests.web.reading import page_text


def typed(client: Client, address: str, text: str) -> str:
    """Type a text into the YAML of the editor; return the page of the draft."""
    client.post(address, {"mode": "yaml", "manifest": text})
    return page_text(client.get(f"{draft_address()}?as=yaml"))


def draft_address() -> str:
    """Return the address of the latest draft."""
    return f"/drafts/{Draft.objects.latest('pk').pk}/"


def reviewed(client: Client) -> str:
    """Open the review of the latest draft."""
    return page_text(client.get(f"{draft_address()}review/"))


def confirmed(client: Client, page: str, **more: str) -> Any:
    """Press the button of a review."""
    given = dict(
        re.findall(r'name="([^"]*)" value="([^"]*)"', page.partition('class="bar"')[2])
    )
    given.pop("confirm", None)
    return client.post(f"{draft_address()}review/", {**given, **more})


APPLY = "/resources/apply/"


def digest_in(page: str) -> str:
    """Return what the button *Apply* of a preview sends; empty without one."""
    return next(iter(re.findall(r'name="previewed" value="([^"]+)"', page)), "")


def applied(client: Client, text: str, **more: str) -> Any:
    """Preview manifests and apply what was previewed."""
    page = page_text(client.post(APPLY, {"manifest": text, **more}))
    sent = {"manifest": text, "previewed": digest_in(page), **more}
    return client.post(APPLY, sent)
