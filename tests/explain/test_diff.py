"""What changed between two plain documents."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from placements.explain.diff import (
    FieldDifference,
    Piece,
    differences,
    document_diff,
    line_diff,
    side_by_side,
)


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        ({"a": 1}, {"a": 1}, []),
        ({"spec": {"n": 3}}, {"spec": {"n": 4}}, [FieldDifference("spec.n", "3", "4")]),
        ({}, {"b": "x"}, [FieldDifference("b", None, "x")]),
        ({"b": None}, {}, [FieldDifference("b", "null", None)]),
        ({"on": True}, {"on": False}, [FieldDifference("on", "true", "false")]),
        (
            {"l": [{"k": 1}, {"k": 2}]},
            {"l": [{"k": 1}, {"k": 3}]},
            [FieldDifference("l[1].k", "2", "3")],
        ),
        (
            {"l": ["a", "b"]},
            {"l": ["b", "c", "d"]},
            [
                FieldDifference("l[0]", "a", None),
                FieldDifference("l[1]", None, "c"),
                FieldDifference("l[2]", None, "d"),
            ],
        ),
        (
            {"l": []},
            {"l": [{"k": [1, 2]}]},
            [FieldDifference("l[0]", None, "k: [1, 2]")],
        ),
        ({"a": {"b": 1}}, {"a": "b"}, [FieldDifference("a", "b: 1", "b")]),
        (
            {"example.com/zone": "a"},
            {},
            [FieldDifference('["example.com/zone"]', "a", None)],
        ),
    ],
)
def test_names_the_places_that_differ(
    before: Any, after: Any, expected: list[FieldDifference]
) -> None:
    assert differences(before, after) == expected


def test_cuts_what_is_too_long_to_read() -> None:
    [found] = differences({"a": "x"}, {"a": "y" * 500})

    assert found.after == "y" * 80 + "…"


@given(
    *[
        st.lists(
            st.sampled_from(["a: 1", "a: 2", "b: long words", "b: long word", "c"]),
            max_size=8,
        )
    ]
    * 2
)
def test_side_by_side_each_side_is_its_text(
    before: list[str], after: list[str]
) -> None:
    lines = line_diff("\n".join(before), "\n".join(after), context=99)
    pairs = [pair for pair in side_by_side(lines or ()) if not pair.is_gap]

    def text(side: list[Piece] | None) -> list[str]:
        return [] if side is None else ["".join(piece.text for piece in side)]

    if before != after:
        assert [line for pair in pairs for line in text(pair.before)] == before
        assert [line for pair in pairs for line in text(pair.after)] == after
    assert all(pair.before == pair.after for pair in pairs if not pair.is_changed)


def test_side_by_side_marks_the_words_that_differ() -> None:
    [pair] = side_by_side(line_diff("numberOfClusters: 5", "numberOfClusters: 6") or ())

    assert pair.before == [Piece("", "numberOfClusters: "), Piece("−", "5")]
    assert pair.after == [Piece("", "numberOfClusters: "), Piece("+", "6")]


def test_nothing_is_left_out_before_the_first_line() -> None:
    created = side_by_side(line_diff("", "a: 1\nb: 2") or ())
    changed = side_by_side(line_diff("a: 1\nb: 2", "a: 1\nb: 3") or ())

    assert not any(pair.is_gap for pair in (*created, *changed))


def test_another_order_of_keys_is_no_difference() -> None:
    before = {"policy": {"placementType": "PickN", "numberOfClusters": 5}, "terms": [1]}
    after = {
        "terms": [1, 2],
        "policy": {"numberOfClusters": 5, "placementType": "PickN"},
    }

    lines = document_diff(before, after) or []

    assert [
        (line.sign, line.text) for line in lines if line.sign in "+−" and line.sign
    ] == [("+", "- 2")]
