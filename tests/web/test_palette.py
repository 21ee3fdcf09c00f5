"""The colours of tokens.css, measured: contrast, and whether everyone can distinguish the statuses.

Contrast is that of WCAG 2; distances are Euclidean in OKLab, times 100, after simulating full protanopia,
deuteranopia and tritanopia with the matrices of Machado, Oliveira and Fernandes (2009).
"""

import math
import re
from itertools import combinations, product
from pathlib import Path

import pytest

from placements.engine.scheduling.outcome import Outcome
from placements.engine.status import HealthLevel
from placements.hubs.explain import agreements
from placements.hubs.explain import connections as hubs
from placements.web.badges import outcome_kind

CSS = Path(__file__).resolve().parent.parent.parent / "static" / "css"
TOKENS = {
    name: {"light": light, "dark": dark}
    for name, light, dark in re.findall(
        r"--([\w-]+): light-dark\((#[0-9a-f]{6}), (#[0-9a-f]{6})\);",
        (CSS / "tokens.css").read_text(),
    )
}
THEMES, GROUNDS = ("light", "dark"), ("page", "panel", "hover")
STATUSES = ("healthy", "progress", "attention", "failed", "unknown")
SMALLEST_DISTANCE = {"light": 10, "dark": 12}
"""In the light theme 12 needs a red and a blue that are nearly black; each status has a shape too."""
Colour = tuple[float, float, float]
VISIONS: dict[str, tuple[Colour, Colour, Colour]] = {
    "full": ((1, 0, 0), (0, 1, 0), (0, 0, 1)),
    "protanopia": (
        (0.152286, 1.052583, -0.204868),
        (0.114503, 0.786281, 0.099216),
        (-0.003882, -0.048116, 1.051998),
    ),
    "deuteranopia": (
        (0.367322, 0.860646, -0.227968),
        (0.280085, 0.672501, 0.047413),
        (-0.011820, 0.042940, 0.968881),
    ),
    "tritanopia": (
        (1.255528, -0.076749, -0.178779),
        (-0.078411, 0.930809, 0.147602),
        (0.004733, 0.691367, 0.303900),
    ),
}


def _linear(colour: str) -> Colour:
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    red, green, blue = (
        part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4
        for part in parts
    )
    return red, green, blue


def _luminance(colour: str) -> float:
    red, green, blue = _linear(colour)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, other: str) -> float:
    """Return the contrast ratio of two colours."""
    low, high = sorted((_luminance(one), _luminance(other)))
    return (high + 0.05) / (low + 0.05)


def _times(matrix: tuple[Colour, Colour, Colour], colour: Colour) -> Colour:
    first, second, third = (
        sum(a * b for a, b in zip(row, colour, strict=True)) for row in matrix
    )
    return first, second, third


def _oklab(colour: str, vision: str) -> Colour:
    linear = _times(VISIONS[vision], _linear(colour))
    red, green, blue = (min(1.0, max(0.0, one)) for one in linear)
    cones = _times(
        (
            (0.4122214708, 0.5363325363, 0.0514459929),
            (0.2119034982, 0.6806995451, 0.1073969566),
            (0.0883024619, 0.2817188376, 0.6299787005),
        ),
        (red, green, blue),
    )
    long, medium, short = map(math.cbrt, cones)
    return _times(
        (
            (0.2104542553, 0.7936177850, -0.0040720468),
            (1.9779984951, -2.4285922050, 0.4505937099),
            (0.0259040371, 0.7827717662, -0.8086757660),
        ),
        (long, medium, short),
    )


def distance(one: str, other: str, vision: str) -> float:
    """Return how far apart two colours look."""
    return 100 * math.dist(_oklab(one, vision), _oklab(other, vision))


@pytest.mark.nightly
@pytest.mark.parametrize(("theme", "ground"), [*product(THEMES, GROUNDS)])
@pytest.mark.parametrize("name", ["text", "quiet", "accent"])
def test_text_can_be_read(theme: str, ground: str, name: str) -> None:
    assert contrast(TOKENS[name][theme], TOKENS[ground][theme]) >= 4.5


