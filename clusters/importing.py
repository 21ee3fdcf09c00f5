"""Import of clusters: YAML, JSON and CSV files, inventories and kubeconfigs to MemberCluster documents.

A field that is not known is a note, never an error: `docs/reference/inventories.md`.
"""

import json
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from copy import deepcopy
from dataclasses import dataclass, field, replace
from functools import partial, reduce
from itertools import chain, count
from operator import getitem
from typing import Any

from clusters.fleet import NO_SCHEDULE, AddOnScores
from clusters.hub_objects import (
    DECISION_KIND,
    OTHER_KINDS,
    SCORE_KIND,
    SET_BINDING_KIND,
    SET_KIND,
    OcmObject,
    is_hub_object,
    parse_hub_object,
)
from clusters.inventories import inventory_of, read_inventory
from clusters.managed_cluster import managed_object
from clusters.manifest import MemberClusterManifest, parse_member
from clusters.tables import ImportEntry, looks_like_table, read_table, unknown_note
from fleetui.apimachinery.errors import (
    FieldError,
    InvalidManifest,
    Keys,
    ManifestWarning,
    format_path,
    split_path,
)
from fleetui.apimachinery.fields import cluster_name_problem
from fleetui.apimachinery.kinds import MEMBER_KIND, MEMBER_VERSIONS
from fleetui.apimachinery.model import mapping_at, quote_value
from fleetui.apimachinery.words import names_and_more
from fleetui.apimachinery.yaml import (
    LARGEST_UPLOAD,
    MOST_DOCUMENTS,
    Document,
    attach_lines,
    decoded,
    entries_of,
    items_in,
    kind_of,
    load_json,
    written_name,
)

PLAIN_FIELDS = ("name", "labels", "taints", "properties", "resourceUsage")
_OF_DOCUMENTS = frozenset({"apiVersion", "kind", "metadata", "spec"})
_PLACES: Mapping[Any, str] = {
    ("metadata", "name"): "name",
    ("metadata", "labels"): "labels",
    ("spec", "taints"): "taints",
    ("status", "properties"): "properties",
    ("status", "resourceUsage"): "resourceUsage",
}


def is_plain(data: Any) -> bool:
    return isinstance(data, dict) and _OF_DOCUMENTS.isdisjoint(data)


def member_document(plain: Mapping[str, Any]) -> dict[str, Any]:
    """Write the MemberCluster of a plain object; what is malformed stays so, for `parse_member` to find."""
    fields = {key: value for key, value in plain.items() if value not in (None, {}, [])}
    if isinstance(taints := fields.get("taints"), list):
        fields["taints"] = [
            {"effect": NO_SCHEDULE, **taint} if isinstance(taint, dict) else taint
            for taint in taints
        ]
    if isinstance(properties := fields.get("properties"), dict):
        fields["properties"] = {key: {"value": one} for key, one in properties.items()}
    identity = {
        "kind": "ServiceAccount",
        "name": f"fleet-member-{fields.get('name')}",
        "namespace": "fleet-system",
        "apiGroup": "",
    }
    document: dict[str, Any] = {
        "apiVersion": MEMBER_VERSIONS[0],
        "kind": MEMBER_KIND,
        "metadata": {"name": None},
        "spec": {"identity": identity},
    }
    for (section, key), field_name in _PLACES.items():
        if field_name in fields:
            document.setdefault(section, {})[key] = fields[field_name]
    return document


def plain_place(keys: Keys) -> Keys:
    field_name = _PLACES.get(keys[:2])
    if field_name is None:
        return keys
    if field_name == "properties":
        return (field_name, *keys[2:3])
    return (field_name, *keys[2:])


_BOUND = "Placements under OCM's rules select only from sets that are bound in their namespace"
_OBJECT_NOTES = {
    DECISION_KIND: (
        "not-used",
        "status.decisions",
        "Not used: a placement has its own decisions here",
    ),
    SET_KIND: ("sets-count", "spec.clusterSelector", _BOUND),
    SET_BINDING_KIND: ("sets-count", "spec.clusterSet", _BOUND),
}


MOST_CONTEXTS = 50
"""Of a kubeconfig at a time: each one is connected and checked."""
_LONGEST_NAME = 63
_NO_NAME = re.compile(r"[^a-z0-9.-]+")


