"""Small edits of a YAML text: what they change, and that nothing else changes."""

from difflib import unified_diff

import pytest

from placements.yaml_edits import CannotEditError, Change, Drop, Put, Rename, edit

TEXT = """\
# head
apiVersion: x
metadata: {name: web, labels: {a: b}}
spec:
  policy:   # about the policy
    placementType: "PickN"
    numberOfClusters: 3  # three

  # the strategy comes
  strategy:
    rollingUpdate:
      maxSurge: 25%   # é
  list:
    # first
    - key: a
      values: [x, y]
    - key: b
      values:
        - p  # pee
        - q
  empty:
# end
"""


def _changed_lines(change: Change) -> list[str]:
    lines = list(unified_diff(TEXT.splitlines(), edit(TEXT, [change]).splitlines(), lineterm="", n=0))
    return [line for line in lines[2:] if not line.startswith("@@")]


@pytest.mark.parametrize(
    ("change", "lines"),
    [
        (
            Put(("spec", "policy", "numberOfClusters"), 5),
            ["-    numberOfClusters: 3  # three", "+    numberOfClusters: 5  # three"],
        ),
        (Put(("spec", "policy", "word"), "yes"), ["+    word: 'yes'"]),
        (Drop(("spec", "policy", "numberOfClusters")), ["-    numberOfClusters: 3  # three"]),
        (
            Rename(("spec", "policy", "placementType"), "sort"),
            ['-    placementType: "PickN"', '+    sort: "PickN"'],
        ),
        (
            Put(("spec", "list", 2), {"key": "", "values": []}),
            ["+    - key: ''", "+      values: []"],
        ),
        (Drop(("spec", "list", 0)), ["-    - key: a", "-      values: [x, y]"]),
        (
            Put(("spec", "list", 0, "values"), ["x", "r,s"]),
            ["-      values: [x, y]", '+      values: [x, "r,s"]'],
        ),
        (Put(("spec", "list", 1, "values"), ["p", "r"]), ["-        - q", "+        - r"]),
        (Put(("spec", "list", 1, "values"), ["p"]), ["-        - q"]),
        (Put(("spec", "list", 1, "values"), ["p", "q", "r"]), ["+        - r"]),
        (Put(("spec", "empty"), "a"), ["-  empty:", "+  empty: a"]),
        (Put(("spec", "empty", "inner"), 3), ["+    inner: 3"]),
        (
            Put(("metadata", "labels", "c"), "d"),
            [
                "-metadata: {name: web, labels: {a: b}}",
                "+metadata: {name: web, labels: {a: b, c: d}}",
            ],
        ),
        (
            Drop(("spec", "strategy", "rollingUpdate", "maxSurge")),
            ["-      maxSurge: 25%   # é", "+      {}   # é"],
        ),
        (
            Put(("spec", "tolerations", 0), {"key": "k"}),
            ["+  tolerations:", "+  - key: k"],
        ),
        (
            Drop(("spec", "list", 0, "key")),
            ["-    - key: a", "-      values: [x, y]", "+    - values: [x, y]"],
        ),
    ],
)
def test_changes_only_the_lines_of_the_place(change: Change, lines: list[str]) -> None:
    assert _changed_lines(change) == lines


@pytest.mark.parametrize(
    ("text", "change"),
    [
        (TEXT, Drop(("spec", "nothing"))),
        (TEXT, Rename(("metadata", "labels", "z"), "y")),
        ("a: 1\n---\na: 2\n", Put(("a",), 3)),
        ("a: [", Put(("a",), 3)),
        ("a: &one {b: 1}\nc: *one\n", Put(("a", "b"), 2)),
        ("a: |\n  long\n  text\n", Put(("a",), 2)),
    ],
)
def test_refuses_what_it_cannot_keep(text: str, change: Change) -> None:
    with pytest.raises(CannotEditError):
        edit(text, [change])


def test_makes_several_changes_in_turn() -> None:
    changes: list[Change] = [Put(("a", 0), {"b": 1}), Put(("a", 0, "c"), [2]), Drop(("a", 0, "b"))]

    assert edit("x: 1\n", changes) == "x: 1\na:\n- c:\n  - 2\n"
