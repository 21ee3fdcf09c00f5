"""Template tags of the small pictures of the overview, drawn by the server."""

from collections.abc import Iterable, Sequence
from typing import Any

from django import template
from django.utils.html import format_html, format_html_join
from django.utils.safestring import mark_safe

from placements.explain.run_pages import LEVELS, Part
from placements.services.dashboard.pictures import Picture

register = template.Library()
_WIDTH = 132.0
_GAP = 0.3
_WIDEST = 33.0
_NAMES = 14
"""The height of the names of domains below the bars."""
_LETTER = 6.2


@register.simple_tag
def spark(picture: Picture, height: int, top: int) -> str:
    """Show the clusters of a placement by domain as bars, and shaded where a bar may end.

    `top` is the number of clusters that is as high as the picture; what is higher is cut, with a gap. The
    words beside it say the limit and the number of clusters.
    """
    if not picture.counts:
        return ""
    bars = picture.bars
    named = max(map(len, bars)) * _LETTER
    step = min(max(_WIDEST, named), _WIDTH / len(bars))
    scale = (height - 1) / top
    shapes = []
    if picture.low is not None and picture.high is not None:
        y = height - picture.high * scale
        band = (picture.high - picture.low) * scale
        width = step * (len(picture.counts) - _GAP)
        shapes.append(
            f'<rect class="band" x="0" y="{y:.1f}" width="{width:.1f}" height="{band:.1f}"/>'
        )
        shapes.append(f'<path class="limit" d="M0 {y:.1f}H{width:.1f}"/>')
    for at, count in enumerate(bars.values()):
        size = max(1.5, min(count, top) * scale)
        kind = "placed" if count else "none"
        shapes.append(
            f'<rect class="{kind}" x="{at * step:.1f}" y="{height - size:.1f}"'
            f' width="{step * (1 - _GAP):.1f}" height="{size:.1f}" rx="1"/>'
        )
        if count > top:
            start = f"M{at * step - 1:.1f} 8"
            shapes.append(f'<path class="cut" d="{start}l{step:.1f} -4"/>')
        if step > 2 * _LETTER:
            start = f'<text class="count" x="{(at + 0.5 - _GAP / 2) * step:.1f}"'
            shapes.append(f'{start} y="{height - 3}">{count}</text>')
    drawn = mark_safe("".join(shapes))  # noqa: S308 - numbers only
    names = _names_below(list(bars), step, height)
    text = f"Clusters by {picture.key}: {', '.join(f'{one} {n}' for one, n in bars.items())}"
    total = height + _NAMES * bool(names)
    shape = (
        '<svg class="spark" viewBox="0 0 {} {}" height="{}" role="img"'
        ' aria-label="{}"><title>{}</title>{}{}</svg>'
    )
    return format_html(shape, int(_WIDTH), total, total, text, text, drawn, names)


def _names_below(domains: Sequence[str], step: float, height: int) -> str:
    """Return the names of the domains below the bars of a large picture; none where one is too long."""
    longest = max(map(len, domains))
    if height < 2 * _NAMES or longest * _LETTER > step:
        return ""
    return format_html_join(
        "",
        '<text x="{}" y="{}">{}</text>',
        ((f"{at * step:.1f}", height + 11, name) for at, name in enumerate(domains)),
    )


@register.filter
def parts_of_ticks(lines: Iterable[Any]) -> list[tuple[str, Part]]:
    """Return level and state of what the bars of these runs have parts of, for their legend."""
    shown = {part for line in lines for group in line.ticks for part, _ in group}
    return [(level, part) for part, level in LEVELS.items() if part in shown]


@register.simple_tag
def ticks(line: Any) -> str:
    """Show the bar of a run: its waves or stages, with a part for each cluster of a small one."""
    groups = []
    for group in line.ticks:
        parts = "".join(
            f'<i class="{LEVELS[part]}" style="--grow:{width}"></i>'
            for part, width in group
        )
        groups.append(
            f'<span style="--grow:{sum(width for _, width in group)}">{parts}</span>'
        )
    size = "few" if line.progress.total <= _FEW else "many"
    words = f"{line.progress.updated:,} of {line.progress.total:,} clusters updated"
    bar = mark_safe("".join(groups))  # noqa: S308 - states and numbers only
    return format_html(
        '<div class="ticks {} {}" role="img" aria-label="{}">{}</div>',
        size,
        line.state.kind,
        words,
        bar,
    )


_FEW = 40