@dataclass(frozen=True, slots=True)
class ImportChoices:
    """What a person chose of a file.

    `contexts` are those of a kubeconfig, by default all. `names` are new names by the key of a cluster, which
    is its name in the file; of several with one name, `KIND/NAME` for those after the first. Clusters with a
    key in `left_out` are not imported. `is_preview`: keys that the file does not have are no error.
    """

    contexts: tuple[str, ...] = ()
    names: Mapping[str, str] = field(default_factory=dict)
    left_out: frozenset[str] = frozenset()
    is_preview: bool = False

    @classmethod
    def of(cls, contexts: Iterable[str], renames: Iterable[str]) -> "ImportChoices":
        """Return the choices for contexts and texts `OLD=NEW`; without NEW a cluster is left out.

        Raise InvalidManifest.
        """
        names: dict[str, str] = {}
        for text in renames:
            # A context may have an equals sign in its name.
            key, sign, name = text.rpartition("=")
            if not sign or not key:
                message = f"Invalid value: {quote_value(text)}"
                raise InvalidManifest.of("rename", "bad-format", message, "OLD=NEW")
            names[key] = name
        left_out = frozenset(key for key, name in names.items() if not name)
        named = {key: name for key, name in names.items() if name}
        return cls(tuple(contexts), named, left_out)


NO_CHOICES = ImportChoices()


@dataclass(frozen=True, slots=True)
class MemberRead:
    """One cluster of a file: its document, and the parsed value.

    For anything but a MemberCluster the document is generated, with an identity for the agent. `source` is
    the kind that it was read from, `path` the place of its name. `kubeconfig` holds secrets; the cluster is
    that of its `context`. `managed` is its object on a hub of Open Cluster Management, {} if it has none.
    """

    document: dict[str, Any]
    member: MemberClusterManifest
    key: str = ""
    source: str = MEMBER_KIND
    notes: tuple[ManifestWarning, ...] = ()
    context: str = ""
    path: str = ""
    kubeconfig: Document | None = field(default=None, repr=False)
    managed: Mapping[str, Any] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return self.member.metadata.name


@dataclass(frozen=True, slots=True)
class ImportNote:
    """What was not used of a file, or not as it was written, and the clusters that this is about."""

    warning: ManifestWarning
    names: tuple[str, ...] = ()

    @property
    def message(self) -> str:
        about = f" ({names_and_more(self.names, 5)})" if self.names else ""
        return f"{self.warning.message}{about}"

    def __str__(self) -> str:
        return f"{self.warning.path}: {self.message}"


@dataclass(frozen=True, slots=True)
class NameChoice:
    """A cluster of a file by its key, and its name here; one of another system may get another name."""

    key: str
    name: str
    source: str
    is_foreign: bool
    is_left_out: bool = False


@dataclass(frozen=True, slots=True)
class ImportRead:
    """The clusters of a file, the notes, each once, and what may be chosen.

    `sets` are those of Open Cluster Management and their bindings; `scores` are by the name of the cluster,
    one of the file or not, and the name of the add-on.
    """

    members: list[MemberRead]
    notes: list[ImportNote]
    choices: list[NameChoice]
    sets: list[OcmObject] = field(default_factory=list)
    scores: Mapping[str, Mapping[str, AddOnScores]] = field(default_factory=dict)


class InvalidImport(InvalidManifest):
    """The errors of a file, and what may be chosen: another name may be the correction."""

    def __init__(
        self, errors: Iterable[FieldError], choices: Sequence[NameChoice]
    ) -> None:
        super().__init__(errors)
        self.choices = choices


def read_members(
    source: bytes, *, name: str, choices: ImportChoices = NO_CHOICES
) -> ImportRead:
    """Read the clusters of a file: objects of any known kind, plain objects, a table, or a kubeconfig.

    The format is detected from the content, otherwise from the file name. Raises InvalidManifest with
    all errors and their lines.
    """
    entries = _entries(decoded(source, LARGEST_UPLOAD), name.lower())
    every = [member for entry in entries for member in entry_members(entry)]
    names = [entry.context for entry in every if entry.context]
    if missing := [context for context in choices.contexts if context not in names]:
        message = f"Not found: context {quote_value(missing[0])}"
        raise InvalidManifest.of("context", "bad-reference", message, ", ".join(names))
    # Of kubeconfigs the chosen contexts.
    chosen = [
        entry
        for entry in every
        if not entry.context
        or not choices.contexts
        or entry.context in choices.contexts
    ]
    if not chosen:
        raise InvalidManifest.of(
            "",
            "required",
            "holds no member cluster",
            (
                "MemberCluster objects, clusters of another system, plain {name, labels, …}, "
                "a table with a column `name`, or a kubeconfig"
            ),
        )
    return _Reading(chosen, choices).result()


