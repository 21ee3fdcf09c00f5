"""Completion in the YAML of a manifest: from the schema, the fleet and the resources of the hub."""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from clusters.fleet import Fleet
from fleetui.apimachinery.errors import Keys
from fleetui.apimachinery.kinds import NAMESPACED_PLACEMENT_KIND, PLACEMENT_KIND
from fleetui.apimachinery.secrets import HubObject
from fleetui.apimachinery.words import counted
from placements.manifests.placement import (
    ClusterResourcePlacement,
    ResourcePlacement,
    is_reserved_namespace,
)
from placements.services.editor.form import NAMESPACE, POLICY, SELECTORS
from placements.services.editor.hints import (
    Suggestions,
    label_keys,
    label_values,
    property_names,
    taint_keys,
)

MOST_COMPLETIONS = 200

_LINE = re.compile(
    r"""(?P<indent>\ *)(?P<dashes>(?:-(?:\ +|$)){0,16})
        (?:(?P<key>"[^"]*"|[^\s#:"'\[{-][^\s:]*):(?:\s+|$))?(?P<rest>.*)""",
    re.VERBOSE,
)
_TYPES = {
    "integer": "number",
    "string": "text",
    "object": "mapping",
    "array": "list",
    "boolean": "true or false",
}


@dataclass(frozen=True, slots=True)
class Completion:
    """One proposal: the text to insert, what it is, and its documentation."""

    value: str
    meta: str = ""
    documentation: str = ""


@dataclass(frozen=True, slots=True)
class Cursor:
    """Where a text is completed: `keys` is the place of a value, or of the mapping around a key.

    `scalars` are all values of the text, by their places.
    """

    keys: Keys
    is_value: bool
    scalars: Mapping[Keys, str]

    def sibling(self, key: str) -> str:
        """Return the value beside this one, or beside the list that it is in."""
        # The value itself may be an item of a list.
        ends = range(len(self.keys) - self.is_value, 0, -1)
        around = next(
            (self.keys[:end] for end in ends if isinstance(self.keys[end - 1], int)), ()
        )
        return self.scalars.get((*around, key), "")


def cursor_at(text: str, row: int, column: int) -> Cursor:
    """Find the place of a cursor by indentation alone: a text that is being typed is seldom valid YAML."""
    lines = text.split("\n")
    row = min(row, len(lines) - 1)
    typed = _LINE.match(lines[row][:column])
    if typed is None:
        return Cursor((), False, {})
    # The line as if a key were typed: what follows the cursor does not count.
    lines[row] = f"{typed['indent']}{typed['dashes']}{typed['key'] or 'typed'}:"
    places = dict(_scan(lines))
    keys, _ = places.pop(row)
    scalars = dict(places.values())
    if typed["key"]:
        return Cursor(keys, True, scalars)
    is_scalar = _schema_at(keys[:-1], scalars).get("type") in ("string", "integer")
    return Cursor(keys[:-1], is_scalar, scalars)


def _scan(lines: Sequence[str]) -> Iterator[tuple[int, tuple[Keys, str]]]:
    """Yield for each line with a key or a list item its number, its place, and the value behind it."""
    stack: list[tuple[int, str | int]] = []
    last_items: dict[Keys, int] = {}
    for number, line in enumerate(lines):
        match = _LINE.match(line)
        if (
            match is None
            or line.lstrip().startswith("#")
            or not (match["key"] or match["dashes"])
        ):
            continue
        column = len(match["indent"])
        for dash in re.finditer(r"- *", match["dashes"]):
            # A list may start at the column of its key.
            while stack and stack[-1][0] + isinstance(stack[-1][1], int) > column:
                stack.pop()
            around = tuple(key for _, key in stack)
            last_items[around] = last_items.get(around, -1) + 1
            stack.append((column, last_items[around]))
            column += len(dash[0])
        if match["key"]:
            while stack and stack[-1][0] >= column:
                stack.pop()
            stack.append((column, match["key"].strip('"')))
        value = re.sub(r"\s+#.*", "", match["rest"]).strip().strip("\"'")
        yield number, (tuple(key for _, key in stack), value)