@pytest.mark.parametrize("theme", THEMES)
@pytest.mark.parametrize(
    ("words", "bar"),
    [("on-series", "series"), ("on-accent", "accent"), ("text", "divider")],
)
def test_words_in_bars_can_be_read(theme: str, words: str, bar: str) -> None:
    assert contrast(TOKENS[words][theme], TOKENS[bar][theme]) >= 4.5


@pytest.mark.nightly
@pytest.mark.parametrize(("theme", "ground"), [*product(THEMES, GROUNDS)])
@pytest.mark.parametrize("name", [*STATUSES, "accent", "neutral"])
def test_marks_can_be_seen(theme: str, ground: str, name: str) -> None:
    assert contrast(TOKENS[name][theme], TOKENS[ground][theme]) >= 3


@pytest.mark.parametrize(("theme", "ground"), [*product(THEMES, ("page", "panel"))])
@pytest.mark.parametrize("name", ["series", "border"])
def test_bars_and_borders_can_be_seen(theme: str, ground: str, name: str) -> None:
    assert contrast(TOKENS[name][theme], TOKENS[ground][theme]) >= 3


@pytest.mark.parametrize("theme", THEMES)
def test_text_can_be_read_on_a_row_under_the_pointer(theme: str) -> None:
    assert contrast(TOKENS["text"][theme], TOKENS["hover"][theme]) >= 4.5
    assert contrast(TOKENS["quiet"][theme], TOKENS["hover"][theme]) >= 4.5
    assert contrast(TOKENS["accent"][theme], TOKENS["hover"][theme]) >= 4.5


@pytest.mark.parametrize("theme", THEMES)
def test_the_words_on_a_button_can_be_read(theme: str) -> None:
    assert contrast(TOKENS["page"][theme], TOKENS["accent"][theme]) >= 4.5


@pytest.mark.parametrize(("theme", "vision"), [*product(THEMES, VISIONS)])
def test_statuses_can_be_distinguished(theme: str, vision: str) -> None:
    pairs = combinations(STATUSES, 2)

    near = {
        pair: apart
        for pair in pairs
        if (apart := distance(TOKENS[pair[0]][theme], TOKENS[pair[1]][theme], vision))
        < SMALLEST_DISTANCE[theme]
    }

    assert near == {}


def test_measures_as_the_design_does() -> None:
    assert contrast("#ffffff", "#2a8ae6") == pytest.approx(3.6, abs=0.05)
    assert distance(
        "#52C41A".lower(), "#FAAD14".lower(), "protanopia"
    ) == pytest.approx(0.3, abs=0.2)


def test_a_colour_is_written_in_one_place_only() -> None:
    others = [path for path in CSS.glob("*.css") if path.name != "tokens.css"]
    # The admin has no tokens of ours: it names its three states once for each of its themes.
    rules = {
        path.name: re.sub(r"--state-\w+: #[0-9a-f]{6};", "", path.read_text())
        for path in others
    }

    assert [
        name
        for name, text in rules.items()
        if re.search(r"#[0-9a-fA-F]{3,8}\b|rgb|hsl", text)
    ] == []


def test_every_badge_has_an_icon() -> None:
    root = CSS.parent.parent
    icons = set(
        re.findall(r'<symbol id="([\w-]+)"', (root / "static/icons.svg").read_text())
    )
    sources = [*root.glob("templates/**/*.html"), *root.glob("placements/web/*.py")]
    badge_kinds = {
        (path.name, kind)
        for path in sources
        for kind in re.findall(r'(?:\{% badge |Badge\()"([\w-]+)"', path.read_text())
    }
    for table in (
        hubs.STATES,
        hubs.STREAM_STATES,
        hubs.WRITE_STATES,
        agreements.AGREEMENTS,
    ):
        badge_kinds |= {("explain", level) for level, *_ in table.values()}

    assert {kind for kind in badge_kinds if kind[1] not in icons} == set()
    assert {level.value for level in HealthLevel} <= icons
    assert {outcome_kind(outcome) for outcome in Outcome} <= icons