def entry_members(entry: ImportEntry) -> list[ImportEntry]:
    """Return the clusters that one document stands for: each context of a kubeconfig, or itself."""
    data = entry.data
    if not is_kubeconfig(data):
        return [entry]
    unused = [key for key in data if key not in _KUBECONFIG_KEYS]
    what = "field of a kubeconfig"
    notes = tuple(unknown_note(format_path((key,)), what) for key in unused)
    names = [written_name(context) or "" for context in data["contexts"]]
    paths = [format_path(("contexts", at, "name")) for at in range(len(names))]
    return [
        replace(
            entry,
            data={"name": name},
            context=name,
            notes=notes,
            place_of=partial("{0}".format, path),
        )
        for name, path in zip(names, paths, strict=True)
    ]


_KUBECONFIG_KEYS = {
    "apiVersion",
    "kind",
    "clusters",
    "users",
    "contexts",
    "current-context",
    "preferences",
    "extensions",
}


def is_kubeconfig(data: Any) -> bool:
    return (
        isinstance(data, Mapping)
        and data.get("kind", "Config") == "Config"
        and isinstance(data.get("contexts"), list)
    )


def proposed_name(text: str) -> str:
    """Return a valid name: what follows the last `/` or `@`, in lower case, with `-` for other characters."""
    last = re.split("[/@]", text.rstrip("/@"))[-1]
    return _as_name(last) or _as_name(text) or "cluster"


def _as_name(text: str) -> str:
    parts = _NO_NAME.sub("-", text.lower()).split(".")
    joined = ".".join(filter(None, (part.strip("-") for part in parts)))
    return joined[:_LONGEST_NAME].strip("-.")


def _entries(text: str, name: str) -> list[ImportEntry]:
    """Split a text into clusters. Raise InvalidManifest where that cannot be done."""
    if _has_objects_by_line(text, name):
        return list(_json_lines(text))
    is_object = text.lstrip()[:1] in ("{", "[")
    if not is_object and (
        looks_like_table(text) or (name.endswith(".csv") and not _looks_like_yaml(text))
    ):
        return read_table(text)
    items = (
        entry
        for item in items_in(text)
        for entry in (entries_of(item) if isinstance(item.data, list) else [item])
    )
    return [ImportEntry(item.data, item=item) for item in items]


def _looks_like_yaml(text: str) -> bool:
    lines = (line.strip() for line in text.splitlines())
    first = next((line for line in lines if line and not line.startswith("#")), "")
    return first.startswith(
        ("---", "- ", "apiVersion:", "kind:", "items:", "metadata:")
    )


def _has_objects_by_line(text: str, name: str) -> bool:
    """Return whether a text has JSON lines: the first line is a complete object, and another one follows."""
    first, _, rest = text.strip().partition("\n")
    if first.startswith("{") and name.endswith((".jsonl", ".ndjson")):
        return True
    with suppress(ValueError, RecursionError):
        return rest.lstrip().startswith("{") and isinstance(json.loads(first), dict)
    return False


def _json_lines(text: str) -> Iterator[ImportEntry]:
    lines = [
        (number, line)
        for number, line in enumerate(text.split("\n"), start=1)
        if line.strip()
    ]
    if len(lines) > MOST_DOCUMENTS:
        raise InvalidManifest.of(
            "", "too-many", f"has more than {MOST_DOCUMENTS} lines"
        )
    for number, line in lines:
        try:
            yield ImportEntry(load_json(line), number)
        except InvalidManifest as invalid:
            errors = (replace(error, line=number) for error in invalid.errors)
            yield ImportEntry(None, number, errors=tuple(errors))


