"""The editor's form over a manifest: which fields and rows there are, and what they leave out."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from placements.drafting.fields import ABSENT, Choices, Field, Sort, Suggests, at, field_at, slug
from placements.scheduling.door.strategy import (
    ApplyType,
    ComparisonOption,
    StrategyType,
    WhenToApply,
    WhenToTakeOver,
)
from placements.scheduling.door.terms import LabelOperator, PropertyOperator, SortOrder
from placements.scheduling.faults import Keys, format_path
from placements.scheduling.policy import PlacementType, TolerationOperator
from placements.scheduling.semantics import DEFAULT_SEMANTICS, Semantics
from placements.scheduling.spec import SEMANTICS_ANNOTATION, SelectionScope

MOST_FIELDS = 600
"""A form with more fields than this is no help; such a document is edited as YAML."""

POLICY: Keys = ("spec", "policy")
AFFINITY: Keys = (*POLICY, "affinity", "clusterAffinity")
SELECTORS: Keys = ("spec", "resourceSelectors")
REQUIRED: Keys = (*AFFINITY, "requiredDuringSchedulingIgnoredDuringExecution", "clusterSelectorTerms")
PREFERRED: Keys = (*AFFINITY, "preferredDuringSchedulingIgnoredDuringExecution")
SPREAD: Keys = (*POLICY, "topologySpreadConstraints")
TOLERATIONS: Keys = (*POLICY, "tolerations")
STRATEGY: Keys = ("spec", "strategy")
SEMANTICS: Keys = ("metadata", "annotations", SEMANTICS_ANNOTATION)
_ALWAYS_SHOWN = frozenset({"apiVersion", "kind"})

LABEL_ROW: dict[str, Any] = {"key": "", "operator": "In", "values": []}
_SELECTOR: dict[str, Any] = {"labelSelector": {"matchExpressions": [LABEL_ROW]}}


@dataclass(frozen=True, slots=True)
class Row:
    """One row of a list: its fields, and the lists inside it."""

    keys: Keys
    fields: tuple[Field, ...]
    groups: tuple["Group", ...] = ()
    called: str = ""

    @property
    def name(self) -> str:
        """Give what a button that removes the row sends."""
        return self.called or format_path(self.keys)

    @property
    def has_inner_rows(self) -> bool:
        """Tell whether one of the lists inside has rows."""
        return any(group.rows for group in self.groups)

    @property
    def id(self) -> str:
        """Give the id of the row in a page."""
        return slug(self.name)


@dataclass(frozen=True, slots=True)
class Group:
    """A list with its rows; `new` is what a new row starts as."""

    keys: Keys
    noun: str
    new: Any
    rows: tuple[Row, ...] = ()
    can_add: bool = True
    is_single: bool = False

    @property
    def name(self) -> str:
        """Give what a button that adds a row sends."""
        return format_path(self.keys)

    @property
    def id(self) -> str:
        """Give the id of the list in a page."""
        return slug(self.name)


@dataclass(frozen=True, slots=True)
class Form:
    """The whole form; `also` lists the places of the document that no field shows."""

    basics: tuple[Field, ...]
    rules: tuple[Field, ...]
    resources: Group
    required: Group
    preferred: Group
    spread: Group
    tolerations: Group
    strategy: tuple[Field, ...]
    applying: tuple[Field, ...]
    also: tuple[str, ...] = ()

    @property
    def groups(self) -> tuple[Group, ...]:
        """Give the lists at the top."""
        return (self.resources, self.required, self.preferred, self.spread, self.tolerations)

    @property
    def fields(self) -> tuple[Field, ...]:
        """Give every field."""
        inside = (one for group in self.groups for one in _fields_in(group))
        return (*self.basics, *inside, *self.strategy, *self.rules, *self.applying)

    @property
    def all_groups(self) -> tuple[Group, ...]:
        """Give every list, those in rows too."""
        return tuple(one for group in self.groups for one in _groups_in(group))

    @property
    def shape(self) -> str:
        """Say which rows there are: a form that was made for others must not be applied."""
        return ".".join(str(len(group.rows)) for group in self.all_groups)

    def named(self, name: str) -> Field | None:
        """Give the field that a page names so."""
        return next((one for one in self.fields if one.name == name), None)


def _fields_in(group: Group) -> Iterator[Field]:
    for row in group.rows:
        yield from row.fields
        for inner in row.groups:
            yield from _fields_in(inner)


def _groups_in(group: Group) -> Iterator[Group]:
    yield group
    for row in group.rows:
        for inner in row.groups:
            yield from _groups_in(inner)


def form_of(data: Mapping[str, Any]) -> Form:
    """Make the form of a document."""
    form = Form(
        basics=tuple(_basics(data)),
        rules=tuple(_rules(data)),
        resources=_group(data, SELECTORS, "resource selector", _NEW_SELECTOR, _resource),
        required=_group(data, REQUIRED, "term", _SELECTOR, _required),
        preferred=_group(data, PREFERRED, "preference", {"weight": 10, "preference": _SELECTOR}, _preferred),
        spread=_group(data, SPREAD, "topology key", _NEW_CONSTRAINT, _constraint),
        tolerations=_group(data, TOLERATIONS, "toleration", _NEW_TOLERATION, _toleration),
        strategy=tuple(_strategy(data)),
        applying=tuple(_applying(data)),
    )
    leaves = frozenset(one.keys for one in form.fields)
    also = tuple(format_path(keys) for keys in _left_out((), data, _shown_places(form), leaves))
    return replace(form, also=also)


_NEW_SELECTOR = {"group": "", "version": "v1", "kind": "", "name": ""}
_NEW_CONSTRAINT = {"topologyKey": "", "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule"}
_NEW_TOLERATION = {"key": "", "operator": "Equal", "value": ""}


def _basics(data: object) -> Iterator[Field]:
    yield from field_at(data, ("metadata", "name"), "Name", stays=True)
    choices = _choices(PlacementType)
    keys = (*POLICY, "placementType")
    yield from field_at(data, keys, "Placement type", Sort.CHOICE, choices=choices, default="PickAll")
    yield from field_at(data, (*POLICY, "numberOfClusters"), "Number of clusters", Sort.WHOLE)
    keys = (*POLICY, "clusterNames")
    yield from field_at(data, keys, "Cluster names, one on each line", Sort.LINES)


def _rules(data: object) -> Iterator[Field]:
    yield from field_at(
        data, SEMANTICS, "Semantics", Sort.CHOICE, choices=_choices(Semantics), default=DEFAULT_SEMANTICS
    )
    keys = ("spec", "revisionHistoryLimit")
    yield from field_at(data, keys, "Snapshots kept", Sort.WHOLE, placeholder="10")


def _group(data: object, keys: Keys, noun: str, new: Any, row_of: Any) -> Group:
    """Make the rows of a list; items that are no objects stay in the YAML."""
    there = at(data, keys)
    if there is not ABSENT and there is not None and not isinstance(there, list):
        return Group(keys, noun, new, can_add=False)
    items = there if isinstance(there, list) else []
    rows = [row_of(data, (*keys, place)) for place, one in enumerate(items) if isinstance(one, Mapping)]
    return Group(keys, noun, new, tuple(rows))


def _resource(data: object, keys: Keys) -> Row:
    fields = (
        *field_at(data, (*keys, "group"), "Group", placeholder="core", stays=True),
        *field_at(data, (*keys, "version"), "Version", stays=True),
        *field_at(data, (*keys, "kind"), "Kind", placeholder="Namespace", stays=True),
        *field_at(
            data, (*keys, "name"), "Name", placeholder="every one of the kind", suggests=Suggests.OBJECTS
        ),
        *_scope(data, keys),
    )
    return Row(keys, fields, _label_groups(data, (*keys, "labelSelector"), is_about_clusters=False))


def _scope(data: object, keys: Keys) -> Iterator[Field]:
    if at(data, (*keys, "kind")) == "Namespace":
        default = SelectionScope.NAMESPACE_WITH_RESOURCES
        place = (*keys, "selectionScope")
        choices = _choices(SelectionScope)
        yield from field_at(data, place, "Selection scope", Sort.CHOICE, choices=choices, default=default)


def _required(data: object, keys: Keys) -> Row:
    groups = _label_groups(data, (*keys, "labelSelector"))
    new = {"name": "", "operator": "Ge", "values": []}
    requirements = (*keys, "propertySelector", "matchExpressions")
    return Row(keys, (), (*groups, _group(data, requirements, "property", new, _property)))


def _preferred(data: object, keys: Keys) -> Row:
    weight = field_at(data, (*keys, "weight"), "Weight", Sort.WHOLE, stays=True)
    preference = (*keys, "preference")
    sorter = (*preference, "propertySorter")
    rows = (_sorter(data, sorter),) if isinstance(at(data, sorter), Mapping) else ()
    new = {"name": "", "sortOrder": "Descending"}
    sorting = Group(sorter, "property", new, rows, can_add=not rows, is_single=True)
    return Row(keys, tuple(weight), (*_label_groups(data, (*preference, "labelSelector")), sorting))


def _sorter(data: object, keys: Keys) -> Row:
    fields = (
        *field_at(data, (*keys, "name"), "Property", stays=True, suggests=Suggests.PROPERTIES),
        *field_at(data, (*keys, "sortOrder"), "Order", Sort.CHOICE, choices=_SORT_ORDERS, stays=True),
    )
    return Row(keys, fields)


def _label_groups(data: object, keys: Keys, *, is_about_clusters: bool = True) -> tuple[Group, ...]:
    """Make the rows of a label selector: those of matchLabels by their place, then the expressions."""
    exact = at(data, (*keys, "matchLabels"))
    labels = exact if isinstance(exact, Mapping) else {}
    rows = [
        _exact(data, (*keys, "matchLabels"), place, key, is_about_clusters)
        for place, key in enumerate(labels)
    ]
    expressions = (*keys, "matchExpressions")
    of_clusters = _group(data, expressions, "label", LABEL_ROW, _label)
    of_objects = _group(data, expressions, "label", LABEL_ROW, _label_of_object)
    return (
        Group((*keys, "matchLabels"), "label", None, tuple(rows), can_add=False),
        of_clusters if is_about_clusters else of_objects,
    )


def _exact(data: object, keys: Keys, place: int, key: str, is_about_clusters: bool) -> Row:
    name = f"{format_path(keys)}#{place}"
    offers = (Suggests.LABEL_KEYS, Suggests.LABEL_VALUES) if is_about_clusters else (None, None)
    value = field_at(
        data, (*keys, key), "Value", stays=True, suggests=offers[1], of_key=key, name=f"{name}.value"
    )
    label = Field((*keys, key), "Label", Sort.KEY, key, suggests=offers[0], name=f"{name}.key")
    return Row((*keys, key), (label, *value), called=name)


def _label(data: object, keys: Keys) -> Row:
    key = at(data, (*keys, "key"))
    of_key = key if isinstance(key, str) else ""
    offered, values = Suggests.LABEL_KEYS, Suggests.LABEL_VALUES
    fields = (
        *field_at(data, (*keys, "key"), "Label", stays=True, suggests=offered, placeholder="label"),
        *field_at(data, (*keys, "operator"), "Operator", Sort.CHOICE, choices=_OPERATORS, stays=True),
        *field_at(
            data,
            (*keys, "values"),
            "Values",
            Sort.WORDS,
            suggests=values,
            of_key=of_key,
            placeholder="value, value",
        ),
    )
    return Row(keys, fields)


def _label_of_object(data: object, keys: Keys) -> Row:
    fields = (
        *field_at(data, (*keys, "key"), "Label", stays=True),
        *field_at(data, (*keys, "operator"), "Operator", Sort.CHOICE, choices=_OPERATORS, stays=True),
        *field_at(data, (*keys, "values"), "Values", Sort.WORDS),
    )
    return Row(keys, fields)


def _property(data: object, keys: Keys) -> Row:
    comparisons = _choices(PropertyOperator)
    fields = (
        *field_at(data, (*keys, "name"), "Property", stays=True, suggests=Suggests.PROPERTIES),
        *field_at(data, (*keys, "operator"), "Operator", Sort.CHOICE, choices=comparisons, stays=True),
        *field_at(data, (*keys, "values"), "Quantity", Sort.ONE, stays=True),
    )
    return Row(keys, fields)


def _constraint(data: object, keys: Keys) -> Row:
    hardness = (("DoNotSchedule", "hard: never more"), ("ScheduleAnyway", "soft: rather not"))
    hard, place = "DoNotSchedule", (*keys, "whenUnsatisfiable")
    fields = (
        *field_at(data, (*keys, "topologyKey"), "Label", stays=True, suggests=Suggests.LABEL_KEYS),
        *field_at(data, (*keys, "maxSkew"), "Max skew", Sort.WHOLE, placeholder="1"),
        *field_at(data, place, "Limit", Sort.CHOICE, choices=hardness, default=hard),
    )
    return Row(keys, fields)


def _toleration(data: object, keys: Keys) -> Row:
    operators, place = _choices(TolerationOperator), (*keys, "operator")
    fields = (
        *field_at(data, (*keys, "key"), "Taint"),
        *field_at(data, place, "Operator", Sort.CHOICE, choices=operators, default="Equal"),
        *field_at(data, (*keys, "value"), "Value"),
        *field_at(data, (*keys, "effect"), "Effect", placeholder="any"),
    )
    return Row(keys, fields)


def _strategy(data: object) -> Iterator[Field]:
    rolling = (*STRATEGY, "rollingUpdate")
    types = (("RollingUpdate", "Rolling update: by itself"), ("External", "Staged: when somebody starts it"))
    default = StrategyType.ROLLING_UPDATE
    yield from field_at(
        data, (*STRATEGY, "type"), "How changes roll out", Sort.CHOICE, choices=types, default=default
    )
    keys = (*rolling, "maxUnavailable")
    yield from field_at(data, keys, "Unavailable at most", Sort.AMOUNT, placeholder="25%")
    yield from field_at(data, (*rolling, "maxSurge"), "Extra while moving", Sort.AMOUNT, placeholder="25%")
    keys = (*rolling, "unavailablePeriodSeconds")
    yield from field_at(data, keys, "Settle for, in seconds", Sort.WHOLE, placeholder="60")


def _applying(data: object) -> Iterator[Field]:
    fields = (
        ("type", "Written by", ApplyType, ApplyType.CLIENT_SIDE_APPLY),
        ("comparisonOption", "Compared", ComparisonOption, ComparisonOption.PARTIAL_COMPARISON),
        ("whenToApply", "Written over", WhenToApply, WhenToApply.ALWAYS),
        ("whenToTakeOver", "Taken over", WhenToTakeOver, WhenToTakeOver.ALWAYS),
    )
    for key, label, closed, default in fields:
        keys = (*STRATEGY, "applyStrategy", key)
        yield from field_at(data, keys, label, Sort.CHOICE, choices=_choices(closed), default=default)


def _choices(closed: Any) -> Choices:
    return tuple((str(one), str(one)) for one in closed)


_OPERATORS = _choices(LabelOperator)
_SORT_ORDERS = _choices(SortOrder)


def _shown_places(form: Form) -> frozenset[Keys]:
    """Give the places that fields show, and those around them."""
    own = [one.keys for one in form.fields]
    rows = [row.keys for group in form.all_groups for row in group.rows]
    return frozenset(keys[:end] for keys in (*own, *rows) for end in range(len(keys) + 1))


def _left_out(keys: Keys, value: Any, shown: frozenset[Keys], leaves: frozenset[Keys]) -> Iterator[Keys]:
    """Find the outermost places that no field shows."""
    entries: Any = ()
    if isinstance(value, Mapping):
        entries = value.items()
    elif isinstance(value, list):
        entries = enumerate(value)
    for key, inner in entries:
        place = (*keys, key)
        if place not in shown:
            if place[0] not in _ALWAYS_SHOWN:
                yield place
        elif place not in leaves:
            yield from _left_out(place, inner, shown, leaves)
