"""What changed between two texts: a sentence word by word, a manifest line by line."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from difflib import SequenceMatcher, unified_diff

MOST_LINES = 4_000
"""Comparing takes the square of the length in the worst case: longer texts are not compared."""
_CLAUSE_END = re.compile(r"(?<=[;,.])\s+")


@dataclass(frozen=True, slots=True)
class Piece:
    """A run of words, or a line; `sign` is "+" for what came, "−" for what went, empty for what stayed."""

    sign: str
    text: str


def sentence_diff(before: str, after: str) -> list[Piece]:
    """Compare two sentences clause by clause; what changed inside a clause is told as a whole clause."""
    return list(_pieces(_CLAUSE_END.split(before), _CLAUSE_END.split(after)))


def _pieces(old: list[str], new: list[str]) -> Iterator[Piece]:
    for tag, i, j, k, end in SequenceMatcher(a=old, b=new, autojunk=False).get_opcodes():
        if tag == "equal":
            yield Piece("", " ".join(old[i:j]))
            continue
        if i < j:
            yield Piece("−", " ".join(old[i:j]))
        if k < end:
            yield Piece("+", " ".join(new[k:end]))


def line_diff(before: str, after: str, *, context: int = 3) -> list[Piece] | None:
    """Compare two texts line by line, with the lines around each change; None where they are too long.

    A piece with the sign "@" stands where lines are left out.
    """
    old, new = before.splitlines(), after.splitlines()
    if len(old) > MOST_LINES or len(new) > MOST_LINES:
        return None
    lines = list(unified_diff(old, new, n=context, lineterm=""))[2:]
    return [_line(one) for one in lines]


def _line(line: str) -> Piece:
    if line.startswith("@@"):
        return Piece("@", line)
    return Piece({"+": "+", "-": "−"}.get(line[:1], ""), line[1:])
