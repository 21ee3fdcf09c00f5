"""What helps while typing: what is valid at a cursor, and hints at the fields of the form."""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, lru_cache
from typing import Any

import numpy as np

from clusters.fleet import Fleet
from fleetui.apimachinery.errors import (
    FieldError,
    InvalidManifest,
    Keys,
    ManifestWarning,
    split_path,
)
from fleetui.apimachinery.kinds import NAMESPACED_PLACEMENT_KIND, PLACEMENT_KIND
from fleetui.apimachinery.model import DEFAULT_SEMANTICS, Semantics, parse_manifest
from fleetui.apimachinery.secrets import HubObject
from fleetui.apimachinery.words import counted
from placements.engine.scheduling.cycle import Cycle
from placements.engine.scheduling.selectors import (
    match_labels,
    meets_property,
    property_requirements,
)
from placements.manifests.affinity import ClusterSelectorTerm
from placements.manifests.placement import (
    ClusterResourcePlacement,
    ResourcePlacement,
    is_reserved_namespace,
)
from placements.manifests.policy import PlacementType, TopologySpreadConstraint
from placements.services.editor.form import (
    NAMESPACE,
    POLICY,
    PREFERRED,
    SELECTORS,
    STRATEGY,
    FormRow,
    PlacementForm,
    Suggest,
    at,
    slug,
)
from placements.services.editor.validation import PlacementDraft

MOST_SUGGESTIONS = 50
_NAMES_SHOWN = 5
Suggestions = tuple[tuple[str, int | None], ...]
"""Values with the number of clusters that have each; None where the value is not of clusters."""


@dataclass
class FieldNotes:
    """What is shown beside a field, a row or a list.

    `is_pending`: something is wrong here that is not shown yet; `absent_namespace` is named here and not on
    the hub; `was`: what an edit changed here, against what is saved.
    """

    name: str
    errors: list[FieldError] = field(default_factory=list)
    warnings: list[ManifestWarning] = field(default_factory=list)
    hint: str = ""
    left_out: bool = False
    is_pending: bool = False
    absent_namespace: str = ""
    was: str = ""

    @property
    def id(self) -> str:
        return f"notes-{slug(self.name)}"


@dataclass(frozen=True)
class FormNotes:
    """The notes of everything that a form shows, by name, and the errors and warnings that have no place.

    `pending` is left out of the preview, like `left_out`, for errors that are not shown yet.
    """

    by_name: Mapping[str, FieldNotes]
    errors: Sequence[FieldError]
    warnings: Sequence[ManifestWarning]
    left_out: Sequence[str]
    pending: Sequence[str] = ()


def notes_of(
    draft: PlacementDraft,
    errors: Sequence[FieldError],
    warnings: Sequence[ManifestWarning],
    *,
    pending: Sequence[FieldError],
    fleet: Fleet,
    resource_hints: Mapping[str, str],
    absent_namespaces: Mapping[str, str],
    edits: Mapping[str, str],
    cycle: Cycle | None,
    bound: int | None,
) -> FormNotes:
    """Assign errors and warnings to the nearest field, row or list, and add the hints.

    `pending` are the errors that are not to be shown yet.
    """
    left_out, quiet = _left_out(draft, pending)
    if draft.form is None:
        return FormNotes({}, errors, warnings, left_out, quiet)

    visible = draft.form.visible()
    notes = {
        name: FieldNotes(
            name,
            absent_namespace=absent_namespaces.get(name, ""),
            was=edits.get(name, ""),
        )
        for name in visible
    }
    names = {keys: name for name, keys in visible.items()}

    def nearest(path: str) -> FieldNotes | None:
        keys = split_path(path)
        ends = range(len(keys), 1, -1)
        return next(
            (notes[names[keys[:end]]] for end in ends if keys[:end] in names), None
        )

    errors_without_place: list[FieldError] = []
    for error in errors:
        note = nearest(error.path)
        (note.errors if note else errors_without_place).append(error)

    for note in filter(None, (nearest(error.path) for error in pending)):
        note.is_pending = True

    warnings_without_place: list[ManifestWarning] = []
    for warning in warnings:
        # Where something is left out, the places in warnings are not those in the form.
        note = None if draft.left_out else nearest(warning.path)
        (note.warnings if note else warnings_without_place).append(warning)

    for name, hint in (
        *resource_hints.items(),
        *_hints(draft.form, draft, fleet, cycle, bound),
    ):
        if name in notes:
            notes[name].hint = hint
    for path in notes.keys() & left_out:
        notes[path].left_out = True
    return FormNotes(
        notes, errors_without_place, warnings_without_place, left_out, quiet
    )


