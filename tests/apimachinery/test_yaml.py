"""YAML and JSON text to plain data and back: what is read, what is refused, and how fast."""

import time
from contextlib import suppress
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from fleetui.apimachinery.errors import FieldError, InvalidManifest
from fleetui.apimachinery.yaml import (
    Document,
    attach_lines,
    dump_yaml,
    items_of,
    load_documents,
)
from tests.documents import errors_in

TEN_MEGABYTES = 10_000_000


def loaded(text: str | bytes) -> list[Any]:
    return [document.data for document in load_documents(text)]


def only_fault(text: str | bytes, **limits: int) -> FieldError:
    with pytest.raises(InvalidManifest) as raised:
        load_documents(text, **limits)
    (error,) = raised.value.errors
    return error


@pytest.mark.parametrize(
    ("word", "value"),
    [
        ("", None),
        ("~", None),
        ("null", None),
        ("true", True),
        ("Yes", True),
        ("ON", True),
        ("no", False),
        ("off", False),
        ("y", "y"),
        ("N", "N"),
        ("12", 12),
        ("-7", -7),
        ("+7", 7),
        ("0x1F", 31),
        ("0x_", "0x_"),
        ("-0b__", "-0b__"),
        ("0o17", 15),
        ("017", 15),
        ("09", 9),
        ("0b11", 3),
        ("1_000", 1000),
        ("1.5", 1.5),
        (".5", 0.5),
        ("1e3", 1000.0),
        ("1:30", "1:30"),
        ("1.2.3", "1.2.3"),
        ("2024-01-01", "2024-01-01"),
        ("2024-01-01T00:00:00Z", "2024-01-01T00:00:00Z"),
        ("25%", "25%"),
        ("500m", "500m"),
        ("'1'", "1"),
        ('"yes"', "yes"),
        ("!!str 1", "1"),
        ("!!int '1'", 1),
        ("!!float 1", 1.0),
        ("! 1", "1"),
    ],
)
def test_words_mean_what_kubectl_takes_them_for(word: str, value: object) -> None:
    (data,) = loaded(f"a: {word}")

    assert data == {"a": value}
    assert type(data["a"]) is type(value)


def test_reads_every_document_and_leaves_out_empty_ones() -> None:
    documents = load_documents("# nothing\n---\na: 1\n---\n---\n- b\n...\n---\nnull\n")

    found = [(document.number, document.data) for document in documents]
    assert found == [(1, {"a": 1}), (3, ["b"]), (4, None)]


@pytest.mark.parametrize("text", ["", "\n", "# only a comment\n", "---\n---\n"])
def test_no_document_is_no_document(text: str) -> None:
    assert load_documents(text) == []


@pytest.mark.parametrize(
    ("text", "data"),
    [
        ('{"a": [1, 2.5, true, null, "x"]}', {"a": [1, 2.5, True, None, "x"]}),
        ("[1, 2]", [1, 2]),
        ("{a: b, c: [d]}", {"a": "b", "c": ["d"]}),
        ('\n {\n\t"a":\t1\n}\n', {"a": 1}),
        ("\ufeffa: 1", {"a": 1}),
        (b"a: \xc3\xa9", {"a": "é"}),
        ("a: &x [1]\nb: *x", {"a": [1], "b": [1]}),
        ("a: !!map {b: !!seq [c]}", {"a": {"b": ["c"]}}),
        ("a: |\n  b\n  c\n", {"a": "b\nc\n"}),
    ],
)
def test_reads(text: str | bytes, data: object) -> None:
    assert loaded(text) == [data]


BOMB = "a: &a [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{name}: &{name} [{', '.join(['*' + before] * 9)}]\n"
    for before, name in zip("abcdefgh", "bcdefghi", strict=True)
)


