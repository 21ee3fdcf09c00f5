"""Template filters and tags: numbers, ages, status badges, links."""

import re
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Any
from urllib.parse import urlsplit

from django import template
from django.contrib.staticfiles.storage import staticfiles_storage
from django.urls import Resolver404, get_script_prefix, resolve, reverse
from django.utils import timezone
from django.utils.dateformat import format as date_format
from django.utils.html import (
    conditional_escape,
    escape,
    format_html,
    format_html_join,
)
from django.utils.safestring import mark_safe

from fleetui.apimachinery.quantity import quantity_words
from fleetui.apimachinery.words import UNIT_SECONDS, joined
from fleetui.htmx import query_with
from fleetui.hub_backend import current_backend
from fleetui.hub_scope import LOCAL_HUB, current_hub_id
from placements.engine.loss import PlacementLoss
from placements.explain.clusters import cluster_status
from placements.explain.diff import side_by_side
from placements.explain.loss import impact_badges
from placements.explain.vocabulary import (
    NONE,
    duration_text,
    seconds_between,
    signed_text,
)

register = template.Library()
register.filter("joined", joined)

_NEGATIVE = re.compile(r"(?<![\w-])-(?=\d)")
_STATES = {
    "eligible": "Candidate",
    "not-eligible": "Not ready",
    "fulfilled": "Scheduled",
    "unfulfilled": "Partially or not fulfilled",
    "pending": "Scheduling",
    "rolling": "Rolling out",
    "waiting": "Stalled or waiting for a user",
    "outdated": "Outdated",
    "invalid": "Invalid resource selector",
    "degraded": "With problems",
    "deleting": "Deleting",
    "filtered": "Filtered out",
    "running": "Not ended",
    "finished": "Completed",
    "stopped": "Stopped or aborted",
}
_BY_WORDS = {words.lower(): state for state, words in _STATES.items()}
_SIMULATED = mark_safe(
    ' <span class="simulated" title="This cluster exists only in this console">Simulated</span>'
)  # no value of a user
ROW_NAME, ROW_AGE, ROW_MARK = "\0", "\1", "\2"
"""In place of the name of a cluster, the age of its heartbeat and the mark of a simulated one."""
_HUMP = re.compile(r"([a-z])([A-Z])")


@register.filter
def offered(url: str) -> bool:
    """Return whether the hub in scope has the page at an address: a live hub decides some things itself."""
    return _is_possible(url, is_form=False)


@register.filter
def accepted(url: str) -> bool:
    """Return whether the hub in scope accepts the form of the page at an address."""
    return _is_possible(url, is_form=True)


def _is_possible(url: str, *, is_form: bool) -> bool:
    if current_hub_id() == LOCAL_HUB:
        return True
    path = urlsplit(url).path
    try:
        match = resolve(f"/{path.removeprefix(get_script_prefix())}")
    except Resolver404:
        return True
    return current_backend().refusal(match.view_name, is_form=is_form) is None


@register.simple_tag(takes_context=True)
def hub_part(context: template.RequestContext, name: str, **values: Any) -> str:
    """Show what a live hub adds to a page, with these values beside those of the page."""
    if current_hub_id() == LOCAL_HUB:
        return ""
    part = current_backend().part(name)
    with context.push(**values):
        shown: str = context.template.engine.get_template(part).render(context)  # type: ignore[union-attr]
    return shown


@register.filter
def age_text(moment: datetime | None) -> str:
    """Return the age of a moment in its largest unit: "3s", "12m", "5h", "40d"; a dash for None."""
    if moment is None:
        return NONE
    seconds = max(0, int((timezone.now() - moment) / timedelta(seconds=1)))
    for unit in "dhm":
        if seconds >= UNIT_SECONDS[unit]:
            return f"{seconds // UNIT_SECONDS[unit]}{unit}"
    return f"{seconds}s"


def _time(
    moment: datetime,
    name: str,
    value: object,
    text: str,
) -> str:
    """Return a time element with a tooltip in UTC; `app.js` puts both into the time zone of the user."""
    utc = moment.astimezone(UTC)
    title = f"{utc:%Y-%m-%d %H:%M:%S} UTC"
    element = f'<time datetime="{utc.isoformat()}" title="{title}" data-{name}="{value}">{text}</time>'
    return mark_safe(element)  # noqa: S308 - no value of a user


def age(moment: datetime | None) -> str:
    """Return the age, which `app.js` keeps current, with the time as its tooltip."""
    return (
        NONE
        if moment is None
        else _time(moment, "age", int(moment.timestamp()), age_text(moment))
    )


register.filter("age", age)


@register.filter("moment")
def moment_text(moment: datetime | None, pattern: str) -> str:
    """Return a time such as "04:09 UTC", for the pattern "H:i"."""
    if moment is None:
        return NONE
    text = date_format(moment.astimezone(UTC), pattern)
    return _time(moment, "moment", pattern, f"{text} UTC" if "H" in pattern else text)


_STAMP = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC")


@register.filter
def moments(sentence: str) -> str:
    """Return a sentence with its times as elements: on a page all times are in one time zone."""
    words = _STAMP.sub(
        lambda found: moment_text(
            datetime.strptime(found[0], "%Y-%m-%d %H:%M:%S %Z").replace(tzinfo=UTC),
            "Y-m-d H:i:s",
        ),
        conditional_escape(sentence),
    )
    return mark_safe(words)  # noqa: S308 - escaped


