"""What changed between two plain documents."""

from typing import Any

import pytest

from placements.explain.diffs import Difference, differences


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        ({"a": 1}, {"a": 1}, []),
        ({"spec": {"n": 3}}, {"spec": {"n": 4}}, [Difference("spec.n", "3", "4")]),
        ({}, {"b": "x"}, [Difference("b", None, "x")]),
        ({"b": None}, {}, [Difference("b", "null", None)]),
        ({"on": True}, {"on": False}, [Difference("on", "true", "false")]),
        (
            {"l": [{"k": 1}, {"k": 2}]},
            {"l": [{"k": 1}, {"k": 3}]},
            [Difference("l[1].k", "2", "3")],
        ),
        (
            {"l": ["a", "b"]},
            {"l": ["b", "c", "d"]},
            [Difference("l[0]", "a", None), Difference("l[1]", None, "c"), Difference("l[2]", None, "d")],
        ),
        ({"l": []}, {"l": [{"k": [1, 2]}]}, [Difference("l[0]", None, "k: [1, 2]")]),
        ({"a": {"b": 1}}, {"a": "b"}, [Difference("a", "b: 1", "b")]),
        ({"example.com/zone": "a"}, {}, [Difference('["example.com/zone"]', "a", None)]),
    ],
)
def test_names_the_places_that_differ(before: Any, after: Any, expected: list[Difference]) -> None:
    assert differences(before, after) == expected


def test_cuts_what_is_too_long_to_read() -> None:
    [found] = differences({"a": "x"}, {"a": "y" * 500})

    assert found.after == "y" * 80 + "…"