@pytest.mark.parametrize(
    ("text", "path", "code", "line"),
    [
        ("a: b: c", "", "bad-syntax", 1),
        ("a:\n  - b\n c: d", "", "bad-syntax", 3),
        ('{"a": 1', "", "bad-syntax", 1),
        ("a: 1\nb:\n  c: 1\n  c: 2\n", "b.c", "duplicate", 4),
        ('{"a": {"b": 1,\n"b": 2}}', "a.b", "duplicate", 2),
        ("a:\n- b\n- 1: c\n", "a[1]", "wrong-type", 3),
        ("yes: a", "", "wrong-type", 1),
        ("? [a]\n: b", "", "wrong-type", 1),
        ("{a: b}: c", "", "wrong-type", 1),
        ("a: !!python/object:os.system b", "a", "unknown-tag", 1),
        ("a: !!binary aGk=", "a", "unknown-tag", 1),
        ("a: !!set {b}", "a", "unknown-tag", 1),
        ("a: !!int b", "a", "wrong-type", 1),
        ("a: .inf", "a", "out-of-range", 1),
        ("a: 1e999", "a", "out-of-range", 1),
        ("a: " + "1" * 5000, "a", "out-of-range", 1),
        ("[" + "1" * 5000 + "]", "", "out-of-range", None),
        ("[NaN]", "", "out-of-range", None),
        ("[1e999]", "", "out-of-range", None),
        ("a: &a [*a]", "a[0]", "bad-syntax", 1),
        ("a: *b", "a", "bad-syntax", 1),
        ("a: &a {b: c}\n<<: *a", "", "not-supported", 2),
        (BOMB, "f[6]", "too-large", 6),
        (b"a: \xff", "", "not-text", None),
        ("a: 1".encode("utf-16"), "", "not-text", None),
        ("a: \ud800", "", "not-text", None),
        ("a: 1\nb: \x00", "", "not-text", 2),
        ("a: 1\nb: \x07", "", "not-text", 2),
        ('["\\ud800"]', "[0]", "bad-format", None),
    ],
)
def test_refuses(text: str | bytes, path: str, code: str, line: int | None) -> None:
    error = only_fault(text)

    assert (error.path, error.code, error.line) == (path, code, line)


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("text", "hint", "line"),
    [
        ("a:\n\tb: 1\n", "use spaces, not tabs", 2),
        ("a: 1\nb: 'x\nc: 1\n", "the quote that starts here is not closed", 2),
        ("a:\n   b: 1\n  c: 1\n", "check the indentation", 3),
        ("a: b: c", "check the indentation; quote text that has a colon", 1),
        ("a: 1\nb\nc: 2\n", 'a line has the form "key: value"', 2),
    ],
)
def test_an_error_of_the_parser_says_what_to_do(
    text: str, hint: str, line: int
) -> None:
    error = only_fault(text)

    assert (hint in error.message, error.line) == (True, line), error.message


