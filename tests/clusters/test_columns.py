"""Columns: one integer per cluster, −1 for absent."""

import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from clusters import columns
from clusters.columns import (
    ABSENT,
    LabelColumn,
    label_column,
    name_order,
    property_column,
)
from fleetui.apimachinery.quantity import parse_quantity
from placements.engine.scheduling.candidates import descending


def _labels(*values: str | None) -> LabelColumn:
    return label_column(values, np.arange(len(values)))


def test_label_column_codes_sorted_values_and_marks_absent_ones() -> None:
    column = _labels("west", None, "east", "west")

    assert column.values == ("east", "west")
    assert column.codes.tolist() == [1, ABSENT, 0, 1]


def test_label_column_follows_the_order_given() -> None:
    column = label_column(["west", None, "east"], np.array([2, 0, 1]))

    assert [column.value_at(position) for position in range(3)] == [
        "east",
        "west",
        None,
    ]


@pytest.mark.parametrize("size", [1, 127, 128, 129, 300])
def test_label_column_codes_every_value_however_many_there_are(size: int) -> None:
    values = [*(f"v{at:03}" for at in range(size)), None]
    draw = random.Random(3)
    texts = draw.sample(values, len(values))

    column = _labels(*texts)

    assert column.values == tuple(values[:-1])
    assert [column.value_at(position) for position in range(len(texts))] == texts


@pytest.mark.parametrize("alphabet", ["ab", "a\x00b", "aé\ud800\uffff\U0001f600"])
def test_names_are_in_the_order_of_their_code_points(
    alphabet: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(columns, "_FEW_NAMES", 1)
    draw = random.Random(7)
    for length in (0, 1, 7, 8, 9, 30):
        parts = ["".join(draw.choices(alphabet, k=k)) for k in range(length + 1)]
        names = draw.sample(
            [f"shared-{part}{end}" for part in parts for end in "ab"], k=2 * length + 2
        )

        order = name_order(names)

        assert [names[place] for place in order] == sorted(names)


def test_label_column_knows_the_code_of_a_value() -> None:
    column = _labels("west", "east")

    assert [column.code_of(value) for value in ("east", "west", "north", "")] == [
        0,
        1,
        ABSENT,
        ABSENT,
    ]


def test_empty_value_is_a_value() -> None:
    column = _labels("", None)

    assert column.is_present.tolist() == [True, False]
    assert column.value_at(0) == ""


def test_is_any_of_ignores_unknown_values_and_absent_keys() -> None:
    column = _labels("west", None, "east")

    assert column.is_any_of(["east", "nowhere"]).tolist() == [False, False, True]
    assert column.is_any_of([]).tolist() == [False, False, False]


@pytest.mark.parametrize(
    ("operator", "expected"),
    [
        ("Gt", [False, False, True]),
        ("Ge", [False, True, True]),
        ("Eq", [False, True, False]),
        ("Ne", [True, False, True]),
        ("Lt", [True, False, False]),
        ("Le", [True, True, False]),
    ],
)
def test_property_column_compares_exactly(operator: str, expected: list[bool]) -> None:
    column = property_column(["500m", "1Gi", "1025Mi"])

    assert column.compare(operator, parse_quantity("1024Mi")).tolist() == expected


@pytest.mark.parametrize("operator", ["Gt", "Ge", "Eq", "Ne", "Lt", "Le"])
def test_absent_and_malformed_properties_never_match(operator: str) -> None:
    column = property_column([None, "lots"])

    assert not column.compare(operator, parse_quantity("1")).any()


@pytest.mark.nightly
@pytest.mark.parametrize("operator", ["Gt", "Ge", "Eq", "Ne", "Lt", "Le"])
@given(values=st.lists(st.integers(-3, 3), max_size=6), wanted=st.integers(-4, 4))
def test_comparing_ranks_is_comparing_numbers(
    operator: str, values: list[int], wanted: int
) -> None:
    compare = {
        "Gt": int.__gt__,
        "Ge": int.__ge__,
        "Eq": int.__eq__,
        "Ne": int.__ne__,
        "Lt": int.__lt__,
    }
    expected = [compare.get(operator, int.__le__)(value, wanted) for value in values]

    marks = property_column([str(value) for value in values]).compare(
        operator, parse_quantity(str(wanted))
    )

    assert marks.tolist() == expected


def test_malformed_is_neither_absent_nor_a_quantity() -> None:
    column = property_column(["1", None, "lots"])

    assert column.is_malformed.tolist() == [False, False, True]
    assert column.ranks.tolist() == [0, ABSENT, ABSENT]
    assert np.isnan(column.approximates).tolist() == [False, True, True]


def test_descending_orders_by_the_first_key_then_the_next_then_the_later_place() -> (
    None
):
    first, second = np.array([1, 2, 2, 1]), np.array([9, 5, 5, 9])

    assert descending([first, second]).tolist() == [2, 1, 3, 0]


def test_descending_of_nothing_is_nothing() -> None:
    assert descending([np.zeros(0, dtype=np.int64)]).tolist() == []


@pytest.mark.parametrize("large", [1, 2**40])
@given(rows=st.lists(st.tuples(*[st.integers(-2, 2)] * 3), min_size=1, max_size=12))
def test_descending_agrees_with_sorting_tuples(
    large: int, rows: list[tuple[int, int, int]]
) -> None:
    keys = [
        np.array(column, dtype=np.int64) * large for column in zip(*rows, strict=True)
    ]
    expected = sorted(
        range(len(rows)), key=lambda place: (rows[place], place), reverse=True
    )

    assert descending(keys).tolist() == expected
