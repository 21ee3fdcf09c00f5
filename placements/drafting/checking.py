"""A draft as far as it can be read: its faults with their lines, and what a preview can make of the rest.

A row at fault, half typed or not, is left out of the preview and marked; so is what no field is called. Other
faults leave nothing to preview.
"""

from collections.abc import Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

from placements.drafting.fields import ABSENT, at
from placements.drafting.form import MOST_FIELDS, SELECTORS, Form, form_of
from placements.manifests import Document, attach_lines, items_of, load_documents
from placements.scheduling.door.kinds import PLACEMENT_KIND
from placements.scheduling.faults import Fault, Faults, Keys, format_path, split_path
from placements.scheduling.spec import ClusterResourcePlacement, parse_placement

_ROUNDS = 20
_WANTED = f"one {PLACEMENT_KIND}, or one Placement of OCM"
_STAND_IN_NAME = "draft"
_STAND_IN_SELECTOR = {"group": "", "version": "v1", "kind": "Namespace", "name": "draft"}


@dataclass(frozen=True, slots=True)
class Checked:
    """What a text says.

    `draft` is there when nothing is at fault; `trial` when a preview is possible, without what is `left_out`;
    `form` when the text can be shown as a form, else `no_form` says why not.
    """

    text: str
    faults: tuple[Fault, ...] = ()
    data: Any = None
    document: Document | None = None
    draft: ClusterResourcePlacement | None = None
    trial: ClusterResourcePlacement | None = None
    left_out: tuple[str, ...] = ()
    form: Form | None = None
    no_form: str = ""


def check(text: str, *, name: str = "") -> Checked:
    """Read a text as a draft; nothing is raised, whatever it holds. `name` is what it has to be called."""
    try:
        document = _only(text)
    except Faults as found:
        return Checked(text, found.faults, no_form="The text cannot be read: mend it as YAML.")
    draft, faults = _strictly(document, name)
    trial, left_out = (draft, ()) if draft else _leniently(document.data)
    form, no_form = _form(document)
    return Checked(text, faults, document.data, document, draft, trial, left_out, form, no_form)


def _only(text: str) -> Document:
    documents = load_documents(text)
    if not documents:
        raise Faults([Fault("", "required", "there is no document in it", _WANTED)])
    if len(documents) > 1:
        message = f"there are {len(documents)} documents"
        raise Faults([Fault("", "too-many", message, _WANTED)])
    items = items_of(documents[0])
    return items[0] if len(items) == 1 else documents[0]


def _strictly(document: Document, name: str) -> tuple[ClusterResourcePlacement | None, tuple[Fault, ...]]:
    try:
        draft = parse_placement(document.data)
    except Faults as found:
        return None, tuple(attach_lines((document, fault) for fault in found.faults))
    if name and draft.metadata.name != name:
        message = f"the placement is called {name}; a name cannot be changed"
        fault = Fault("metadata.name", "immutable", message, name)
        return None, tuple(attach_lines([(document, fault)]))
    return draft, ()


def _form(document: Document) -> tuple[Form | None, str]:
    data = document.data
    if document.within or not isinstance(data, Mapping):
        return None, f"This is not one {PLACEMENT_KIND}: edit it as YAML."
    if str(data.get("apiVersion")).startswith("cluster.open-cluster-management.io/"):
        return None, "This is an OCM document: edit it as YAML."
    if data.get("kind") != PLACEMENT_KIND:
        return None, f"This is not a {PLACEMENT_KIND}: edit it as YAML."
    form = form_of(data)
    if len(form.fields) > MOST_FIELDS:
        return None, f"A form for it would have {len(form.fields)} fields: edit it as YAML."
    return form, ""


def _leniently(data: Any) -> tuple[ClusterResourcePlacement | None, tuple[str, ...]]:
    """Leave out what is half typed, until the rest can be read."""
    if not isinstance(data, Mapping):
        return None, ()
    rest = deepcopy(dict(data))
    origins = dict(_origins(rest, ()))
    left_out: list[str] = []
    for _ in range(_ROUNDS):
        try:
            return parse_placement(rest), tuple(left_out)
        except Faults as found:
            cut = [_cut(rest, fault) for fault in found.faults]
        if None in cut:
            return None, ()
        for keys in sorted({one for one in cut if one}, key=_from_behind, reverse=True):
            if at(rest, keys) is not ABSENT:
                left_out.append(format_path(_origin(origins, rest, keys)))
                _leave_out(rest, keys)
    return None, ()


def _origins(value: Any, keys: Keys) -> Iterator[tuple[int, Keys]]:
    """Give the places of all objects and lists, which move up when something before them is left out."""
    if isinstance(value, dict | list):
        yield id(value), keys
        inner = value.items() if isinstance(value, dict) else enumerate(value)
        for key, one in inner:
            yield from _origins(one, (*keys, key))


def _origin(origins: Mapping[int, Keys], data: Any, keys: Keys) -> Keys:
    """Give the place that something had in the text before anything was left out."""
    found = origins.get(id(at(data, keys)))
    if found is not None:
        return found
    return (*origins.get(id(at(data, keys[:-1])), keys[:-1]), keys[-1])


def _from_behind(keys: Keys) -> list[tuple[bool, str | int]]:
    return [(isinstance(key, str), key) for key in keys]


def _cut(data: dict[str, Any], fault: Fault) -> Keys | None:
    """Say what to leave out because of a fault.

    () where something stands in for it, None where nothing helps.
    """
    keys = split_path(fault.path)
    if keys == ("metadata", "name") or (keys == ("metadata",) and fault.code == "required"):
        data["metadata"] = {**(data.get("metadata") or {}), "name": _STAND_IN_NAME}
        return ()
    if fault.code == "unknown-field":
        return keys
    if keys == SELECTORS:
        data["spec"]["resourceSelectors"] = [_STAND_IN_SELECTOR]
        return ()
    ends = [end for end, key in enumerate(keys, start=1) if isinstance(key, int)]
    if not ends:
        return None
    return keys[:3] if keys[:2] == SELECTORS else keys[: ends[-1]]


def _leave_out(data: Any, keys: Keys) -> None:
    """Take a place away; a row that says nothing more goes with it."""
    around = at(data, keys[:-1])
    del around[keys[-1]]
    if not around and len(keys) > 2 and keys[:-1] != SELECTORS:
        _leave_out(data, keys[:-1])
