"""Every chart of the console: the picture that the server draws has the marks of Plotly's figure."""

import json
import re
from collections import defaultdict
from collections.abc import Callable, Mapping
from html import unescape
from typing import Any
from urllib.parse import urljoin

import pytest
from django.test import Client

from placements.models import Decision
from placements.services.loss.report import start_report
from placements.services.rollouts.controller import sync_due_rollouts
from tests.rows import NOW

pytestmark = pytest.mark.django_db

Fetch = Callable[[Client, str], str]
FAR = 0.02
"""Places are written with two decimals, in percent."""
PAGES = {
    "/topology/?key=region": {"topology": (4, 0)},
    "/topology/?key=region&key2=env": {"topology": (7, 7)},
    "/what-if/resilience/": {"survival": (25, 0)},
    "/placements/web/": {"lanes": (18, 0)},
    "{decision}?view=affinity": {"affinity": (7, 9), "lanes": (18, 0)},
    "{decision}?view=funnel": {"funnel": (5, 4), "lanes": (18, 0)},
    "{decision}?cluster=bravelion": {"build-up": (2, 3), "lanes": (18, 0)},
    "/rollouts/web/1/": {"picture": (5, 0)},
}
"""How many bars or dots, and how many numbers, each chart of a page has."""


@pytest.mark.usefixtures("nine")
def test_first_pictures_have_the_marks_of_their_figures(
    viewer: Client, text_of: Fetch
) -> None:
    while sync_due_rollouts(now=NOW):
        pass
    start_report(by=None, now=NOW)
    record = Decision.objects.filter(placement_name="web").latest("number").record
    decision = f"/decisions/{record.decision_id}/"

    found = {}
    for address in PAGES:
        url = address.format(decision=decision)
        page = text_of(viewer, url)
        found[address] = {
            **_compared_charts(page),
            **_compared_domains(viewer, url, page),
        }

    assert found == PAGES


def _compared_charts(page: str) -> dict[str, tuple[int, int]]:
    """Compare the charts that bring their figure; return the numbers of their marks."""
    counts = {}
    for part in page.split('<figure class="chart"')[1:]:
        chart = part.partition("</figure>")[0]
        name = re.findall(r'id="chart-([\w-]+)"', chart)[0]
        figure = json.loads(
            re.findall(r'<script type="application/json"[^>]*>(.*?)</script>', chart)[0]
        )
        bars = [
            tuple(float(one) for one in re.findall(r'"([\d.-]+)%"', rect))
            for rect in re.findall(r"<rect (x=[^>]*stroke=[^>]*)>", chart)
        ]
        expected = _bars_of(figure)
        assert len(bars) == len(expected), name
        for bar, wanted in zip(bars, expected, strict=True):
            assert bar == pytest.approx(wanted, abs=FAR), name
        texts = [
            unescape(one) for one in re.findall(r"<text\s[^>]*>(.*?)</text>", chart)
        ]
        assert texts == _texts_of(figure), name
        rows = chart.partition('<ol class="picture-rows">')[2].partition("</ol>")[0]
        heads = [unescape(one) for one in re.findall("<li>(.*?)</li>", rows)]
        assert heads == figure["layout"]["yaxis"]["ticktext"], name
        [row_count] = re.findall(r"<summary>Table: (\d+) row", chart)
        assert chart.count('<th scope="row">') == int(row_count), name
        counts[name] = (len(bars), len(texts))
    return counts


def _bars_of(figure: Mapping[str, Any]) -> list[tuple[float, ...]]:
    """Return place and size of each bar of a figure in percent, as Plotly draws them."""
    layout = figure["layout"]
    low, high = layout["xaxis"]["range"]
    rows = len(layout["yaxis"]["ticktext"])
    stacks: dict[tuple[int, bool], float] = defaultdict(float)
    bars: list[tuple[float, ...]] = []
    for trace in figure["data"]:
        if trace["type"] != "bar":
            continue
        size = trace.get("width") or 1 - layout["bargap"]
        starts = trace.get("base")
        for at, (row, length) in enumerate(zip(trace["y"], trace["x"], strict=True)):
            start = starts[at] if starts else stacks[row, length < 0]
            stacks[row, length < 0] += length
            left = min(start, start + length)
            place = 100 * (left - low) / (high - low)
            top = 100 * (row + 0.5 - size / 2) / rows
            wide = 100 * abs(length) / (high - low)
            if length:
                bars.append((place, top, wide, 100 * size / rows))
    return bars


def _texts_of(figure: Mapping[str, Any]) -> list[str]:
    texts: list[str] = []
    for trace in figure["data"]:
        numbers = trace["customdata"] if "texttemplate" in trace else ()
        texts += trace.get("text") or [f"{number:,}" for number in numbers]
    return [text.strip() for text in texts]


def _compared_domains(
    viewer: Client, url: str, page: str
) -> dict[str, tuple[int, int]]:
    """Compare what the page draws as lanes or columns with the figures that it fetches for them."""
    counts: dict[str, tuple[int, int]] = {}
    for part in page.split("data-lanes=")[1:]:
        address = unescape(part.partition('"')[2].partition('"')[0])
        name = "picture" if "run-columns" in part else "lanes"
        figure = viewer.get(urljoin(url, address)).json()
        hovers = [one for trace in figure["data"] for one in trace.get("hovertext", ())]
        drawn = re.findall(r'class="(?:segment|cluster-dot)[^>]*title="([^"]*)"', part)
        assert sorted(map(_words, drawn)) == sorted(map(_words, hovers)), address
        counts[name] = (counts.get(name, (0, 0))[0] + len(drawn), 0)
    return counts


def _words(title: str) -> list[str]:
    return re.findall(r"[\w-]+", unescape(title))
