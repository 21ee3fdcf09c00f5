"""Which hub resources a placement takes along (`spec/lifecycle.md` A.16, B.1.1, B.1.2)."""

from collections.abc import Iterator
from enum import StrEnum
from typing import Annotated, Any, ClassVar

from placements.scheduling.door import names
from placements.scheduling.door.builtin_kinds import KindScope, scope_of
from placements.scheduling.door.fields import one_of, spelled
from placements.scheduling.door.parsing import Parsed, Raw, mapping_at, shown
from placements.scheduling.door.terms import LabelSelector
from placements.scheduling.faults import Problem

_RESERVED_PREFIXES = ("fleet-", "kube-")
_RESERVED_NAMES = ("default",)


class SelectionScope(StrEnum):
    """How much of a selected namespace is taken along."""

    NAMESPACE_ONLY = "NamespaceOnly"
    NAMESPACE_WITH_RESOURCES = "NamespaceWithResources"
    NAMESPACE_WITH_RESOURCE_SELECTORS = "NamespaceWithResourceSelectors"


def is_reserved_namespace(name: str) -> bool:
    """Tell whether a namespace belongs to the hub itself and is never placed."""
    return name in _RESERVED_NAMES or name.startswith(_RESERVED_PREFIXES)


def _optional_name_problem(name: str) -> names.NameProblem | None:
    return names.object_name_problem(name) if name else None


class ResourceSelector(Parsed):
    """One sort of resources: one by name, some by label, or all of the kind."""

    noun: ClassVar[str] = "resource selector"

    group: Annotated[str, spelled(names.group_problem, 'an API group, "" for the core', filled_in=False)]
    version: Annotated[str, spelled(names.version_problem, "an API version such as v1")]
    kind: Annotated[str, spelled(names.kind_problem, "a kind such as Namespace")]
    name: Annotated[str, spelled(_optional_name_problem, names.OBJECT_NAME, filled_in=False)] = ""
    label_selector: LabelSelector | None = None
    selection_scope: Annotated[SelectionScope, one_of(SelectionScope)] = (
        SelectionScope.NAMESPACE_WITH_RESOURCES
    )

    @classmethod
    def rules(cls, raw: Raw) -> Iterator[Problem]:
        """By name or by label, not both; and no reserved namespace (lifecycle A.16, B.1.1)."""
        name = raw.get("name")
        if name and "labelSelector" in raw:
            message = "cannot stand beside a name: one selector selects by name or by labels"
            yield Problem(("labelSelector",), "conflict", message, "name or labelSelector")
        if selects_namespace(raw) and isinstance(name, str) and is_reserved_namespace(name):
            yield reserved_namespace_problem(name)


def reserved_namespace_problem(name: str) -> Problem:
    """Refuse a selector that names a namespace of the hub itself."""
    allowed = "namespaces other than default, fleet-* and kube-*"
    return Problem(("name",), "reserved-namespace", f"{shown(name)} belongs to the hub itself", allowed)


def selects_namespace(raw: Raw) -> bool:
    """Tell whether a raw selector is about namespaces."""
    return raw.get("kind") == "Namespace" and raw.get("group") == ""


def scope_problems(selectors: list[Any]) -> Iterator[Problem]:
    """A namespace with its own resource selectors stands alone and has a name (lifecycle B.1.1)."""
    namespaces = [index for index, raw in enumerate(selectors) if selects_namespace(mapping_at(raw))]
    scoped = [index for index in namespaces if _has_own_selectors(mapping_at(selectors[index]))]
    for index in scoped:
        if not mapping_at(selectors[index]).get("name"):
            message = "NamespaceWithResourceSelectors needs the name of one namespace"
            yield Problem((index, "name"), "required", message, "a name")
    others = [index for index in namespaces if index != scoped[0]] if scoped else []
    for index in others:
        message = (
            f"no other namespace can stand beside one with {SelectionScope.NAMESPACE_WITH_RESOURCE_SELECTORS}"
        )
        yield Problem((index,), "conflict", message, "one selector of kind Namespace")


def namespaced_problems(selectors: list[Any]) -> Iterator[Problem]:
    """A placement of a whole cluster takes kinds inside namespaces only from a namespace it names (B.1.2).

    Of other groups than Kubernetes' own only the objects on the hub tell: `hub.selection` asks them.
    """
    raws = [mapping_at(raw) for raw in selectors]
    if any(selects_namespace(raw) and _has_own_selectors(raw) for raw in raws):
        return
    for index, raw in enumerate(raws):
        kind, group = raw.get("kind"), raw.get("group")
        if not isinstance(kind, str) or not isinstance(group, str):
            continue
        if scope_of(group, kind) is KindScope.NAMESPACED:
            yield namespaced_kind_problem(kind).under(index)


def namespaced_kind_problem(kind: str) -> Problem:
    """Refuse a selector of a kind that lives inside namespaces."""
    message = f"{kind} lives inside namespaces: select its Namespace, which brings it along"
    allowed = "cluster-scoped kinds, or a Namespace with NamespaceWithResourceSelectors beside it"
    return Problem(("kind",), "namespaced-kind", message, allowed)


def _has_own_selectors(raw: Raw) -> bool:
    return raw.get("selectionScope") == SelectionScope.NAMESPACE_WITH_RESOURCE_SELECTORS
