"""Filters and tags of the pages: numbers, ages, states with their marks."""

import re
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

from django import template
from django.http import QueryDict
from django.utils import timezone
from django.utils.html import format_html
from django.utils.safestring import mark_safe

from placements.explain.charts.elapsed import clock_words, seconds_between
from placements.explain.wording import NONE, score_text

register = template.Library()

_NEGATIVE = re.compile(r"(?<![\w-])-(?=\d)")
_STATES = {
    "unfulfilled": "not fulfilled",
    "pending": "being decided",
    "rolling": "being rolled out",
    "waiting": "waiting for somebody",
    "stale": "with stale picks",
    "invalid": "selectors at fault",
    "deleting": "being deleted",
}
_SIMULATED = mark_safe(
    ' <span class="tag" title="This cluster exists only in this console">simulated</span>'
)  # a text of our own
_HUMP = re.compile(r"([a-z])([A-Z])")
_UNITS = ((86400, "d"), (3600, "h"), (60, "min"))


@register.filter
def age(moment: datetime | None) -> str:
    """Say how long ago a moment was: "3 s", "12 min", "5 h", "40 d"; a dash for never."""
    if moment is None:
        return NONE
    seconds = max(0, int((timezone.now() - moment) / timedelta(seconds=1)))
    for size, unit in _UNITS:
        if seconds >= size:
            return f"{seconds // size} {unit}"
    return f"{seconds} s"


@register.filter
def ageing(moment: datetime | None) -> str:
    """Say the same, so that the page goes on counting (`app.js`); without scripts it stays as it was sent."""
    if moment is None:
        return NONE
    return format_html('<span data-age="{}">{}</span>', int(moment.timestamp()), age(moment))


@register.filter
def span(since: datetime, until: datetime | None) -> str:
    """Say how long something took, or takes by now, as on a clock: "0:00.4", "6:12", "1:02:09".

    What is not over is told in whole seconds: the page counts on from there.
    """
    seconds = seconds_between(since, until or timezone.now())
    return clock_words(seconds if until else int(seconds))


@register.filter
def score(value: Any) -> str:
    """Write a score as people do, with a minus sign."""
    return score_text(tuple(value) if isinstance(value, list) else value).replace("-", "−")


@register.filter
def signs(words: str) -> str:
    """Write the negative numbers of a sentence with a minus sign."""
    return _NEGATIVE.sub("−", words)


@register.filter
def state_words(state: str) -> str:
    """Call a state by which placements are filtered as each of them says it."""
    return _STATES.get(state, state)


@register.filter
def plain(code: str) -> str:
    """Write a code as words: "staged run" for "staged-run", "time out" for "timeOut"."""
    return _HUMP.sub(r"\1 \2", code).replace("-", " ").lower()


@register.filter
def number(value: int) -> str:
    """Write a count with commas between thousands, as sentences do by the format `,`."""
    return f"{value:,}"


@register.simple_tag(takes_context=True)
def simulated(context: Mapping[str, Any], name: str) -> str:
    """Say of a cluster that it is simulated, where it is."""
    return _SIMULATED if "shell" in context and name in context["shell"].simulated else ""


@register.inclusion_tag("parts/mark.html")
def mark(kind: str, words: str, *, hidden: bool = False) -> dict[str, object]:
    """Show a state: a shape of its own, and the words beside it."""
    return {"kind": kind, "words": words, "hidden": hidden}


@register.simple_tag(takes_context=True)
def link_with(context: dict[str, Any], **changes: Any) -> str:
    """Give the address of this page with some of its parameters changed, at its first page.

    What a fragment said of the version that it has, `v`, is no part of an address.
    """
    query: QueryDict = context["request"].GET.copy()
    query.pop("after", None)
    query.pop("v", None)
    for name, value in changes.items():
        query.pop(name, None)
        if value not in (None, ""):
            query[name] = str(value)
    return f"?{query.urlencode()}" if query else "?"