@register.filter
def span(since: datetime, until: datetime | None) -> str:
    """Return how long something took, such as "0.4s".

    What is not over is shown in whole seconds, which `app.js` counts on.
    """
    if until:
        return duration_text(seconds_between(since, until))
    seconds = int(seconds_between(since, timezone.now()))
    return _time(since, "since", since.isoformat(), duration_text(seconds))


@register.filter
def duration(value: timedelta) -> str:
    return duration_text(int(value.total_seconds()))


@register.filter
def remaining(until: datetime, left: str = "") -> str:
    """Return how long it is until a moment, which `app.js` counts down; with `left`, until a wait is over."""
    seconds = int(seconds_between(timezone.now(), until))
    words = duration_text(seconds)
    if left:
        words = f"{words} left" if seconds > 0 else "over, continues in a moment"
    return _time(
        until, "left data-until" if left else "until", until.isoformat(), words
    )


@register.filter
def score(value: Any) -> str:
    """Return a score with its sign, as the ranking of a decision has it."""
    return signed_text(tuple(value) if isinstance(value, list) else value)


@register.filter
def signs(words: str) -> str:
    """Return a sentence with minus signs before its negative numbers."""
    return _NEGATIVE.sub("−", words)


@register.filter
def state_words(state: str) -> str:
    """Return the status word of a filter value of clusters, placements or rollouts."""
    return _STATES.get(state, str(state).replace("-", " ").capitalize())


def state_of(words: str) -> str:
    return _BY_WORDS.get(words.lower(), words.lower().replace(" ", "-"))


@register.filter
def plain(code: str) -> str:
    """Return a code as words: "staged run" for "staged-run", "time out" for "timeOut"."""
    return _HUMP.sub(r"\1 \2", code).replace("-", " ").lower()


@register.filter
def number(value: int) -> str:
    """Return a count with commas between thousands."""
    return f"{value:,}"


register.filter("side_by_side", side_by_side)
register.filter("quantity", quantity_words)


@register.simple_tag(takes_context=True)
def simulated(context: Mapping[str, Any], name: str) -> str:
    return (
        _SIMULATED
        if "layout" in context and name in context["layout"].simulated
        else ""
    )


@register.simple_tag
def badge(kind: str, words: object, *, hidden: bool = False) -> str:
    """Show a status badge: an icon, distinct in shape, and the status word.

    `kind` is a symbol of `icons.svg`: a level, such as "healthy", or the outcome of a decision. Lists have
    hundreds of badges, and a template takes several times as long.
    """
    text: str = conditional_escape(str(words))  # of safe text, str is safe
    text = f'<span class="hidden">{text}</span>' if hidden else text
    icons = staticfiles_storage.url("icons.svg")
    icon = f'<svg aria-hidden="true"><use href="{icons}#{kind}"></use></svg>'
    return mark_safe(f'<span class="mark {kind}">{icon}{text}</span>')  # noqa: S308 - the text is escaped


@register.simple_tag
def member_badge(cluster: Any) -> str:
    return badge(*cluster_status(cluster, is_cordoned=cluster.is_cordoned))


@register.simple_tag
def impact(row: PlacementLoss) -> str:
    """Show what becomes of a placement, and the limits that it exceeds."""
    return mark_safe(" ".join(badge(*mark) for mark in impact_badges(row)))  # noqa: S308 - badges


@register.simple_tag
def bar(segments: Iterable[Any]) -> str:
    """Show a bar of segments, which the page describes beside it."""
    parts = "".join(
        f'<rect class="segment-{segment.level}" x="{segment.at}" y="0" width="{segment.width}" height="10"></rect>'
        for segment in segments
    )
    shape = 'class="segments" viewBox="0 0 100 10" preserveAspectRatio="none" aria-hidden="true"'
    return mark_safe(f"<svg {shape}>{parts}</svg>")  # noqa: S308 - levels and numbers only


@register.simple_tag
def row_menu(key: object, name: str, links: Iterable[tuple[str, str]]) -> str:
    """Show the button of a row of a list, and the menu of links that it opens."""
    return format_html(
        '<button type="button" class="button plain" popovertarget="menu-{0}" aria-label="Actions for {1}">⋯'
        '</button>\n<div popover id="menu-{0}" class="row-menu">{2}</div>',
        key,
        name,
        format_html_join("\n", '<a href="{}">{}</a>', links),
    )


@register.simple_tag(takes_context=True)
def cluster_row(
    context: Mapping[str, Any], name: str, heartbeat_at: datetime | None, html: str
) -> str:
    """Show the row of a cluster from what all clusters with the same facts share."""
    row = html.replace(ROW_AGE, age(heartbeat_at))
    row = row.replace(ROW_MARK, simulated(context, name))
    return mark_safe(row.replace(ROW_NAME, escape(name)))  # noqa: S308 - of a template


@register.simple_tag
def address(view: str, *arguments: object) -> str:
    """Return what the tag `url` does; for the rows of a list, which take less time than `reverse`."""
    return _address(get_script_prefix(), view, *arguments)


def run_address(run: Any) -> str:
    view, *arguments = run.page
    return address(f"web:{view}", *arguments)


@lru_cache(maxsize=10_000)
def _address(_prefix: str, view: str, *arguments: object) -> str:
    return reverse(view, args=arguments)


@register.simple_tag(takes_context=True)
def link_with(context: dict[str, Any], **changes: Any) -> str:
    """Return the address of this page with changed parameters, at its first page.

    What a fragment has, the version `v` and the map of a `fleet`, is not part of an address.
    """
    left_out = dict.fromkeys(("after", "at", "v", "fleet", "panel", *changes))
    chosen = {name: value for name, value in changes.items() if value != ""}
    return query_with(context["request"].GET, **(left_out | chosen))
