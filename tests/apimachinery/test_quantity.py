"""Kubernetes quantities, compared exactly (`spec/scheduler.md` 4.1)."""

import pytest

from fleetui.apimachinery.quantity import (
    LONGEST_TEXT,
    Quantity,
    QuantityError,
    parse_quantity,
    quantity_words,
)

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
    assert quantity_words("16380000Ki", exact=True) == "16380000Ki", "a comparison is not rounded"


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
    ("text", "nano"), [("0.1n", 1), ("1.1n", 2), ("-0.1n", -1), ("1e-400", 1), ("0e-99", 0)]
)
def test_rounds_what_is_finer_than_nano_away_from_zero(text: str, nano: int) -> None:
    assert parse_quantity(text).nano == nano


@pytest.mark.parametrize(
    "text", ["9223372036854775807", "9223372036854775808", "10E", "8Ei", "1e400", "1e999999999"]
)
def test_caps_what_is_too_large(text: str) -> None:
    assert parse_quantity(text) == Quantity(LARGEST, 0)
    assert parse_quantity(f"-{text}") == Quantity(-LARGEST, 0)


def test_keeps_the_largest_number_below_the_cap() -> None:
    assert parse_quantity("9223372036854775806").nano == (LARGEST - 1) * NANO


def test_compares_beyond_the_precision_of_a_double() -> None:
    small, large = parse_quantity("9007199254740992"), parse_quantity("9007199254740993")

    assert small.approximate == large.approximate
    assert small.nano < large.nano


@pytest.mark.parametrize(
    ("text", "double"),
    [("500m", 500 * 1e-3), ("1.1", 11 * 1e-1), ("3", 3.0), ("2k", 2 * 1e3), ("1Ki", 1024.0)],
)
def test_approximates_as_integer_times_power_of_ten(text: str, double: float) -> None:
    assert parse_quantity(text).approximate == double


_NO_QUANTITIES = """abc 1x 1ki 1mi 1e 1e+ 1_000 0x10 1,5 --1 1.2.3 १ NaN Inf 1Kim 1e1234567890"""


@pytest.mark.parametrize("text", [".", "+", "-", "m", "Ki"])
def test_a_sign_or_suffix_alone_is_zero_as_in_kubernetes(text: str) -> None:
    assert parse_quantity(text).nano == 0


@pytest.mark.nightly
@pytest.mark.parametrize(
    "text", ["", " ", "1 ", " 1", "1\n", "9" * (LONGEST_TEXT + 1), *_NO_QUANTITIES.split()]
)
def test_refuses_what_is_no_quantity(text: str) -> None:
    with pytest.raises(QuantityError, match="invalid quantity"):
        parse_quantity(text)


def test_error_shows_only_the_beginning_of_a_long_text() -> None:
    with pytest.raises(QuantityError) as caught:
        parse_quantity("x" * 10_000)

    assert len(str(caught.value)) < 150
