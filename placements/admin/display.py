"""How values look in the admin: ages, badges, structured text; everything is escaped on its way."""

import json
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString

NONE = "–"  # noqa: RUF001 -- the dash of tables
_UNITS = (("d", 86_400), ("h", 3600), ("min", 60), ("s", 1))


def age(moment: datetime | None, *, now: datetime) -> str:
    """Say how long ago something was, in its largest unit."""
    if moment is None:
        return "never"
    seconds = max(int((now - moment).total_seconds()), 0)
    unit, size = next((one for one in _UNITS if seconds >= one[1]), ("s", 1))
    return f"{seconds // size} {unit} ago"


def badge(sort: str, words: str, more: str = "") -> SafeString:
    """Show a state as a coloured word and, where there is more to say, a sentence beside it."""
    said = format_html('<span class="state-{}">{}</span>', sort, words)
    return format_html('{} <span class="state-why">{}</span>', said, more) if more else said


def chips(links: Iterable[tuple[str, str]], *, hidden: int = 0) -> SafeString:
    """Show short texts with their links, and how many more there are."""
    shown = format_html_join(" ", '<a class="chip" href="{}">{}</a>', links)
    return format_html('{} <span class="quiet">+{}</span>', shown, hidden) if hidden else shown


def structured(value: Any) -> SafeString:
    """Show plain data as indented JSON."""
    if value in (None, {}, []):
        return format_html("{}", NONE)
    return block(json.dumps(value, indent=2, ensure_ascii=False, default=str))


def block(text: str) -> SafeString:
    """Show text as it is, line by line."""
    return format_html('<pre class="source">{}</pre>', text)


def table(rows: Mapping[str, Any]) -> SafeString:
    """Show names and values as a small table."""
    if not rows:
        return format_html("{}", NONE)
    lines = format_html_join("", '<tr><th scope="row">{}</th><td>{}</td></tr>', sorted(rows.items()))
    return format_html('<table class="facts">{}</table>', lines)
