"""Whether one object has the name or the labels that a resource selector asks for."""

from collections.abc import Callable, Mapping
from typing import TypeAlias

from placements.scheduling.door.resource_selectors import ResourceSelector, SelectionScope
from placements.scheduling.door.terms import LabelOperator, LabelRequirement
from placements.scheduling.hub.objects import HubObject
from placements.scheduling.selectors import label_requirements

Labels: TypeAlias = Mapping[str, str]


def is_namespace_selector(selector: ResourceSelector) -> bool:
    """Tell whether a selector is about namespaces."""
    return (selector.group, selector.kind) == ("", "Namespace")


def own_namespace(selectors: tuple[ResourceSelector, ...]) -> str | None:
    """Give the namespace from which the other selectors may pick kinds that live inside one."""
    own = SelectionScope.NAMESPACE_WITH_RESOURCE_SELECTORS
    named = (each.name for each in selectors if is_namespace_selector(each) and each.selection_scope is own)
    return next(named, None)


def matcher(selector: ResourceSelector) -> Callable[[HubObject], bool]:
    """Give the test by name or by labels; kind and version are not its business."""
    if selector.name:
        return lambda each: each.name == selector.name
    tests = [_label_test(requirement) for requirement in label_requirements(selector.label_selector)]
    return lambda each: all(test(each.labels) for test in tests)


def _label_test(requirement: LabelRequirement) -> Callable[[Labels], bool]:
    key, values = requirement.key, frozenset(requirement.values)
    match requirement.operator:
        case LabelOperator.IN:
            return lambda labels: labels.get(key) in values
        case LabelOperator.NOT_IN:
            return lambda labels: labels.get(key) not in values
        case LabelOperator.EXISTS:
            return lambda labels: key in labels
        case LabelOperator.DOES_NOT_EXIST:
            return lambda labels: key not in labels
