"""What this console has to know of an OCM Placement, and finds in its annotations: see `docs/adr/0009`.

A Placement of Open Cluster Management selects clusters only. Which resources go there, how a change of
them reaches the clusters, and the options of the spread stand in annotations, each as JSON.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, TypeVar

from placements.scheduling.door.parsing import mapping_at
from placements.scheduling.door.plain import plain_problems
from placements.scheduling.faults import Fault, Faults, format_path

RESOURCES_ANNOTATION = "fleetui.io/resource-selectors"
STRATEGY_ANNOTATION = "fleetui.io/strategy"

Value = TypeVar("Value")
_SORTS: Mapping[str, tuple[type, str]] = {
    RESOURCES_ANNOTATION: (
        list,
        'a JSON list such as [{"group": "", "version": "v1", "kind": "Namespace", "name": "web"}]',
    ),
    STRATEGY_ANNOTATION: (dict, 'a JSON object such as {"rollingUpdate": {"maxUnavailable": 1}}'),
}


def annotation_path(key: str) -> str:
    """Give the path of an annotation in its document."""
    return format_path(("metadata", "annotations", key))


def annotated(document: object, key: str) -> Any:
    """Give what one of these annotations says, None without it. Raises Faults."""
    text = mapping_at(document, "metadata", "annotations").get(key)
    if not isinstance(text, str):
        return None
    sort, allowed = _SORTS[key]
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise Faults([Fault(annotation_path(key), "bad-format", "is not JSON", allowed)]) from error
    if not isinstance(value, sort) or plain_problems(value):
        words = "list" if sort is list else "object"
        raise Faults([Fault(annotation_path(key), "bad-format", f"is not a plain JSON {words}", allowed)])
    return value


def in_annotations(fault: Fault) -> Fault:
    """Give a fault of a spec made of annotations with its place in the document."""
    return replace(fault, path=annotation_of(fault.path))


def annotation_of(path: str) -> str:
    """Give the place in the document of a path in the spec that annotations were made into."""
    for field, key in (("resourceSelectors", RESOURCES_ANNOTATION), ("strategy", STRATEGY_ANNOTATION)):
        if path.startswith(field):
            return annotation_path(key) + path.removeprefix(field)
    return path


class Gathering:
    """Reads one part after another, and gathers what is wrong with any of them."""

    def __init__(self) -> None:
        self.faults: list[Fault] = []

    def read(self, parse: Callable[[], Value]) -> Value | None:
        """Give what a parser gives, None where it finds faults."""
        try:
            return parse()
        except Faults as found:
            self.faults += found.faults
            return None
