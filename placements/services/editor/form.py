"""The editor's form over a manifest: fields, rows of lists, and the parts that no field shows.

Not a Django form: its fields are places in the text of a manifest. A value that a field cannot show exactly
is left to the YAML.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cached_property, partial
from math import inf
from operator import attrgetter
from types import NoneType
from typing import Any, TypeAlias

from fleetui.apimachinery.errors import Keys, format_path
from fleetui.apimachinery.kinds import NAMESPACED_PLACEMENT_KIND
from fleetui.apimachinery.model import DEFAULT_SEMANTICS, Semantics
from fleetui.apimachinery.words import plain_word
from fleetui.apimachinery.yaml_edit import Change, RemoveValue, RenameKey, SetValue
from placements.manifests.affinity import LabelOperator, PropertyOperator, SortOrder
from placements.manifests.placement import SEMANTICS_ANNOTATION, SelectionScope
from placements.manifests.policy import PlacementType, TolerationOperator
from placements.manifests.strategy import (
    ApplyType,
    ComparisonOption,
    StrategyType,
    WhenToApply,
    WhenToTakeOver,
)

MOST_FIELDS = 600
"""A form with more fields than this is no help; such a manifest is edited as YAML."""
POLICY: Keys = ("spec", "policy")
AFFINITY: Keys = (*POLICY, "affinity", "clusterAffinity")
SELECTORS: Keys = ("spec", "resourceSelectors")
REQUIRED: Keys = (
    *AFFINITY,
    "requiredDuringSchedulingIgnoredDuringExecution",
    "clusterSelectorTerms",
)
PREFERRED: Keys = (*AFFINITY, "preferredDuringSchedulingIgnoredDuringExecution")
SPREAD: Keys = (*POLICY, "topologySpreadConstraints")
TOLERATIONS: Keys = (*POLICY, "tolerations")
CLUSTER_NAMES: Keys = (*POLICY, "clusterNames")
STRATEGY: Keys = ("spec", "strategy")
SEMANTICS: Keys = ("metadata", "annotations", SEMANTICS_ANNOTATION)
NAMESPACE: Keys = ("metadata", "namespace")
ABSENT: Any = object()

_WHOLE_NUMBER = re.compile(r"-?[0-9]{1,18}")
_LINE_BREAKS = r"\n\r\x85\u2028\u2029"
_NOT_IN_ONE_LINE = re.compile(f"[{_LINE_BREAKS}]")
_NOT_AMONG_WORDS = re.compile(rf"[,{_LINE_BREAKS}]|^\s|\s$|^$")
_ALWAYS_SHOWN = frozenset({"apiVersion", "kind"})
_LISTS = ("required", "preferred", "spread", "tolerations")
_TYPE_FIELDS = {
    "number": "spec.policy.numberOfClusters",
    "names": "spec.policy.clusterNames",
}
_SECTIONS_OF_TYPE = {
    PlacementType.PICK_ALL: {"required", "tolerations"},
    PlacementType.PICK_N: {"required", "preferred", "spread", "tolerations", "number"},
    PlacementType.PICK_FIXED: {"names"},
}


class FieldType(StrEnum):
    TEXT = "text"
    WHOLE = "whole"
    AMOUNT = "amount"
    CHOICE = "choice"
    WORDS = "words"
    LINES = "lines"
    ONE = "one"
    KEY = "key"


class Suggest(StrEnum):
    LABEL_KEYS = "label-keys"
    LABEL_VALUES = "label-values"
    PROPERTIES = "properties"
    OBJECTS = "objects"
    TAINTS = "taints"


_SEGMENTED = ("spec.policy.placementType", "spec.strategy.type")
"""Fields that show all their choices beside each other."""
_MANY = (FieldType.WORDS, FieldType.LINES)
_JOINED = {
    FieldType.ONE: ("", _NOT_IN_ONE_LINE, 1),
    FieldType.WORDS: (", ", _NOT_AMONG_WORDS, inf),
    FieldType.LINES: ("\n", _NOT_AMONG_WORDS, inf),
}
"""The separator of the items of a list in a field, what no item may contain, and how many there may be."""


@dataclass(frozen=True, slots=True)
class FormField:
    """One field: `keys` is its place in the manifest, `value` what it shows, `name` its name there.

    A field that is cleared leaves the manifest, unless it is `kept_empty`. Values of `label_key` are
    suggested. In the tables below, `keys` are relative and `value` is what an absent value means.
    """

    keys: Keys
    label: str
    type: FieldType = FieldType.TEXT
    value: str = ""
    choices: tuple[tuple[str, str], ...] = ()
    placeholder: str = ""
    kept_empty: bool = False
    suggest: Suggest | None = None
    label_key: str = ""
    name: str = ""

    @property
    def id(self) -> str:
        return slug(self.name)

    @property
    def is_segmented(self) -> bool:
        return self.name in _SEGMENTED

    @property
    def shown_choices(self) -> tuple[tuple[str, str], ...]:
        """The choices, and the value if it is none of them."""
        if self.value in dict(self.choices):
            return self.choices
        return (*self.choices, (self.value, self.value))

    @property
    def list_id(self) -> str:
        """The id of the list of suggestions; several fields share that of keys and of properties."""
        if self.suggest in (Suggest.LABEL_VALUES, Suggest.OBJECTS):
            return f"values-{self.id}"
        return str(self.suggest or "")

    def change(self, typed: str) -> Change | None:
        """Return the change of the manifest that typing this makes; None where it means the same."""
        if self.type in _MANY:
            is_same = self._parse(typed) == self._parse(self.value)
        else:
            typed = _NOT_IN_ONE_LINE.sub(" ", typed)
            is_same = typed.strip() == self.value.strip()
        if is_same:
            return None
        typed = typed.strip()
        if self.type is FieldType.KEY:
            return RenameKey(self.keys, typed)
        if not typed and not self.kept_empty:
            return RemoveValue(self.keys)
        return SetValue(self.keys, self._parse(typed))

    def _parse(self, typed: str) -> Any:
        """Return the value; what is no number stays text, so that the error is shown at the field."""
        if self.type in (FieldType.WHOLE, FieldType.AMOUNT):
            return int(typed) if _WHOLE_NUMBER.fullmatch(typed) else typed
        if self.type is FieldType.ONE:
            return list(filter(None, [typed]))
        if self.type in _MANY:
            return [word.strip() for word in re.split(r"[,\n]", typed) if word.strip()]
        return typed


@dataclass(frozen=True, slots=True)
class FormRow:
    """One row of a list: its fields, and the lists inside it; `name` is what its remove button sends."""

    keys: Keys
    fields: tuple[FormField, ...]
    groups: tuple["FieldGroup", ...] = ()
    name: str = ""
    summary: str = ""
    """What a row is in words, where its fields need not be open."""

    @property
    def inner_rows(self) -> int:
        return sum(len(group.rows) for group in self.groups)

    @property
    def has_one_part(self) -> bool:
        """Return whether removing the row removes all that its list inside has."""
        return self.inner_rows == 1 and not self.name.startswith("spec.resource")

    @property
    def id(self) -> str:
        return slug(self.name)

    @classmethod
    def of_resource(cls, data: object, keys: Keys) -> "FormRow":
        is_namespace = at(data, (*keys, "kind")) == "Namespace"
        specs = (*_RESOURCE, _SCOPE) if is_namespace else _RESOURCE
        labels = _label_groups(data, (*keys, "labelSelector"), _OBJECT_LABEL)
        row = _form_row(keys, _fields(data, keys, specs), *labels)
        kind, name = (at(data, (*keys, key)) for key in ("kind", "name"))
        if not (kind and name and isinstance(kind, str) and isinstance(name, str)):
            return row
        scope = at(data, (*keys, "selectionScope"))
        is_whole = is_namespace and scope != SelectionScope.NAMESPACE_ONLY
        return replace(row, summary=f"{kind} {name}{', with its resources' * is_whole}")

    @classmethod
    def of_required(cls, data: object, keys: Keys) -> "FormRow":
        labels = _label_groups(data, (*keys, "labelSelector"), _CLUSTER_LABEL)
        place = (*keys, "propertySelector", "matchExpressions")
        new = {"name": "", "operator": "Ge", "values": []}
        return _form_row(
            keys,
            (),
            *labels,
            _group(data, place, "property", new, partial(_simple_row, _PROPERTY)),
        )

    @classmethod
    def of_preferred(cls, data: object, keys: Keys) -> "FormRow":
        labels = _label_groups(
            data, (*keys, "preference", "labelSelector"), _CLUSTER_LABEL
        )
        place = (*keys, "preference", "propertySorter")
        rows: tuple[FormRow, ...] = ()
        if isinstance(at(data, place), Mapping):
            rows = (_simple_row(_SORTER, data, place),)
        new = {"name": "", "sortOrder": "Descending"}
        sorter = FieldGroup(
            place, "property", new, rows, can_add=not rows, is_single=True
        )
        return _form_row(keys, _fields(data, keys, _PREFERENCE), *labels, sorter)


@dataclass(frozen=True, slots=True)
class FieldGroup:
    """A list with its rows; `new` is what a new row starts as, `name` what its add button sends."""

    keys: Keys
    noun: str
    new: Any
    rows: tuple[FormRow, ...] = ()
    can_add: bool = True
    is_single: bool = False

    @property
    def name(self) -> str:
        return format_path(self.keys)

    @property
    def id(self) -> str:
        return slug(self.name)

    @property
    def with_inner(self) -> Iterator["FieldGroup"]:
        yield self
        for row in self.rows:
            for inner in row.groups:
                yield from inner.with_inner


_Place: TypeAlias = FieldGroup | FormRow | FormField


@dataclass(frozen=True)
class PlacementForm:
    data: Mapping[str, Any]
    basics: tuple[FormField, ...]
    rules: tuple[FormField, ...]
    resources: FieldGroup
    required: FieldGroup
    preferred: FieldGroup
    spread: FieldGroup
    tolerations: FieldGroup
    strategy: tuple[FormField, ...]
    applying: tuple[FormField, ...]

    @classmethod
    def of(cls, data: Mapping[str, Any]) -> "PlacementForm":
        return cls(
            data,
            _fields(data, (), _NAMESPACED_BASICS if is_namespaced(data) else _BASICS),
            _fields(data, (), _RULES),
            _group(
                data, SELECTORS, "resource selector", _NEW_SELECTOR, FormRow.of_resource
            ),
            _group(data, REQUIRED, "term", _NEW_TERM, FormRow.of_required),
            _group(
                data,
                PREFERRED,
                "preference",
                {"weight": 10, "preference": _NEW_TERM},
                FormRow.of_preferred,
            ),
            _group(
                data,
                SPREAD,
                "constraint",
                _NEW_CONSTRAINT,
                partial(_simple_row, _CONSTRAINT),
            ),
            _group(
                data,
                TOLERATIONS,
                "toleration",
                _NEW_TOLERATION,
                partial(_simple_row, _TOLERATION),
            ),
            _fields(data, STRATEGY, _STRATEGY),
            _fields(data, (*STRATEGY, "applyStrategy"), _APPLYING),
        )

    @property
    def outer_fields(self) -> tuple[FormField, ...]:
        return (*self.basics, *self.strategy, *self.rules, *self.applying)

    @property
    def groups(self) -> tuple[FieldGroup, ...]:
        return (
            self.resources,
            self.required,
            self.preferred,
            self.spread,
            self.tolerations,
        )

    @cached_property
    def all_groups(self) -> tuple[FieldGroup, ...]:
        return tuple(
            field_group for group in self.groups for field_group in group.with_inner
        )

    @cached_property
    def all_rows(self) -> tuple[FormRow, ...]:
        return tuple(row for group in self.all_groups for row in group.rows)

    @cached_property
    def fields(self) -> tuple[FormField, ...]:
        inside = (field for row in self.all_rows for field in row.fields)
        return (*self.basics, *inside, *self.strategy, *self.rules, *self.applying)

    @property
    def shape(self) -> str:
        """Which rows there are: what was typed into a form with other rows must not be applied."""
        return ".".join(str(len(group.rows)) for group in self.all_groups)

    @cached_property
    def sections(self) -> dict[str, bool]:
        """Which parts to show: those of the placement type, and those that are filled in."""
        by_name = {field.name: field.value for field in self.fields}
        placement_type = by_name.get("spec.policy.placementType", "")
        visible = set(_TYPE_FIELDS)
        if placement_type in list(PlacementType):
            visible = set(_SECTIONS_OF_TYPE[PlacementType(placement_type)])
        visible |= {name for name in _LISTS if getattr(self, name).rows}
        visible |= {name for name, path in _TYPE_FIELDS.items() if by_name.get(path)}
        is_staged = by_name.get("spec.strategy.type") == StrategyType.EXTERNAL
        return {name: name in visible for name in (*_LISTS, *_TYPE_FIELDS)} | {
            "rolling": not is_staged
        }

    def visible(self) -> dict[str, Keys]:
        """Return the places of all lists, rows and fields that are shown, by name; fields come last."""
        hidden = {
            getattr(self, name).name for name in _LISTS if not self.sections[name]
        }
        hidden |= {
            path for name, path in _TYPE_FIELDS.items() if not self.sections[name]
        }
        if not self.sections["rolling"]:
            hidden |= {
                field.name
                for field in self.strategy
                if field.name != "spec.strategy.type"
            }
        groups = [
            field_group
            for field_group in self.all_groups
            if field_group.rows or field_group.can_add
        ]
        places: tuple[_Place, ...] = (*groups, *self.all_rows, *self.fields)
        return {place.name: place.keys for place in places if place.name not in hidden}

    def words_of(self, path: str) -> str:
        """Return what the form calls a place, by its labels; the path of what no field shows."""
        outer = {field.name: field.label for field in self.outer_fields}
        words = outer | {
            field_group.name: field_group.noun for field_group in self.all_groups
        }
        for group in self.all_groups:
            for number, row in enumerate(group.rows, start=1):
                words[row.name] = f"{group.noun} {number}"
                words |= {
                    field.name: f"{field.label} of {words[row.name]}"
                    for field in row.fields
                }
        return words.get(path, path)

    @cached_property
    def unshown(self) -> tuple[str, ...]:
        """The outermost places of the manifest that no field shows."""
        leaves = frozenset(field.keys for field in self.fields)
        lists = filter(attrgetter("can_add"), self.groups)
        shown: tuple[_Place, ...] = (*self.fields, *self.all_rows, *lists)
        places = frozenset(
            one.keys[:end] for one in shown for end in range(len(one.keys) + 1)
        )

        def walk(keys: Keys, value: object) -> Iterator[Keys]:
            entries: Any = ()
            if isinstance(value, Mapping):
                entries = value.items()
            elif isinstance(value, list):
                entries = enumerate(value)
            for key, inner in entries:
                place = (*keys, key)
                if place not in places:
                    if place[0] not in _ALWAYS_SHOWN:
                        yield place
                elif place not in leaves:
                    yield from walk(place, inner)

        return tuple(map(format_path, walk((), self.data)))


def is_namespaced(data: Mapping[str, Any]) -> bool:
    return data.get("kind") == NAMESPACED_PLACEMENT_KIND


def slug(name: str) -> str:
    return re.sub("[^A-Za-z0-9]+", "-", name).strip("-")


def at(data: object, keys: Sequence[str | int]) -> Any:
    """Return what is at a place, ABSENT where there is no such place."""
    for key in keys:
        is_item = isinstance(data, list) and isinstance(key, int) and key < len(data)
        if not is_item and not (isinstance(data, Mapping) and key in data):
            return ABSENT
        data = data[key]  # type: ignore[index]
    return data


def _field_text(value: Any, field_type: FieldType) -> str | None:
    """Return the text that shows a value; None where typing it would result in another value."""
    if value in (ABSENT, None):
        return ""
    if field_type not in _JOINED:
        value, field_type = [value], FieldType.ONE
    between, unfit, most = _JOINED[field_type]
    if not isinstance(value, list) or len(value) > most:
        return None
    if any(isinstance(one, (Mapping, list, NoneType)) for one in value):
        return None
    words = [plain_word(one) for one in value]
    if any(unfit.search(word) for word in words):
        return None
    return between.join(words)


def _fields(
    data: object,
    base: Keys,
    specs: Iterable[FormField],
    *,
    label_key: str = "",
    name: str = "",
) -> tuple[FormField, ...]:
    """Return the fields below a place, without those that could not show what is there."""
    fields = []
    for spec in specs:
        keys = (*base, *spec.keys)
        value = _field_text(at(data, keys), spec.type)
        if value is not None:
            key = label_key if spec.suggest is Suggest.LABEL_VALUES else ""
            fields.append(
                replace(
                    spec,
                    keys=keys,
                    value=value or spec.value,
                    label_key=key,
                    name=name or format_path(keys),
                )
            )
    return tuple(fields)


def _group(
    data: object,
    keys: Keys,
    noun: str,
    new: Any,
    row_of: Callable[[object, Keys], FormRow],
) -> FieldGroup:
    """Return a list with its rows; items that are no objects stay in the YAML."""
    items = at(data, keys)
    if items is ABSENT or items is None:
        items = []
    if not isinstance(items, list):
        return FieldGroup(keys, noun, new, can_add=False)
    rows = [
        row_of(data, (*keys, place))
        for place, item in enumerate(items)
        if isinstance(item, Mapping)
    ]
    return FieldGroup(keys, noun, new, tuple(rows))


def _form_row(
    keys: Keys, fields: tuple[FormField, ...], *groups: FieldGroup
) -> FormRow:
    return FormRow(keys, fields, groups, format_path(keys))


def _simple_row(specs: Sequence[FormField], data: object, keys: Keys) -> FormRow:
    return _form_row(keys, _fields(data, keys, specs))


def _label_groups(
    data: object, keys: Keys, specs: Sequence[FormField]
) -> tuple[FieldGroup, FieldGroup]:
    """Return the rows of a label selector: those of matchLabels by their place, then the expressions.

    A row of matchLabels is named by its place, as its key may be changed.
    """
    place = (*keys, "matchLabels")
    labels = at(data, place)
    suggests = specs[0].suggest is not None
    value = FormField(
        (), "Value", kept_empty=True, suggest=Suggest.LABEL_VALUES if suggests else None
    )
    rows = []
    for index, key in enumerate(labels if isinstance(labels, Mapping) else ()):
        name = f"{format_path(place)}#{index}"
        keys_of, label_key = (*place, key), key if suggests else ""
        label = FormField(
            keys_of,
            "Label",
            FieldType.KEY,
            key,
            suggest=specs[0].suggest,
            name=f"{name}.key",
        )
        values = _fields(
            data, keys_of, [value], label_key=label_key, name=f"{name}.value"
        )
        rows.append(FormRow(keys_of, (label, *values), name=name))

    def expression(data: object, keys: Keys) -> FormRow:
        key = at(data, (*keys, "key"))
        return _form_row(
            keys,
            _fields(data, keys, specs, label_key=key if isinstance(key, str) else ""),
        )

    return (
        FieldGroup(place, "label", None, tuple(rows), can_add=False),
        _group(data, (*keys, "matchExpressions"), "label", LABEL_ROW, expression),
    )


def _choice(
    key: str | Keys,
    label: str,
    values: Iterable[str] | Mapping[str, str],
    default: str = "",
    *,
    kept_empty: bool = False,
) -> FormField:
    """Return a field with a closed set of values, which may have separate labels."""
    if not isinstance(values, Mapping):
        values = {str(value): str(value) for value in values}
    keys = (key,) if isinstance(key, str) else key
    return FormField(
        keys,
        label,
        FieldType.CHOICE,
        default,
        tuple(values.items()),
        kept_empty=kept_empty,
    )


LABEL_ROW: dict[str, Any] = {"key": "", "operator": "In", "values": []}
_NEW_TERM: dict[str, Any] = {"labelSelector": {"matchExpressions": [LABEL_ROW]}}
_NEW_SELECTOR = {"group": "", "version": "", "kind": "", "name": ""}
_NEW_CONSTRAINT = {
    "topologyKey": "",
    "maxSkew": 1,
    "whenUnsatisfiable": "DoNotSchedule",
}
_NEW_TOLERATION = {"key": "", "operator": "Equal", "value": ""}
_STRATEGIES = {
    "RollingUpdate": "Rolling update",
    "External": "External (staged update runs)",
}
_WHEN_UNSATISFIABLE = {
    "DoNotSchedule": "DoNotSchedule (hard)",
    "ScheduleAnyway": "ScheduleAnyway (soft)",
}
_OPERATOR = _choice("operator", "Operator", LabelOperator, kept_empty=True)
_PROPERTY_NAME = FormField(
    ("name",), "Property", kept_empty=True, suggest=Suggest.PROPERTIES
)

_BASICS = (
    FormField(("metadata", "name"), "Name", kept_empty=True),
    _choice((*POLICY, "placementType"), "Placement type", PlacementType, "PickAll"),
    FormField((*POLICY, "numberOfClusters"), "Number of clusters", FieldType.WHOLE),
    FormField(CLUSTER_NAMES, "Cluster names, one on each line", FieldType.LINES),
)
_NAMESPACED_BASICS = (
    _BASICS[0],
    FormField(NAMESPACE, "Namespace", kept_empty=True, suggest=Suggest.OBJECTS),
    *_BASICS[1:],
)
_RULES = (
    _choice(SEMANTICS, "Scheduling rules", Semantics, DEFAULT_SEMANTICS),
    FormField(
        ("spec", "revisionHistoryLimit"),
        "Revision history limit",
        FieldType.WHOLE,
        placeholder="10",
    ),
)
_RESOURCE = (
    FormField(("group",), "Group", placeholder="core", kept_empty=True),
    FormField(("version",), "Version", kept_empty=True),
    FormField(("kind",), "Kind", kept_empty=True),
    FormField(
        ("name",), "Name", placeholder="all of this kind", suggest=Suggest.OBJECTS
    ),
)
_SCOPE = _choice(
    "selectionScope",
    "Selection scope",
    SelectionScope,
    SelectionScope.NAMESPACE_WITH_RESOURCES,
)
_CLUSTER_LABEL = (
    FormField(
        ("key",),
        "Label",
        placeholder="label",
        kept_empty=True,
        suggest=Suggest.LABEL_KEYS,
    ),
    _OPERATOR,
    FormField(
        ("values",),
        "Values",
        FieldType.WORDS,
        placeholder="value, value",
        suggest=Suggest.LABEL_VALUES,
    ),
)
_OBJECT_LABEL = (
    FormField(("key",), "Label", kept_empty=True),
    _OPERATOR,
    FormField(("values",), "Values", FieldType.WORDS),
)
_PROPERTY = (
    _PROPERTY_NAME,
    _choice("operator", "Operator", PropertyOperator, kept_empty=True),
    FormField(("values",), "Quantity", FieldType.ONE, kept_empty=True),
)
_PREFERENCE = (FormField(("weight",), "Weight", FieldType.WHOLE, kept_empty=True),)
_SORTER = (_PROPERTY_NAME, _choice("sortOrder", "Order", SortOrder, kept_empty=True))
_CONSTRAINT = (
    FormField(
        ("topologyKey",), "Topology key", kept_empty=True, suggest=Suggest.LABEL_KEYS
    ),
    FormField(("maxSkew",), "Max skew", FieldType.WHOLE, placeholder="1"),
    _choice(
        "whenUnsatisfiable", "When unsatisfiable", _WHEN_UNSATISFIABLE, "DoNotSchedule"
    ),
)
_TOLERATION = (
    FormField(("key",), "Taint", suggest=Suggest.TAINTS),
    _choice("operator", "Operator", TolerationOperator, "Equal"),
    FormField(("value",), "Value"),
    FormField(("effect",), "Effect", placeholder="any"),
)
_ROLLING, _PERIOD = "rollingUpdate", "unavailablePeriodSeconds"
_STRATEGY = (
    _choice("type", "Rollout strategy", _STRATEGIES, StrategyType.ROLLING_UPDATE),
    FormField(
        (_ROLLING, "maxUnavailable"),
        "Max unavailable",
        FieldType.AMOUNT,
        placeholder="25%",
    ),
    FormField((_ROLLING, "maxSurge"), "Max surge", FieldType.AMOUNT, placeholder="25%"),
    FormField(
        (_ROLLING, _PERIOD),
        "Unavailable period (seconds)",
        FieldType.WHOLE,
        placeholder="60",
    ),
)
_APPLYING = (
    _choice("type", "Apply type", ApplyType, ApplyType.CLIENT_SIDE_APPLY),
    _choice(
        "comparisonOption",
        "Comparison",
        ComparisonOption,
        ComparisonOption.PARTIAL_COMPARISON,
    ),
    _choice("whenToApply", "When to apply", WhenToApply, WhenToApply.ALWAYS),
    _choice(
        "whenToTakeOver", "When to take over", WhenToTakeOver, WhenToTakeOver.ALWAYS
    ),
)
