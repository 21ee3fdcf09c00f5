"""What changed: between two documents path by path, two sentences by clause, two manifests by line."""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from difflib import SequenceMatcher, unified_diff
from itertools import groupby, zip_longest
from typing import Any, Protocol

from fleetui.apimachinery.errors import Keys, format_path
from fleetui.apimachinery.words import names_and_more
from fleetui.apimachinery.yaml import dump_yaml

_LONGEST = 80


@dataclass(frozen=True, slots=True)
class FieldDifference:
    """One place where two documents differ; None: there was, or is, nothing there."""

    path: str
    before: str | None
    after: str | None


def differences(before: object, after: object) -> list[FieldDifference]:
    return [
        FieldDifference(format_path(keys), _value_words(old), _value_words(new))
        for keys, old, new in _walk((), before, after)
    ]


_CAUSES_SHOWN, _CAUSE_VALUE = 2, 30


def cause_words(before: Mapping[str, Any], after: Mapping[str, Any]) -> str:
    """Return what an edit of an object changed, as the cause of what follows: "numberOfClusters 5 → 6"."""
    specs = before.get("spec"), after.get("spec")
    words = []
    for difference in differences(*specs) or differences(before, after):
        place, old, new = (
            difference.path.removeprefix("policy."),
            difference.before,
            difference.after,
        )
        if old is None or new is None:
            words.append(f"{place} {'added' if old is None else 'removed'}")
        elif max(len(old), len(new)) > _CAUSE_VALUE:
            words.append(f"{place} changed")
        else:
            words.append(f"{place} {old} → {new}")
    return names_and_more(words, _CAUSES_SHOWN) or "changed"


_ABSENT: Any = object()


def _walk(keys: Keys, before: Any, after: Any) -> Iterator[tuple[Keys, Any, Any]]:
    if before == after:
        return
    if isinstance(before, Mapping) and isinstance(after, Mapping):
        for key in dict.fromkeys([*before, *after]):
            yield from _walk(
                (*keys, key), before.get(key, _ABSENT), after.get(key, _ABSENT)
            )
    elif (
        isinstance(before, list)
        and isinstance(after, list)
        and len(before) == len(after)
    ):
        for index, (old, new) in enumerate(zip(before, after, strict=True)):
            yield from _walk((*keys, index), old, new)
    elif isinstance(before, list) and isinstance(after, list):
        # Of lists of different lengths: what was removed, and what is new.
        yield from (
            ((*keys, index), old, _ABSENT)
            for index, old in enumerate(before)
            if old not in after
        )
        yield from (
            ((*keys, index), _ABSENT, new)
            for index, new in enumerate(after)
            if new not in before
        )
    else:
        yield keys, before, after


def _value_words(value: Any) -> str | None:
    if value is _ABSENT:
        return None
    text = _flat(value)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"


def _flat(value: Any) -> str:
    if isinstance(value, Mapping):
        return (
            ", ".join(f"{key}: {_flat(inner)}" for key, inner in value.items()) or "{}"
        )
    if isinstance(value, list):
        return f"[{', '.join(map(_flat, value))}]"
    if isinstance(value, bool):
        return "true" if value else "false"
    return "null" if value is None else str(value)


MOST_LINES = 4_000
"""Comparing takes the square of the length in the worst case: longer texts are not compared."""
_CLAUSE_END = re.compile(r"(?<=[;,.])\s+")


@dataclass(frozen=True, slots=True)
class Piece:
    """A run of words, or a line; `sign` is "+" for what was added, "−" for what was removed, else empty."""

    sign: str
    text: str


def sentence_diff(before: str, after: str) -> list[Piece]:
    """Compare two sentences clause by clause; a clause that changed inside is replaced as a whole."""
    old, new = _CLAUSE_END.split(before), _CLAUSE_END.split(after)
    return _pieces(SequenceMatcher(a=old, b=new, autojunk=False), old, new, " ")


def _pieces(
    compared: SequenceMatcher[str], left: list[str], right: list[str], joint: str
) -> list[Piece]:
    pieces = []
    for tag, i, j, k, end in compared.get_opcodes():
        if tag == "equal":
            pieces.append(Piece("", joint.join(left[i:j])))
            continue
        parts = (("−", left[i:j]), ("+", right[k:end]))
        pieces += [Piece(sign, joint.join(part)) for sign, part in parts if part]
    return pieces