@pytest.mark.parametrize(
    "text",
    [
        "[" * TEN_MEGABYTES,
        "- " * (TEN_MEGABYTES // 2),
        "{a: " * (TEN_MEGABYTES // 4),
        '{"a": ' * (TEN_MEGABYTES // 6),
        "a: " + "[" * TEN_MEGABYTES,
        "? " * (TEN_MEGABYTES // 2),
        "".join(" " * depth + "a:\n" for depth in range(4400)),
        "a: &a " + "x" * 1_000_000 + "\nb: [" + "*a, " * 100_000 + "]",
        "[" + "{" * TEN_MEGABYTES,
        "*a " * (TEN_MEGABYTES // 3),
    ],
    ids=[
        "lists",
        "dashes",
        "objects",
        "json",
        "inside",
        "keys",
        "indented",
        "repeated",
        "mixed",
        "aliases",
    ],
)
def test_hostile_text_is_refused_at_once(text: str) -> None:
    begun = time.process_time()

    with pytest.raises(InvalidManifest):
        load_documents(text)

    assert time.process_time() - begun < 1


def test_nesting_is_taken_up_to_the_limit() -> None:
    assert loaded("- " * 63 + "[]") != []
    assert only_fault("- " * 64 + "[]").code == "too-deep"
    assert only_fault("[" * 65 + "]" * 65).code == "too-deep"


def test_aliases_count_as_deep_as_what_they_stand_for() -> None:
    deep = "[" * 40 + "]" * 40

    assert only_fault(f"a: &a {deep}\nb: {'[' * 30}*a{']' * 30}").code == "too-deep"


def test_limits_are_the_callers() -> None:
    text = "a: 1\n---\nb: " + "x" * 100

    assert only_fault(text, max_bytes=50).code == "too-large"
    assert only_fault('{"a": "' + "é" * 30 + '"}', max_bytes=50).code == "too-large"
    assert (
        only_fault(text, max_document_bytes=50).message
        == "Too large: document 2 must be at most 50 bytes"
    )
    assert (
        only_fault('{"a": "' + "é" * 30 + '"}', max_document_bytes=50).code
        == "too-large"
    )
    assert len(load_documents(text, max_bytes=200, max_document_bytes=150)) == 2


TEXT = """\
kind: first
---
spec:
  policy:
    tolerations:
      - key: a
      - key: b
        "x/y": 1
"""


def line_of(document: Document, path: str) -> int | None:
    """Return the line that a fault at this path would be placed on."""
    return attach_lines([(document, FieldError(path, "required", "is missing"))])[
        0
    ].line


@pytest.mark.parametrize(
    ("path", "line"),
    [
        ("", 3),
        ("spec", 3),
        ("spec.policy.tolerations[1]", 7),
        ('spec.policy.tolerations[1]["x/y"]', 8),
        ("spec.policy.missing", 4),
        ("spec.policy.tolerations[7].key", 5),
    ],
)
def test_finds_the_line_of_a_place_or_of_what_should_hold_it(
    path: str, line: int
) -> None:
    assert line_of(load_documents(TEXT)[1], path) == line


def test_lines_are_attached_to_faults() -> None:
    error = FieldError(
        'spec.policy.tolerations[1]["x/y"]', "unknown-field", "is not a field"
    )

    (error,) = attach_lines([(load_documents(TEXT)[1], error)])

    assert str(error) == 'spec.policy.tolerations[1]["x/y"] (line 8): is not a field'


def test_json_with_tabs_has_the_lines_that_can_be_found() -> None:
    document = load_documents('{\n\t"a": {\n\t\t"b": 1\n\t}\n}')[0]

    assert line_of(document, "a.b") in (None, 1, 3)


def test_items_of_a_list_are_documents_with_their_own_lines() -> None:
    text = "apiVersion: v1\nkind: List\nitems:\n- kind: A\n- kind: B\n  x: 1\n"

    items = items_of(load_documents(text)[0])

    assert [item.data for item in items] == [{"kind": "A"}, {"kind": "B", "x": 1}]
    assert line_of(items[1], "x") == 6


@pytest.mark.parametrize(
    "text", ["kind: List\nitems:\n" + "- a: 1\n" * 500, "---\n\na: 1\n" * 500]
)
def test_a_text_is_read_once_more_however_many_faults_it_has(
    monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    readings: list[int] = []
    parse = yaml.parse
    items = [item for document in load_documents(text) for item in items_of(document)]

    def counted(*arguments: Any, **options: Any) -> Any:
        readings.append(1)
        return parse(*arguments, **options)

    monkeypatch.setattr("fleetui.apimachinery.yaml.yaml.parse", counted)

    errors = attach_lines(
        (item, FieldError("a", "wrong-type", "is odd")) for item in items
    )

    lines = [
        number
        for number, line in enumerate(text.splitlines(), start=1)
        if line.endswith("a: 1")
    ]
    assert [error.line for error in errors] == lines
    assert len(readings) == 1


def test_items_of_a_typed_list_know_their_kind() -> None:
    document = Document(
        {"apiVersion": "c/v1", "kind": "MemberClusterList", "items": [{"a": 1}]}, 1
    )

    assert [item.data for item in items_of(document)] == [
        {"apiVersion": "c/v1", "kind": "MemberCluster", "a": 1}
    ]


@pytest.mark.parametrize(
    "data",
    [{"kind": "Namespace"}, {"kind": "Wishlist"}, [1], None, {"kind": 5, "items": []}],
)
def test_anything_else_is_itself(data: object) -> None:
    document = Document(data, 1)

    assert items_of(document) == [document]


def test_a_list_needs_a_list_of_items() -> None:
    assert errors_in(items_of, Document({"kind": "List", "items": {}}, 1)) == [
        ("items", "wrong-type")
    ]
    assert items_of(Document({"kind": "List", "items": None}, 1)) == []


NUMBER_LIKE = ["1e3", "0o17", "0x1", "017", "1_000", "1:30", "2024-01-01", "25%", "."]
ODD_WORDS = [
    "yes",
    "y",
    "~",
    "<<",
    "=",
    "null",
    "-",
    ":",
    "#",
    "*a",
    "&a",
    "!a",
    *NUMBER_LIKE,
]
TEXTS = st.text(
    st.characters(exclude_categories=("Cs", "Cc"), include_characters="\n\t"),
    max_size=30,
) | st.sampled_from([*ODD_WORDS, "", " ", "- a", "\n", "\n a", " a\n", "a: b"])
NUMBERS = st.integers(-(2**63), 2**63) | st.floats(
    allow_nan=False, allow_infinity=False
)
PLAIN = st.recursive(
    st.none() | st.booleans() | NUMBERS | TEXTS,
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4)
    ),
    max_leaves=20,
)


@given(PLAIN)
def test_what_is_written_reads_the_same(data: object) -> None:
    (document,) = load_documents(dump_yaml({"data": data}))

    assert document.data == {"data": data}


def test_key_order_is_kept_and_nothing_is_abbreviated() -> None:
    shared = ["x"]

    assert dump_yaml({"b": shared, "a": shared}) == "b:\n- x\na:\n- x\n"


ANY_TEXT = st.text(st.characters(exclude_categories=()), max_size=60)
YAML_LIKE = st.text("[]{}:-?&*!|>'\"#,\n ab1<", max_size=60)


@given(ANY_TEXT | YAML_LIKE | st.binary(max_size=60))
def test_anything_is_read_or_refused(text: str | bytes) -> None:
    with suppress(InvalidManifest):
        load_documents(text)


@pytest.mark.nightly
def test_a_large_export_loads_fast() -> None:
    properties = {
        f"example.com/p{i}": {
            "value": str(i),
            "observationTime": "2026-08-20T12:00:00Z",
        }
        for i in range(20)
    }
    item = {
        "kind": "MemberCluster",
        "metadata": {"name": "m"},
        "status": {"properties": properties},
    }
    text = dump_yaml({"kind": "List", "items": [item] * 1000})
    begun = time.process_time()

    (document,) = load_documents(text)

    assert len(items_of(document)) == 1000
    assert time.process_time() - begun < 5
