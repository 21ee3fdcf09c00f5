"""Validation of a draft: its errors with their lines, its form, and what a preview can use of it.

A list row with an error, an unknown field and a line that is no YAML are left out of the preview; after any
other error there is no preview.
"""

import hashlib
from collections.abc import (
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from copy import deepcopy
from dataclasses import dataclass
from functools import cached_property
from math import inf
from operator import itemgetter
from typing import Any

from fleetui.access.secret_values import plain_manifest
from fleetui.apimachinery.errors import (
    FieldError,
    InvalidManifest,
    Keys,
    format_path,
    split_path,
)
from fleetui.apimachinery.kinds import NAMESPACED_PLACEMENT_KIND, PLACEMENT_KIND
from fleetui.apimachinery.secrets import HIDDEN, without_nested_secrets
from fleetui.apimachinery.words import split_full_name
from fleetui.apimachinery.yaml import (
    Document,
    attach_lines,
    dump_yaml,
    items_of,
    load_documents,
)
from fleetui.permissions import AnyUser, may_view_secrets
from placements.manifests.placement import ClusterResourcePlacement, parse_placement
from placements.models import Draft
from placements.services.editor.form import (
    ABSENT,
    MOST_FIELDS,
    NAMESPACE,
    SELECTORS,
    PlacementForm,
    at,
)
from placements.services.results import name_on_hub

_ROUNDS = 20
_MOST_UNREADABLE = 3
_LONGEST_REPAIRED = 20_000
_ALLOWED = f"one {PLACEMENT_KIND}, or one Placement of OCM"
_STAND_IN_NAME = "draft"
_STAND_IN_SELECTOR = {
    "group": "",
    "version": "v1",
    "kind": "Namespace",
    "name": "draft",
}


@dataclass(frozen=True)
class PlacementDraft:
    """A text read as a manifest; `name` is the name that it must have, empty for a new placement.

    Its YAML is read by `parse`, its manifest parsed once, with the first use of `errors` or `manifest`.
    """

    text: str
    name: str = ""
    document: Document | None = None
    syntax_errors: tuple[FieldError, ...] = ()

    @classmethod
    def parse(cls, text: str, *, name: str = "") -> "PlacementDraft":
        """Read a text as a draft; nothing is raised, whatever it contains: a draft has its errors."""
        try:
            documents = load_documents(text)
        except InvalidManifest as invalid:
            return cls(text, name, syntax_errors=invalid.errors)
        if not documents:
            error = FieldError("", "required", "Empty manifest", _ALLOWED)
            return cls(text, name, syntax_errors=(error,))
        if len(documents) > 1:
            error = FieldError(
                "", "too-many", f"there are {len(documents)} manifests", _ALLOWED
            )
            return cls(text, name, syntax_errors=(error,))
        items = items_of(documents[0])
        return cls(text, name, items[0] if len(items) == 1 else documents[0])

    @property
    def digest(self) -> str:
        return hashlib.sha256(self.text.encode()).hexdigest()[:16]

    @property
    def data(self) -> Any:
        return self.document.data if self.document else None

    @property
    def namespace(self) -> str:
        """The namespace in which it selects resources; empty for one that is cluster-scoped."""
        namespace = at(self.data, NAMESPACE)
        has_one = at(self.data, ("kind",)) == NAMESPACED_PLACEMENT_KIND
        return namespace if has_one and isinstance(namespace, str) else ""

    @property
    def errors(self) -> tuple[FieldError, ...]:
        """What is wrong with the text alone; a preview adds what only the hub can know."""
        return self._manifest_and_errors[1]

    @property
    def manifest(self) -> ClusterResourcePlacement | None:
        return self._manifest_and_errors[0]

    @cached_property
    def _manifest_and_errors(
        self,
    ) -> tuple[ClusterResourcePlacement | None, tuple[FieldError, ...]]:
        if self.document is None:
            return None, self.syntax_errors
        try:
            manifest = parse_placement(self.document.data)
        except InvalidManifest as invalid:
            return None, self.with_lines(invalid.errors)
        if (
            self.name not in ("", manifest.full_name)
            and name_on_hub(manifest) != self.name
        ):
            allowed, name = split_full_name(self.name)
            key = "namespace"
            if manifest.metadata.name != name:
                key, allowed = "name", name
            error = FieldError(
                f"metadata.{key}",
                "immutable",
                f"the {key} of the placement {self.name} cannot be changed",
                allowed or "no namespace",
            )
            return None, self.with_lines([error])
        return manifest, ()

    def with_lines(self, errors: Iterable[FieldError]) -> tuple[FieldError, ...]:
        """Return the errors with the lines of the text where their places are."""
        document = self.document
        if document is None:
            return tuple(errors)
        return tuple(attach_lines((document, error) for error in errors))

    @property
    def valid_part(self) -> ClusterResourcePlacement | None:
        """What a preview can use: the manifest without what is `left_out`; None where that is nothing."""
        return self._valid[0]

    @property
    def left_out(self) -> tuple[str, ...]:
        return self._valid[1]

    @cached_property
    def _readable(self) -> tuple[Any, tuple[str, ...]]:
        """Return the data of the text, and the lines without which it can be read, such as a half typed key.

        A line is removed with what is indented below it. Of a syntax error the lines before may be the cause.
        """
        if self.document is not None or len(self.text) > _LONGEST_REPAIRED:
            return self.data, ()
        lines, left_out = self.text.split("\n"), list[int]()
        line = next((error.line for error in self.syntax_errors if error.line), 0)
        for _ in range(_MOST_UNREADABLE):
            attempts, readable = _without_each_block(lines, line)
            if readable:  # the one that leaves the least out
                _, data, number = max(readable, key=itemgetter(0))
                return data, tuple(f"line {one}" for one in sorted([*left_out, number]))
            if not attempts:
                break
            line, number, lines = max(attempts)
            left_out.append(number)
        return None, ()

    @cached_property
    def _valid(self) -> tuple[ClusterResourcePlacement | None, tuple[str, ...]]:
        """Leave out what is half typed, until the rest can be read."""
        data, unreadable = self._readable
        if self.manifest or not isinstance(data, Mapping):
            return self.manifest, ()
        rest = deepcopy(dict(data))
        origins = dict(_origins(rest, ()))
        left_out = list(unreadable)
        for _ in range(_ROUNDS):
            try:
                return parse_placement(rest), tuple(left_out)
            except InvalidManifest as invalid:
                cuts = [_place_to_cut(rest, error) for error in invalid.errors]
            if None in cuts:
                break
            last_first = sorted(
                set(filter(None, cuts)),
                key=lambda keys: [(isinstance(key, str), key) for key in keys],
                reverse=True,
            )
            for keys in last_first:
                if at(rest, keys) is not ABSENT:
                    around = origins.get(id(at(rest, keys[:-1])), keys[:-1])
                    left_out.append(
                        format_path(
                            origins.get(id(at(rest, keys)), (*around, keys[-1]))
                        )
                    )
                    _remove(rest, keys)
        return None, ()

    @property
    def form(self) -> PlacementForm | None:
        return self._form[0]

    @property
    def no_form(self) -> str:
        return self._form[1]

    @cached_property
    def _form(self) -> tuple[PlacementForm | None, str]:
        if self.document is None:
            return None, "The manifest cannot be read. Edit it as YAML."
        data = self.document.data
        if self.document.path_prefix or not isinstance(data, Mapping):
            return None, f"This is not one {PLACEMENT_KIND}. Edit it as YAML."
        if str(data.get("apiVersion")).startswith(
            "cluster.open-cluster-management.io/"
        ):
            return None, "OCM manifests have no form. Edit the manifest as YAML."
        if data.get("kind") not in (PLACEMENT_KIND, NAMESPACED_PLACEMENT_KIND):
            return None, f"This is not a {PLACEMENT_KIND}. Edit it as YAML."
        form = PlacementForm.of(data)
        if len(form.fields) > MOST_FIELDS:
            return (
                None,
                f"The form would have {len(form.fields)} fields. Edit it as YAML.",
            )
        return form, ""


def _without_each_block(
    lines: Sequence[str], line: int
) -> tuple[list[tuple[int, int, list[str]]], list[tuple[int, Any, int]]]:
    """Leave out the block of a line, or of one before it.

    Return the attempts that failed, each with the line of its error, the number left out and the rest; and
    those that can be read, each with its length, its data and the number left out.
    """
    attempts, readable = [], []
    for number in range(max(1, line - 2), min(line, len(lines)) + 1):
        rest = _without_block(lines, number)
        try:
            documents = load_documents("\n".join(rest))
        except InvalidManifest as invalid:
            attempts.append((invalid.errors[0].line or 0, number, rest))
            continue
        data = documents[0].data if len(documents) == 1 else None
        readable.append((len("".join(rest)), data, number))
    return attempts, readable


def _without_block(lines: Sequence[str], number: int) -> list[str]:
    """Return the lines, empty where one of them and what is indented below it were."""
    indent = _indent_of(lines[number - 1])
    later = (
        place
        for place in range(number, len(lines))
        if _indent_of(lines[place]) <= indent
    )
    end = next(later, len(lines))
    return [*lines[: number - 1], *[""] * (end - number + 1), *lines[end:]]


def _indent_of(line: str) -> float:
    """Return the column where a line begins; an empty one is part of the block before it."""
    if not line.strip():
        return inf
    return len(line) - len(line.lstrip())


def _origins(value: Any, keys: Keys) -> Iterator[tuple[int, Keys]]:
    """Yield the places of all objects and lists, which move up when something before them is left out."""
    if isinstance(value, dict | list):
        yield id(value), keys
        inner = value.items() if isinstance(value, dict) else enumerate(value)
        for key, one in inner:
            yield from _origins(one, (*keys, key))


def _place_to_cut(data: dict[str, Any], error: FieldError) -> Keys | None:
    """Return what to leave out because of an error: () for a substitute, None where nothing helps."""
    keys = split_path(error.path)
    if keys == ("metadata", "name") or (
        keys == ("metadata",) and error.code == "required"
    ):
        data["metadata"] = {**(data.get("metadata") or {}), "name": _STAND_IN_NAME}
        return ()
    if (
        keys == ("metadata", "namespace")
        and data.get("kind") == NAMESPACED_PLACEMENT_KIND
    ):
        data["metadata"]["namespace"] = _STAND_IN_NAME
        return ()
    if error.code == "unknown-field":
        return keys
    if keys == SELECTORS:
        data["spec"]["resourceSelectors"] = [_STAND_IN_SELECTOR]
        return ()
    ends = [end for end, key in enumerate(keys, start=1) if isinstance(key, int)]
    if not ends:
        return None
    if keys[:2] == SELECTORS:
        return keys[:3]
    return keys[: ends[-1]]


def _remove(data: Any, keys: Keys) -> None:
    around = at(data, keys[:-1])
    del around[keys[-1]]
    if not around and len(keys) > 2 and keys[:-1] != SELECTORS:
        _remove(data, keys[:-1])


def text_for(draft: Draft, person: AnyUser) -> str:
    """Return the text of a draft: to others than its owner without values of Secrets, if it has any."""
    plain: str = plain_manifest(draft.text)
    if draft.owner_id == person.pk:
        return plain
    shown = _without_secrets(plain)
    if shown != plain and may_view_secrets(person):
        return str(plain_manifest(draft.text, shown_as=str(draft)))
    return shown


def _without_secrets(text: str) -> str:
    try:
        documents = [document.data for document in load_documents(text)]
    except InvalidManifest:  # whose values are anywhere
        return HIDDEN if any(word in text.casefold() for word in _OF_SECRETS) else text
    shown = list(map(without_nested_secrets, documents))
    return text if shown == documents else "---\n".join(map(dump_yaml, shown))


_OF_SECRETS = ("secret", "override", "envelope")
"""Words in the kinds of all manifests with values of Secrets."""
