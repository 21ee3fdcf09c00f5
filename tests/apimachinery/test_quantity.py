"""Kubernetes quantities, compared exactly (`rules/scheduler.md#selectors-and-quantities`)."""

from math import isfinite
from pathlib import Path

import pytest

from fleetui.apimachinery.quantity import (
    LONGEST_TEXT,
    Quantity,
    QuantityError,
    parse_quantity,
    quantity_words,
)
from tests.documents import SHARED

SAMPLE = Path(__file__).parents[1] / "data" / "quantities.tsv"
"""Every fifth line of what was recorded."""
NANO = 10**9
LARGEST = 2**63 - 1


def test_quantities_are_shown_as_people_read_them() -> None:
    shown = {
        "2560000m": "2,560",
        "1500m": "1.5",
        "500m": "500m",
        "110": "110",
        "16380000Ki": "15.62Gi",
        "2048Gi": "2Ti",
        "0.04000": "0.04000",
        "v1.30": "v1.30",
    }

    assert {text: quantity_words(text) for text in shown} == shown
    assert quantity_words("137438953472", "available-memory") == "128Gi"
    assert quantity_words(0.5, "placements") == "0.5"
    assert quantity_words("16380000Ki", exact=True) == "16380000Ki", (
        "a comparison is not rounded"
    )


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("1Gi", "1024Mi"),
        ("500m", "0.5"),
        ("1E3", "1000"),
        ("1e3", "1k"),
        ("1E", "1000P"),
        ("2Ki", "2048"),
        ("0.5Gi", "512Mi"),
        ("1500u", "1.5m"),
        ("12e-1", "1.2"),
        (".5", "0.5"),
        ("5.", "5"),
        ("+4", "4"),
        ("-0", "0"),
        ("007", "7"),
    ],
)
def test_different_spellings_of_one_number_are_equal(one: str, other: str) -> None:
    assert parse_quantity(one).nano == parse_quantity(other).nano


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("text", "nano"),
    [
        ("1n", 1),
        ("1u", 10**3),
        ("1m", 10**6),
        ("1", NANO),
        ("1k", 10**3 * NANO),
        ("1M", 10**6 * NANO),
        ("1G", 10**9 * NANO),
        ("1T", 10**12 * NANO),
        ("1P", 10**15 * NANO),
        ("1E", 10**18 * NANO),
        ("1Ki", 2**10 * NANO),
        ("1Mi", 2**20 * NANO),
        ("1Gi", 2**30 * NANO),
        ("1Ti", 2**40 * NANO),
        ("1Pi", 2**50 * NANO),
        ("1Ei", 2**60 * NANO),
        ("-1.5", -1_500_000_000),
    ],
)
def test_reads_every_suffix(text: str, nano: int) -> None:
    assert parse_quantity(text).nano == nano


@pytest.mark.parametrize(
    ("text", "nano"),
    [("0.1n", 1), ("1.1n", 2), ("-0.1n", -1), ("1e-400", 1), ("0e-99", 0)],
)
def test_rounds_what_is_finer_than_nano_away_from_zero(text: str, nano: int) -> None:
    assert parse_quantity(text).nano == nano


@pytest.mark.parametrize("text", ["8Ei", "9Ei", "64303Pi", f"{'9' * 200}Ki"])
def test_caps_a_binary_suffix_at_the_largest_integer(text: str) -> None:
    assert parse_quantity(text) == Quantity(LARGEST, 0)
    assert parse_quantity(f"-{text}") == Quantity(-LARGEST, 0)


def test_does_not_cap_decimals_at_the_largest_integer() -> None:
    assert parse_quantity("9223372036854775806").nano == (LARGEST - 1) * NANO
    assert parse_quantity("9223372036854775808").nano == (LARGEST + 1) * NANO
    assert parse_quantity("10E").nano == 10**19 * NANO


def test_a_decimal_stays_a_finite_double() -> None:
    for text in ("1e400", "1e999999999", f"{'9' * 250}e9"):
        assert parse_quantity(text) == Quantity(1, 256)
    assert parse_quantity("0e999999999") == Quantity(0, 0)
    assert isfinite(parse_quantity("9" * LONGEST_TEXT).approximate)


@pytest.mark.parametrize(
    "path", [SAMPLE, SHARED / "faults" / "values" / "quantity-golden.tsv"], ids=str
)
def test_has_the_values_of_the_kubernetes_parser(path: Path) -> None:
    """Each line: the text, its order against 2⁶³ − 1 or ERR, and its double."""
    if path is not SAMPLE and not path.exists():
        pytest.skip("needs ../shared")
    lines = path.read_text(encoding="utf-8").splitlines()[1:]
    differing = {}
    for line in lines:
        text, order, *double = line.split("\t")
        try:
            quantity = parse_quantity(text)
        except QuantityError:
            answer: list[object] = ["ERR"]
        else:
            above = quantity.nano - LARGEST * NANO
            answer = [(above > 0) - (above < 0), quantity.approximate]
        expected: list[object] = (
            ["ERR"] if order == "ERR" else [int(order), *map(float, double)]
        )
        if answer != expected:
            differing[text] = (answer, expected)

    assert len(lines) == (160 if path is SAMPLE else 800)
    assert differing == {}


def test_compares_beyond_the_precision_of_a_double() -> None:
    small, large = (
        parse_quantity("9007199254740992"),
        parse_quantity("9007199254740993"),
    )

    assert small.approximate == large.approximate
    assert small.nano < large.nano


@pytest.mark.parametrize(
    ("text", "double"),
    [
        ("500m", 500 * 1e-3),
        ("1.1", 11 * 1e-1),
        ("3", 3.0),
        ("2k", 2 * 1e3),
        ("1Ki", 1024.0),
    ],
)
def test_approximates_as_integer_times_power_of_ten(text: str, double: float) -> None:
    assert parse_quantity(text).approximate == double


_NO_QUANTITIES = """Ei .Pi e-10 abc 1x 1ki 1mi 1e 1e+ 1_000 0x10 1,5 --1 1.2.3 १ NaN Inf 1e1234567890"""


@pytest.mark.parametrize("text", [".", "+", "-", "m", "Ki"])
def test_a_sign_or_suffix_alone_is_zero_as_in_kubernetes(text: str) -> None:
    assert parse_quantity(text).nano == 0


@pytest.mark.nightly
@pytest.mark.parametrize(
    "text",
    ["", " ", "1 ", " 1", "1\n", "9" * (LONGEST_TEXT + 1), *_NO_QUANTITIES.split()],
)
def test_refuses_what_is_no_quantity(text: str) -> None:
    with pytest.raises(QuantityError, match="invalid quantity"):
        parse_quantity(text)


def test_error_shows_only_the_beginning_of_a_long_text() -> None:
    with pytest.raises(QuantityError) as caught:
        parse_quantity("x" * 10_000)

    assert len(str(caught.value)) < 150