def edits_of(form: PlacementForm, base: Mapping[str, Any]) -> dict[str, str]:
    """Return what differs from the saved manifest, by the name of the field, row or list."""
    saved = PlacementForm.of(base)
    before = {form_field.name: form_field.value for form_field in saved.outer_fields}
    edits = {
        form_field.name: f"was {before.get(form_field.name) or form_field.placeholder or 'not set'}"
        for form_field in form.outer_fields
        if form_field.value != before.get(form_field.name, "")
    }
    for group, old in zip(form.groups, saved.groups, strict=True):
        items = [at(base, row.keys) for row in old.rows]
        more = len(group.rows) - len(items)
        word = "added" if more > 0 else "changed"
        new = [row for row in group.rows if at(form.data, row.keys) not in items]
        edits |= dict.fromkeys((row.name for row in new), word)
        edits |= {group.name: f"{-more} removed"} if more < 0 else {}
    return edits


def _left_out(
    draft: PlacementDraft, pending: Sequence[FieldError]
) -> tuple[list[str], list[str]]:
    """Return what the preview leaves out for shown errors, and for pending ones."""
    shown: list[str] = []
    quiet: list[str] = []
    for path in sorted(draft.left_out, key=len):
        if any(path.startswith(other) for other in (*shown, *quiet)):
            continue
        is_quiet = any(error.path.startswith(path) for error in pending)
        (quiet if is_quiet else shown).append(path)
    return shown, quiet


def _hints(
    form: PlacementForm,
    draft: PlacementDraft,
    fleet: Fleet,
    cycle: Cycle | None,
    bound: int | None,
) -> Iterator[tuple[str, str]]:
    semantics = cycle.semantics if cycle else DEFAULT_SEMANTICS
    yield from (
        (row.name, _matching_clusters(row, draft.data, fleet, semantics))
        for row in (*form.required.rows, *form.preferred.rows)
    )
    yield from (
        (row.name, _domains(row, draft.data, fleet, semantics))
        for row in form.spread.rows
    )
    wanted = wanted_clusters(draft.valid_part) if draft.valid_part else None
    if bound is not None and (wanted or 0) <= bound:  # above it there is a warning
        yield (
            "spec.policy.numberOfClusters",
            f"Maximum with the current fleet: {bound:,}",
        )
    manifest = draft.valid_part
    if manifest is None:
        return

    rolling, number = manifest.spec.strategy.rolling_update, wanted_clusters(manifest)
    if rolling is not None and number is not None:
        amounts = {
            "maxUnavailable": rolling.max_unavailable,
            "maxSurge": rolling.max_surge,
        }
        for form_field in form.strategy:
            amount = amounts.get(str(form_field.keys[-1]))
            if (
                form_field.keys[:-1] == (*STRATEGY, "rollingUpdate")
                and amount is not None
                and amount.is_percent
            ):
                default = "" if form_field.value else "Default: "
                yield (
                    form_field.name,
                    f"{default}{amount} ({amount.of(number)} of {counted(number, 'cluster')})",
                )

    if names := manifest.spec.policy.cluster_names:
        missing = [name for name in names if name not in fleet.positions]
        hint = f"{len(names) - len(missing)} of {counted(len(names), 'cluster')} in the fleet"
        if missing:
            hint += f"; not found: {', '.join(missing[:_NAMES_SHOWN])}"
        yield "spec.policy.clusterNames", hint


def _matching_clusters(
    row: FormRow,
    data: object,
    fleet: Fleet,
    semantics: Semantics,
) -> str:
    raw = at(data, row.keys)
    if row.keys[:-1] == PREFERRED:
        raw = raw.get("preference")
    try:
        term = parse_manifest(ClusterSelectorTerm, raw, semantics=semantics, path="")
    except InvalidManifest:
        return ""
    if (
        term.matches_everything
        or term.claim_selector is not None
        or term.cel_expressions
    ):
        return ""
    matches = match_labels(term.label_selector, fleet)
    for requirement in property_requirements(term):
        matches &= meets_property(requirement, fleet)
    return (
        f"{int(np.count_nonzero(matches)):,} of {counted(len(fleet), 'cluster')} match"
    )


def _domains(
    row: FormRow,
    data: object,
    fleet: Fleet,
    semantics: Semantics,
) -> str:
    try:
        constraint = parse_manifest(
            TopologySpreadConstraint, at(data, row.keys), semantics=semantics, path=""
        )
    except InvalidManifest:
        return ""
    column = fleet.topology(constraint.topology_key, constraint.topology_key_type)
    having = int(np.count_nonzero(column.is_present))
    return f"{counted(len(column.values), 'domain')}; {having:,} of {counted(len(fleet), 'cluster')} have it"


def wanted_clusters(manifest: ClusterResourcePlacement) -> int | None:
    """Return how many clusters a manifest wants, None for all that there are."""
    policy = manifest.spec.policy
    if policy.placement_type is PlacementType.PICK_N:
        return policy.number_of_clusters
    return (
        len(policy.cluster_names)
        if policy.placement_type is PlacementType.PICK_FIXED
        else None
    )


