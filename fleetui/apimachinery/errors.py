"""Errors of manifests: what is wrong, where, and what is allowed; the same at every entry point."""

import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from fleetui.apimachinery.words import first_lines
from fleetui.errors import FleetError

Keys: TypeAlias = tuple[str | int, ...]

_PLAIN_KEY = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_STEP = re.compile(
    r"\.?(?P<name>[A-Za-z_][A-Za-z0-9_]*)"
    r"|\[(?P<index>[0-9]+)\]"
    r'|\[(?P<quoted>"(?:[^"\\]|\\.)*")\]'
)
_LONGEST_PATH = 300
_ERRORS_SHOWN = 200


@dataclass(frozen=True, slots=True)
class FieldError:
    """One error of a manifest. Codes are stable, messages are for people."""

    path: str
    code: str
    message: str
    allowed: str = ""
    line: int | None = None

    def __str__(self) -> str:
        words = self.path
        if len(words) > _LONGEST_PATH:
            words = f"{words[:_LONGEST_PATH]}…"
        if self.line is not None:
            words += f" (line {self.line})"
        if words:
            words += ": "
        allowed = f" (allowed: {self.allowed})" if self.allowed else ""
        return f"{words.lstrip()}{self.message}{allowed}"


@dataclass(frozen=True, slots=True)
class ManifestWarning:
    """Something accepted that may not have the effect that its author expects."""

    code: str
    path: str
    message: str


def warnings_of(
    checks: Iterable[tuple[object, str, str, str]],
) -> tuple[ManifestWarning, ...]:
    """Return the warnings that apply: each check is whether it does, then code, path and message."""
    return tuple(ManifestWarning(*words) for applies, *words in checks if applies)


class InvalidManifest(FleetError, ValueError):
    """Every error in one manifest, in document order."""

    status = 422
    problem_type = "invalid-document"

    def __init__(self, errors: Iterable[FieldError]) -> None:
        self.errors = tuple(dict.fromkeys(errors))
        super().__init__(self.errors)

    @classmethod
    def of(
        cls,
        path: str,
        code: str,
        message: str,
        allowed: str = "",
        line: int | None = None,
    ) -> "InvalidManifest":
        return cls([FieldError(path, code, message, allowed, line)])

    def __str__(self) -> str:
        return "\n".join(first_lines(map(str, self.errors), _ERRORS_SHOWN))


def raise_errors(errors: Iterable[FieldError]) -> None:
    """Raise InvalidManifest with the errors, if there are any."""
    if found := tuple(errors):
        raise InvalidManifest(found)


@dataclass(frozen=True, slots=True)
class ErrorDetail:
    """An error whose place is still a tuple of keys, relative to some value."""

    keys: Keys
    code: str
    message: str
    allowed: str = ""

    def under(self, *outer: str | int) -> "ErrorDetail":
        return ErrorDetail((*outer, *self.keys), self.code, self.message, self.allowed)


def format_path(keys: Iterable[str | int]) -> str:
    """Return keys as a path such as `spec.items[0].labels["example.com/zone"]`."""
    parts: list[str] = []
    for key in keys:
        if isinstance(key, int):
            parts.append(f"[{key}]")
        elif _PLAIN_KEY.fullmatch(key):
            parts.append(f".{key}")
        else:
            parts.append(f"[{json.dumps(key, ensure_ascii=False)}]")
    return "".join(parts).removeprefix(".")


def split_path(path: str) -> Keys:
    """Return the keys of a path that `format_path` wrote. Raise ValueError for anything else."""
    keys: list[str | int] = []
    position = 0
    while position < len(path):
        step = _STEP.match(path, position)
        if step is None:
            raise ValueError(f"not a path: {path!r}")
        if step["index"]:
            keys.append(int(step["index"]))
        elif step["quoted"]:
            keys.append(str(json.loads(step["quoted"])))
        else:
            keys.append(step["name"])
        position = step.end()
    return tuple(keys)


def faults_of(
    problems: Iterable[ErrorDetail], document: object, *, path: str = ""
) -> InvalidManifest:
    """Return problems as InvalidManifest in document order."""
    place = document_order(document)
    outer = split_path(path)
    ordered = sorted(problems, key=lambda problem: place(problem.keys))
    return InvalidManifest(
        FieldError(
            format_path((*outer, *problem.keys)),
            problem.code,
            problem.message,
            problem.allowed,
        )
        for problem in ordered
    )


def document_order(document: object) -> Callable[[Keys], tuple[int, ...]]:
    """Return a sort key for places in a document; a missing key comes after the present ones."""
    positions: dict[int, dict[object, int]] = {}

    def place(keys: Keys) -> tuple[int, ...]:
        ranks_of_keys: list[int] = []
        here: object = document
        for key in keys:
            if isinstance(here, Mapping):
                ranks = positions.get(id(here))
                if ranks is None:
                    ranks = positions[id(here)] = {
                        each: rank for rank, each in enumerate(here)
                    }
                ranks_of_keys.append(ranks.get(key, len(ranks)))
                here = here.get(key)
            elif isinstance(key, int):
                ranks_of_keys.append(key)
                here = (
                    here[key]
                    if isinstance(here, (list, tuple)) and key < len(here)
                    else None
                )
            else:
                ranks_of_keys.append(0)
                here = None
        return tuple(ranks_of_keys)

    return place