def line_diff(before: str, after: str, *, context: int = 3) -> list[Piece] | None:
    """Compare two texts line by line, with the lines around each change; None if they are too long.

    A piece with the sign "@" marks lines that are left out.
    """
    old, new = before.splitlines(), after.splitlines()
    if len(old) * len(new) > MOST_LINES**2:
        return None
    signs = {"+": "+", "-": "−"}
    return [
        Piece("@", line)
        if line.startswith("@@")
        else Piece(signs.get(line[:1], ""), line[1:])
        for line in list(unified_diff(old, new, n=context, lineterm=""))[2:]
    ]


@dataclass(frozen=True, slots=True)
class LinePair:
    """A line of two texts beside each other, each with its words marked; None: it is not in that text.

    A gap, of lines that are left out, is in neither.
    """

    before: list[Piece] | None
    after: list[Piece] | None

    @property
    def is_changed(self) -> bool:
        return self.before != self.after

    @property
    def is_gap(self) -> bool:
        return self.before is None and self.after is None


_LEAST_ALIKE = 0.4
_FIRST_LINES = ("@@ -0", "@@ -1,", "@@ -1 ")
"""Nothing is left out before these."""
_TOKENS = re.compile(r"\w+|\s+|[^\w\s]")


def side_by_side(lines: Iterable[Piece]) -> Iterator[LinePair]:
    """Yield the lines of `line_diff` as pairs; of two lines alike only the words that differ have a sign."""
    for is_kept, several in groupby(lines, key=lambda one: one.sign not in ("+", "−")):
        pieces = list(several)
        if is_kept:
            same = (
                None if piece.sign else [piece]
                for piece in pieces
                if not piece.text.startswith(_FIRST_LINES)
            )
            yield from (LinePair(one, one) for one in same)
            continue
        removed, added = (
            [piece for piece in pieces if piece.sign == sign] for sign in "−+"
        )
        for old, new in zip_longest(removed, added):
            if old is None or new is None:
                yield LinePair([old] if old else None, [new] if new else None)
                continue
            left, right = _TOKENS.findall(old.text), _TOKENS.findall(new.text)
            words = SequenceMatcher(a=left, b=right, autojunk=False)
            if words.ratio() < _LEAST_ALIKE:
                yield LinePair([old], [new])
                continue
            marked = _pieces(words, left, right, "")
            yield LinePair(
                [piece for piece in marked if piece.sign != "+"],
                [piece for piece in marked if piece.sign != "−"],
            )


def document_diff(before: Any, after: Any, *, context: int = 3) -> list[Piece] | None:
    """Compare two documents by the lines of their YAML, as `line_diff`; one that is empty has no lines.

    The keys of both are in the order of the first: another order is no difference.
    """
    texts = [dump_yaml(one) if one else "" for one in (before, _ordered(after, before))]
    return line_diff(*texts, context=context)


def _ordered(value: Any, like: Any) -> Any:
    if isinstance(value, Mapping) and isinstance(like, Mapping):
        return {
            key: _ordered(value[key], like.get(key))
            for key in (*like, *value)
            if key in value
        }
    if isinstance(value, list) and isinstance(like, list):
        return list(map(_ordered, value, [*like, *[None] * len(value)]))
    return value


class ObjectChange(Protocol):
    """A change of an object on the hub; None: there was, or is, no object."""

    kind: str
    name: str
    verb: str
    before: Any
    after: Any


_PREFIXES = {"+": "+", "−": "-", "@": "", "": " "}


def unified_text(change: ObjectChange) -> str:
    """Return the difference of an object as a unified diff, as programs read it."""
    title = f"{change.kind} {change.name}"
    lines = document_diff(change.before, change.after)
    if not lines:  # of a cluster the status may differ alone
        reason = "" if lines is not None else ": too long to compare line by line"
        return f"{title} {change.verb}{reason}"
    return "\n".join(
        [
            f"--- {title} (hub)",
            f"+++ {title} (applied)",
            *(f"{_PREFIXES[line.sign]}{line.text}" for line in lines),
        ]
    )