def completions(
    cursor: Cursor, *, fleet: Fleet, objects: Iterable[HubObject]
) -> list[Completion]:
    """Return what is valid at a cursor: what exists, counted in clusters, or what the schema names."""
    entries = [
        Completion(value, "" if count is None else counted(count, "cluster"))
        for value, count in _existing(cursor, fleet, objects)
    ]
    schema = _schema_at(cursor.keys, cursor.scalars)
    if cursor.is_value and not entries:
        kinds = (
            (PLACEMENT_KIND, NAMESPACED_PLACEMENT_KIND)
            if cursor.keys == ("kind",)
            else ()
        )
        allowed = (
            kinds
            or schema.get("enum")
            or ("true", "false") * (schema.get("type") == "boolean")
        )
        entries = [
            Completion(str(one), "default" * (one == schema.get("default")))
            for one in allowed
        ]
    elif not cursor.is_value:
        entries = [Completion(f"{one.value}: ", one.meta) for one in entries]
        for key, inner in schema.get("properties", {}).items():
            one = _resolve(inner, schema["$defs"])
            shape = str(one.get("type", ""))
            words = _TYPES.get(shape, "") + ", required" * (
                key in schema.get("required", ())
            )
            default = inner.get("default")
            default = (
                f"Default: {default}."
                if isinstance(default, str | int) and default != ""
                else ""
            )
            text = f"{key}:" if shape in ("object", "array") else f"{key}: "
            entries.append(
                Completion(
                    text, words, f"{one.get('description', '')} {default}".strip()
                )
            )
        entries = [
            one
            for one in entries
            if (*cursor.keys, one.value.rstrip(": ")) not in cursor.scalars
        ]
    return entries[:MOST_COMPLETIONS]


def _existing(
    cursor: Cursor, fleet: Fleet, objects: Iterable[HubObject]
) -> Suggestions:
    """Return the labels, properties, taints, clusters or resources that may be named at a cursor."""
    names = tuple(str(key) for key in cursor.keys if isinstance(key, str))
    last = names[-1] if names else ""
    if (
        names[:2] == SELECTORS
        and len(names) > 2
        and last in ("group", "version", "kind", "name")
    ):
        kind = "" if last == "kind" else cursor.sibling("kind")
        candidates = (
            one for one in objects if one.namespace == cursor.scalars.get(NAMESPACE, "")
        )
        return _distinct(candidates, last, kind)
    if names == NAMESPACE:
        return _distinct(objects, "name", "Namespace")
    if names[: len(POLICY)] != POLICY:
        return ()
    return _of_fleet(cursor, names[len(POLICY) :], fleet)


def _of_fleet(cursor: Cursor, names: Sequence[str], fleet: Fleet) -> Suggestions:
    """Return what the fleet has for a place of the policy."""
    if names[-1:] == ("matchLabels",) and not cursor.is_value:
        return label_keys(fleet)
    if not cursor.is_value:
        return ()
    match names:
        case ("clusterNames",):
            return tuple((name, None) for name in fleet.names)
        case ("topologySpreadConstraints", "topologyKey") | (
            *_,
            "labelSelector",
            "matchExpressions",
            "key",
        ):
            return label_keys(fleet)
        case (*_, "labelSelector", "matchExpressions", "values"):
            return label_values(fleet, cursor.sibling("key"))
        case (*_, "matchLabels", key):
            return label_values(fleet, key)
        case (*_, "propertySelector", "matchExpressions", "name") | (
            *_,
            "propertySorter",
            "name",
        ):
            return property_names(fleet)
        case ("tolerations", "key" | "value" as part):
            taints = [
                one
                for cluster in fleet
                for one in cluster.taints
                if one.key == cursor.sibling("key")
            ]
            values = Counter(one.value for one in taints)
            return taint_keys(fleet) if part == "key" else tuple(values.most_common())
    return ()


def _distinct(objects: Iterable[HubObject], part: str, kind: str) -> Suggestions:
    """Return one part of the identities of these objects, of a kind if one is given."""
    values = {
        str(getattr(one, part))
        for one in objects
        if kind in ("", one.kind)
        and not (
            part == "name"
            and one.kind == "Namespace"
            and is_reserved_namespace(one.name)
        )
    }
    return tuple((value, None) for value in sorted(values) if value)


@cache
def _schema_of(kind: str) -> dict[str, Any]:
    model = (
        ResourcePlacement
        if kind == NAMESPACED_PLACEMENT_KIND
        else ClusterResourcePlacement
    )
    return model.model_json_schema(mode="validation")


def _schema_at(keys: Keys, scalars: Mapping[Keys, str]) -> dict[str, Any]:
    """Return the schema of a place, {} for one that the schema does not have; of a list that of its items."""
    root = _schema_of(scalars.get(("kind",), ""))
    schema = root
    for key in keys:
        inner = (
            schema.get("items")
            if isinstance(key, int)
            else schema.get("properties", {}).get(key)
        )
        schema = _resolve(inner or {}, root["$defs"])
    if schema.get("type") == "array":
        schema = _resolve(schema["items"], root["$defs"])
    return {**schema, "$defs": root["$defs"]}


def _resolve(schema: Mapping[str, Any], parts: Mapping[str, Any]) -> dict[str, Any]:
    """Return a schema without references; of alternatives the first that is not null."""
    if "anyOf" in schema:
        schema = {
            **schema,
            **next(one for one in schema["anyOf"] if one.get("type") != "null"),
        }
    return (
        {**schema, **parts[schema["$ref"].rpartition("/")[2]]}
        if "$ref" in schema
        else dict(schema)
    )
