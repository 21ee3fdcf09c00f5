"""What changed between two plain documents."""

from typing import Any

import pytest

from placements.explain.diff import FieldDifference, differences


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
        ({"l": []}, {"l": [{"k": [1, 2]}]}, [FieldDifference("l[0]", None, "k: [1, 2]")]),
        ({"a": {"b": 1}}, {"a": "b"}, [FieldDifference("a", "b: 1", "b")]),
        ({"example.com/zone": "a"}, {}, [FieldDifference('["example.com/zone"]', "a", None)]),
    ],
)
def test_names_the_places_that_differ(before: Any, after: Any, expected: list[FieldDifference]) -> None:
    assert differences(before, after) == expected


def test_cuts_what_is_too_long_to_read() -> None:
    [found] = differences({"a": "x"}, {"a": "y" * 500})

    assert found.after == "y" * 80 + "…"