def parse_entry(entry: ImportEntry, name: str = "") -> MemberRead:
    """Parse one cluster of a file, under another name if one is given. Raise InvalidManifest.

    An invalid name of another system is replaced by a proposal. Errors have the places of the source.
    """
    data = entry.data
    place_of = entry.place_of
    notes = [*entry.notes]
    source = "plain"
    kubeconfig = None
    if entry.context:
        source = "context"
        kubeconfig = entry.item
    inventory = inventory_of(data)
    written = written_name(data) or ""
    if written and (entry.context or inventory) and cluster_name_problem(written):
        name = name or proposed_name(written)
    if inventory:
        draft = read_inventory(inventory, data)
        data = draft.plain
        place_of = draft.place_of
        notes += draft.notes
        source = inventory.kind
    if name and name != written:
        message = f"Imported as {name}, not as {quote_value(written)}"
        notes.append(ManifestWarning("renamed", place_of(("name",)), message))
    if not is_plain(data):
        member, document, unknown_notes = _parse_leniently(data, name)
        return MemberRead(document, member, notes=(*notes, *unknown_notes))
    unknown = [key for key in data if key not in PLAIN_FIELDS]
    notes += (
        unknown_note(format_path((key,)), "field of a cluster") for key in unknown
    )
    document = member_document({**data, "name": name or data.get("name")})
    try:
        member = parse_member(document)
    except InvalidManifest as invalid:
        pairs = (
            (error, plain_place(split_path(error.path))) for error in invalid.errors
        )
        raise InvalidManifest(
            replace(error, path=place_of(keys) if keys else "") for error, keys in pairs
        ) from invalid
    return MemberRead(
        document,
        member,
        source=source,
        notes=tuple(notes),
        context=entry.context,
        path=entry.place_of(("name",)),
        kubeconfig=kubeconfig,
        managed=_object_to_keep(entry.data) if is_hub_object(entry.data) else {},
    )


def _object_to_keep(document: Mapping[str, Any]) -> dict[str, Any]:
    """Return a ManagedCluster without the record of who wrote its fields. Raise InvalidManifest."""
    metadata = dict(document["metadata"])
    metadata.pop("managedFields", None)
    try:
        managed_object(document, {})
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        message = "Invalid value: must have a key, and a time as timeAdded"
        raise InvalidManifest.of("spec.taints", "bad-format", message) from error
    return {**document, "metadata": metadata}


def _parse_leniently(
    document: Any, name: str
) -> tuple[MemberClusterManifest, Any, list[ManifestWarning]]:
    """Parse a MemberCluster; return it, the document without unknown fields, and a note for each of these."""
    metadata = mapping_at(document).get("metadata")
    if name and isinstance(metadata, dict):
        document = {**document, "metadata": {**metadata, "name": name}}
    try:
        return parse_member(document), document, []
    except InvalidManifest as invalid:
        paths = [
            error.path for error in invalid.errors if error.code == "unknown-field"
        ]
        if not paths:
            raise
    document = deepcopy(document)
    for path in paths:
        *outer, last = split_path(path)
        del reduce(getitem, outer, document)[last]
    notes = [unknown_note(path, f"field of a {MEMBER_KIND}") for path in paths]
    return parse_member(document), document, notes


