"""Small edits of a YAML text: what they change, and that nothing else changes."""

from difflib import unified_diff

import pytest

from fleetui.apimachinery.yaml_edit import (
    Change,
    RemoveValue,
    RenameKey,
    SetValue,
    UneditableYaml,
    edit,
)

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
    lines = list(
        unified_diff(
            TEXT.splitlines(), edit(TEXT, [change]).splitlines(), lineterm="", n=0
        )
    )
    return [line for line in lines[2:] if not line.startswith("@@")]


@pytest.mark.parametrize(
    ("change", "lines"),
    [
        (
            SetValue(("spec", "policy", "numberOfClusters"), 5),
            ["-    numberOfClusters: 3  # three", "+    numberOfClusters: 5  # three"],
        ),
        (SetValue(("spec", "policy", "word"), "yes"), ["+    word: 'yes'"]),
        (
            RemoveValue(("spec", "policy", "numberOfClusters")),
            ["-    numberOfClusters: 3  # three"],
        ),
        (
            RenameKey(("spec", "policy", "placementType"), "sort"),
            ['-    placementType: "PickN"', '+    sort: "PickN"'],
        ),
        (
            SetValue(("spec", "list", 2), {"key": "", "values": []}),
            ["+    - key: ''", "+      values: []"],
        ),
        (RemoveValue(("spec", "list", 0)), ["-    - key: a", "-      values: [x, y]"]),
        (
            SetValue(("spec", "list", 0, "values"), ["x", "r,s"]),
            ["-      values: [x, y]", '+      values: [x, "r,s"]'],
        ),
        (
            SetValue(("spec", "list", 1, "values"), ["p", "r"]),
            ["-        - q", "+        - r"],
        ),
        (SetValue(("spec", "list", 1, "values"), ["p"]), ["-        - q"]),
        (SetValue(("spec", "list", 1, "values"), ["p", "q", "r"]), ["+        - r"]),
        (SetValue(("spec", "empty"), "a"), ["-  empty:", "+  empty: a"]),
        (SetValue(("spec", "empty", "inner"), 3), ["+    inner: 3"]),
        (
            SetValue(("metadata", "labels", "c"), "d"),
            [
                "-metadata: {name: web, labels: {a: b}}",
                "+metadata: {name: web, labels: {a: b, c: d}}",
            ],
        ),
        (
            RemoveValue(("spec", "strategy", "rollingUpdate", "maxSurge")),
            ["-      maxSurge: 25%   # é", "+      {}   # é"],
        ),
        (
            SetValue(("spec", "tolerations", 0), {"key": "k"}),
            ["+  tolerations:", "+  - key: k"],
        ),
        (
            RemoveValue(("spec", "list", 0, "key")),
            ["-    - key: a", "-      values: [x, y]", "+    - values: [x, y]"],
        ),
    ],
)
def test_changes_only_the_lines_of_the_place(change: Change, lines: list[str]) -> None:
    assert _changed_lines(change) == lines


@pytest.mark.parametrize(
    ("text", "change"),
    [
        (TEXT, RemoveValue(("spec", "nothing"))),
        (TEXT, RenameKey(("metadata", "labels", "z"), "y")),
        ("a: 1\n---\na: 2\n", SetValue(("a",), 3)),
        ("a: [", SetValue(("a",), 3)),
        ("a: &one {b: 1}\nc: *one\n", SetValue(("a", "b"), 2)),
        ("a: |\n  long\n  text\n", SetValue(("a",), 2)),
    ],
)
def test_refuses_what_it_cannot_keep(text: str, change: Change) -> None:
    with pytest.raises(UneditableYaml):
        edit(text, [change])


def test_makes_several_changes_in_turn() -> None:
    changes: list[Change] = [
        SetValue(("a", 0), {"b": 1}),
        SetValue(("a", 0, "c"), [2]),
        RemoveValue(("a", 0, "b")),
    ]

    assert edit("x: 1\n", changes) == "x: 1\na:\n- c:\n  - 2\n"