def suggestions(
    form: PlacementForm, fleet: Fleet, names: Mapping[Keys, Sequence[str]]
) -> dict[str, Suggestions]:
    """Return what every list of suggestions holds, by its id: keys, properties, values of the labels in use.

    `names` are those of objects on the hub, by the place of the selector that may name one.
    """
    lists: dict[str, Suggestions] = {}
    for form_field in form.fields:
        if form_field.suggest is Suggest.OBJECTS:
            lists[form_field.list_id] = tuple(
                (name, None) for name in names.get(form_field.keys[:-1], ())
            )
        elif form_field.list_id and form_field.list_id not in lists:
            if form_field.suggest in _OF_FLEET:
                lists[form_field.list_id] = _OF_FLEET[form_field.suggest](fleet)
            else:
                lists[form_field.list_id] = (
                    label_values(fleet, form_field.label_key)
                    if form_field.label_key
                    else ()
                )
    return lists


@lru_cache(maxsize=2)
def label_keys(fleet: Fleet) -> Suggestions:
    return _most_frequent(Counter(key for cluster in fleet for key in cluster.labels))


@lru_cache(maxsize=2)
def property_names(fleet: Fleet) -> Suggestions:
    return _most_frequent(
        Counter(name for cluster in fleet for name in cluster.properties)
    )


@lru_cache(maxsize=2)
def taint_keys(fleet: Fleet) -> Suggestions:
    return _most_frequent(
        Counter(
            key for cluster in fleet for key in {taint.key for taint in cluster.taints}
        )
    )


def label_values(fleet: Fleet, key: str) -> Suggestions:
    column = fleet.label(key)
    counts = np.bincount(column.codes[column.is_present], minlength=len(column.values))
    return _most_frequent(
        Counter(dict(zip(column.values, counts.tolist(), strict=True)))
    )


def _most_frequent(counts: Counter[str]) -> Suggestions:
    return tuple(
        sorted(counts.items(), key=lambda one: (-one[1], one[0]))[:MOST_SUGGESTIONS]
    )


_OF_FLEET = {
    Suggest.LABEL_KEYS: label_keys,
    Suggest.PROPERTIES: property_names,
    Suggest.TAINTS: taint_keys,
}


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

    def existing(self, fleet: Fleet, objects: Iterable[HubObject]) -> Suggestions:
        """Return the labels, properties, taints, clusters or resources that may be named at a cursor."""
        names = tuple(str(key) for key in self.keys if isinstance(key, str))
        last = names[-1] if names else ""
        if (
            names[:2] == SELECTORS
            and len(names) > 2
            and last in ("group", "version", "kind", "name")
        ):
            kind = "" if last == "kind" else self.sibling("kind")
            candidates = (
                hub_object
                for hub_object in objects
                if hub_object.namespace == self.scalars.get(NAMESPACE, "")
            )
            return _distinct(candidates, last, kind)
        if names == NAMESPACE:
            return _distinct(objects, "name", "Namespace")
        if names[: len(POLICY)] != POLICY:
            return ()
        return self.of_fleet(names[len(POLICY) :], fleet)

    def of_fleet(self, names: Sequence[str], fleet: Fleet) -> Suggestions:
        if names[-1:] == ("matchLabels",) and not self.is_value:
            return label_keys(fleet)
        if not self.is_value:
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
                return label_values(fleet, self.sibling("key"))
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
                    taint
                    for cluster in fleet
                    for taint in cluster.taints
                    if taint.key == self.sibling("key")
                ]
                values = Counter(taint.value for taint in taints)
                return (
                    taint_keys(fleet) if part == "key" else tuple(values.most_common())
                )
        return ()


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
        for value, count in cursor.existing(fleet, objects)
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
        entries = [Completion(f"{entry.value}: ", entry.meta) for entry in entries]
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
            entry
            for entry in entries
            if (*cursor.keys, entry.value.rstrip(": ")) not in cursor.scalars
        ]
    return entries[:MOST_COMPLETIONS]


def _distinct(objects: Iterable[HubObject], part: str, kind: str) -> Suggestions:
    """Return one part of the identities of these objects, of a kind if one is given."""
    values = {
        str(getattr(hub_object, part))
        for hub_object in objects
        if kind in ("", hub_object.kind)
        and not (
            part == "name"
            and hub_object.kind == "Namespace"
            and is_reserved_namespace(hub_object.name)
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
            **next(
                schema_ for schema_ in schema["anyOf"] if schema_.get("type") != "null"
            ),
        }
    return (
        {**schema, **parts[schema["$ref"].rpartition("/")[2]]}
        if "$ref" in schema
        else dict(schema)
    )
