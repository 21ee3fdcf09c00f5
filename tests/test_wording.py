"""Texts for people use the words of the glossary: no word of `data/wording.tsv` in pages and documents."""

import ast
import re
from collections import Counter
from collections.abc import Iterator
from functools import cache
from html import unescape
from pathlib import Path

import pytest

from tests.source_code import PRODUCT, ROOT, TESTS, Module, nodes_of

# In one process, which parses each module once.
pytestmark = pytest.mark.xdist_group("sources")

RULES = [
    line.split("\t")
    for line in (ROOT / "tests/data/wording.tsv").read_text().splitlines()
    if line and not line.startswith("#")
]
PATTERNS = {
    scope: re.compile(
        r"(?<![\w-])(?:"
        + "|".join(f"(?:{words})" for words, rule, _ in RULES if rule in scope)
        + r")(?![\w-])",
        re.IGNORECASE,
    )
    for scope in ("G", "GD", "GDU")
}
FORMER_NAMES = re.compile(
    "(?:^|_)(?:"
    + "|".join(words for words, rule, _ in RULES if rule == "N")
    + ")(?:_|$)"
)
"""Parts of names of the first edition that the glossary replaced."""
MOST_IN_STRINGS = 13
"""Matches in Python strings with a space: values of REST and of records, and messages of KubeFleet."""


def _visible(template: str) -> str:
    """Return the text between tags, and the attributes that people see or hear."""
    text = re.sub(r"\{#.*?#\}|\{%.*?%\}|\{\{.*?\}\}", " ", template, flags=re.DOTALL)
    attributes = re.findall(r'(?:aria-label|title|alt|placeholder)="([^"]*)"', text)
    text = re.sub(r"<(script|style|code)\b.*?</\1>", " ", text, flags=re.DOTALL)
    return unescape("\n".join([re.sub(r"<[^>]*>", " ", text), *attributes]))


def strings_of(tree: ast.Module) -> Iterator[str]:
    docstrings = {
        id(node.value) for node in nodes_of(tree) if isinstance(node, ast.Expr)
    }
    constants = (node for node in nodes_of(tree) if isinstance(node, ast.Constant))
    for node in constants:
        if (
            isinstance(node.value, str)
            and " " in node.value
            and id(node) not in docstrings
        ):
            yield node.value


_STRING_OR_COMMENT = re.compile(
    r"""(?s:\"{3}(?:\\.|[^\\])*?\"{3}|'{3}(?:\\.|[^\\])*?'{3})"""
    r"""|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'|(#[^\n]*)"""
)
"""A tenth of the time of the tokenizer: outside strings a `#` starts a comment."""


def docstrings_and_comments(module: Module) -> Iterator[str]:
    for node in nodes_of(module.tree):  # of constants and attributes too
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            yield str(node.value.value)
    yield from filter(None, _STRING_OR_COMMENT.findall(module.text))


def _matches(texts: Iterator[tuple[Path, str]], scope: str) -> list[str]:
    return [
        f"{path.relative_to(ROOT)}: {found[0]!r} in {' '.join(text.split())[:100]!r}"
        for path, text in texts
        for found in PATTERNS[scope].finditer(text)
    ]


@cache
def _in_templates() -> list[str]:
    pages = [
        path
        for path in sorted(ROOT.glob("templates/**/*.html"))
        if path.parent.name != "admin"
    ]
    return _matches(((path, _visible(path.read_text())) for path in pages), "GDU")


def _in_strings() -> list[str]:
    return _matches(
        ((module.path, text) for module in PRODUCT for text in strings_of(module.tree)),
        "GDU",
    )


def _in_docstrings_and_comments() -> list[str]:
    return _matches(
        (
            (module.path, text)
            for module in PRODUCT
            for text in docstrings_and_comments(module)
        ),
        "G",
    )


def _in_scripts_style_sheets_and_documents() -> list[str]:
    files = [
        path
        for pattern in ("static/**/*.js", "static/**/*.css", "docs/**/*.md", "*.md")
        for path in sorted(ROOT.glob(pattern))
    ]
    return _matches(
        ((path, re.sub("`[^`]*`", " ", path.read_text())) for path in files), "GD"
    )


@pytest.mark.parametrize(
    ("find", "most"),
    [
        (_in_templates, 0),
        (_in_scripts_style_sheets_and_documents, 0),
        (_in_strings, MOST_IN_STRINGS),
        (_in_docstrings_and_comments, 0),
    ],
)
def test_former_words_are_not_used(find, most):
    found = find()

    per_file = Counter(one.partition(":")[0] for one in found)
    assert len(found) <= most, "\n".join(
        [*found, *(f"{count} {path}" for path, count in per_file.items())]
    )


def test_names_use_the_terms_of_the_glossary():
    found = {
        f"{module.name}: {name}"
        for module in PRODUCT
        for node in nodes_of(module.tree)
        if (
            name := getattr(node, "name", None)
            or getattr(node, "arg", None)
            or getattr(node, "id", None)
        )
        if FORMER_NAMES.search(re.sub("(?<=[a-z])(?=[A-Z])", "_", name).lower())
    }

    assert found == set()
    names = {
        f"{test.name}: {name}"
        for test in TESTS
        for name in re.findall(r"\b(?:def|class) (\w+)", test.text)
    }
    assert [
        one for one in names if FORMER_NAMES.search(one.rpartition(" ")[2].lower())
    ] == []


def test_docstrings_start_with_a_standard_verb():
    former = re.compile(r'^ *"""((?:Ask|Give|Let|Look|Say|Tell)s?\b.*)', re.MULTILINE)

    assert [
        f"{module.name}: {found}"
        for module in (*PRODUCT, *TESTS)
        for found in former.findall(module.text)
    ] == []


def test_every_rule_has_a_replacement():
    assert all(len(rule) == 3 and rule[1] in "GDUN" and rule[2] for rule in RULES)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("Whom it moves", ["Whom"]),
        ("X carries out r2", ["carries out"]),
        ("PickN stands for a number", []),
        ("a handful of secondhand parts", []),
    ],
)
def test_patterns_match_whole_words(text, words):
    assert [found[0] for found in PATTERNS["GDU"].finditer(text)] == words