class _Reading:
    """Parses the entries and collects the errors of all."""

    def __init__(self, entries: list[ImportEntry], choices: ImportChoices) -> None:
        self.entries = entries
        self.choices = choices
        self.members: list[MemberRead] = []
        self.errors: list[tuple[Document | None, FieldError]] = []
        self.kinds: dict[str, str] = {}  # by the name of a cluster
        self.offered: dict[str, NameChoice] = {}
        self.notes: dict[ManifestWarning, list[str]] = {}
        self.sets: list[OcmObject] = []
        self.scores: dict[str, dict[str, AddOnScores]] = defaultdict(dict)
        for entry in entries:
            self._refuse(entry, *entry.errors)
            if entry.data is not None or not (entry.errors or entry.notes):
                self._take(entry)
            else:
                self.notes |= {note: [] for note in entry.notes}
        if sum(bool(member.context) for member in self.members) > MOST_CONTEXTS:
            allowed = f"at most {MOST_CONTEXTS} at a time"
            error = FieldError("context", "too-many", "Too many contexts", allowed)
            self._refuse(ImportEntry(None), error)
        chosen = {*choices.names, *choices.left_out}
        if not choices.is_preview:
            for key in sorted(chosen - self.offered.keys()):
                message = f"Not found: cluster {quote_value(key)}"
                error = FieldError("rename", "bad-reference", message)
                self._refuse(ImportEntry(None), error)

    def result(self) -> ImportRead:
        """Return all clusters and the notes. Raise InvalidManifest with the lines of the errors."""
        choices = list(self.offered.values())
        if self.errors:
            in_documents = [(item, error) for item, error in self.errors if item]
            placed = iter(attach_lines(in_documents))
            errors = [next(placed) if item else error for item, error in self.errors]
            raise InvalidImport(errors, choices)
        notes = [ImportNote(note, tuple(names)) for note, names in self.notes.items()]
        taken = {
            choice.key: choice.name for choice in choices if not choice.is_left_out
        }
        scores = {
            taken.get(key, key): of_cluster
            for key, of_cluster in self.scores.items()
            if key in taken or key not in self.offered
        }
        return ImportRead(self.members, notes, choices, self.sets, scores)

    def _take_object(self, entry: ImportEntry) -> None:
        try:
            one = parse_hub_object(entry.data)
        except InvalidManifest as invalid:
            self._refuse(entry, *invalid.errors)
            return
        if one.kind == SCORE_KIND:
            self.scores[one.namespace][one.name] = one.content
            return
        if one.kind != DECISION_KIND:
            self.sets.append(one)
        note = ManifestWarning(*_OBJECT_NOTES[one.kind])
        self.notes.setdefault(note, []).append(one.full_name)

    def _take(self, entry: ImportEntry) -> None:
        if is_hub_object(entry.data, OTHER_KINDS):
            self._take_object(entry)
            return
        written = written_name(entry.data) or ""
        kind = kind_of(entry.data) or ("context" if entry.context else "cluster")
        numbered = (f"{kind}/{written}#{number}" for number in count(2))
        keys = chain([written, f"{kind}/{written}"], numbered)
        key = next(one for one in keys if one not in self.offered)
        is_foreign = bool(entry.context) or inventory_of(entry.data) is not None
        is_left_out = key in self.choices.left_out
        name = self.choices.names.get(key, "")
        if not is_left_out:
            if entry.context and not name:
                name = self._free_name(written)
            name = self._parse(entry, key, name) or written
            self._claim(entry, name, kind)
        self.offered[key] = NameChoice(
            key, name or written, kind, is_foreign, is_left_out
        )

    def _parse(self, entry: ImportEntry, key: str, name: str) -> str:
        """Parse a cluster; return its name, the given one if it has errors."""
        try:
            member = parse_entry(entry, name)
        except InvalidManifest as invalid:
            self._refuse(entry, *invalid.errors)
            return name
        self.members.append(replace(member, key=key))
        for note in member.notes:
            self.notes.setdefault(note, []).append(member.name)
        return member.name

    def _claim(self, entry: ImportEntry, name: str, kind: str) -> None:
        """Keep a name for one cluster, or add the error of the next one with it."""
        if name not in self.kinds:
            if name:
                self.kinds[name] = kind
            return
        path = "name" if is_plain(entry.data) else "metadata.name"
        whose = "another cluster"
        if self.kinds[name] != kind:
            whose = f"a {self.kinds[name]}"
        message = f"{name} is the name of {whose} above"
        self._refuse(entry, FieldError(path, "duplicate", message, "each name once"))

    def _free_name(self, context: str) -> str:
        """Return a name that no cluster above has: two contexts may end in the same words."""
        short = context if not cluster_name_problem(context) else proposed_name(context)
        numbered = (f"{short[: _LONGEST_NAME - 4]}-{number}" for number in count(2))
        names = chain([short, _as_name(context)], numbered)
        return next(name for name in names if name and name not in self.kinds)

    def _refuse(self, entry: ImportEntry, *errors: FieldError) -> None:
        called = (written_name(entry.data) or "")[:63]
        prefix = f"{called}: " if called and len(self.entries) > 1 else ""
        for error in errors:
            placed = replace(
                error, message=prefix + error.message, line=error.line or entry.line
            )
            self.errors.append((entry.item, placed))
