"""Input of the form and its buttons as edits of the manifest's text, which keep its comments."""

from collections.abc import Mapping, Sequence
from typing import Any

from fleetui.apimachinery.errors import Keys, split_path
from fleetui.apimachinery.model import mapping_at
from fleetui.apimachinery.secrets import HubObject
from fleetui.apimachinery.yaml_edit import (
    Change,
    RemoveValue,
    SetValue,
    UneditableYaml,
    changed,
    edit,
)
from placements.manifests.strategy import StrategyType
from placements.services.editor.form import (
    ABSENT,
    CLUSTER_NAMES,
    POLICY,
    STRATEGY,
    FieldGroup,
    PlacementForm,
    at,
)
from placements.services.editor.validation import PlacementDraft
from placements.services.resources.queries import hub_objects, selectable_among

_ROOTS = 2
ROLLING_UPDATE: Keys = (*STRATEGY, "rollingUpdate")
_TYPE: Keys = (*STRATEGY, "type")


class OutdatedFormError(Exception):
    """The form was made for a manifest with other rows than there are now."""


def apply_form(draft: PlacementDraft, values: Mapping[str, str], *, shape: str) -> str:
    """Return the text with what was typed; a form sent back as it was shown changes nothing.

    Raise OutdatedFormError, UneditableYaml.
    """
    form = _form_of(draft)
    if shape != form.shape:
        raise OutdatedFormError
    data, changes, renames = draft.data, list[Change](), []
    for field in form.fields:
        change = field.change(values.get(field.name, field.value))
        if change is None or (
            isinstance(change, RemoveValue) and at(data, change.keys) is ABSENT
        ):
            continue
        if isinstance(change, RemoveValue):
            change = _drop(data, change.keys)
        if not isinstance(change, (SetValue, RemoveValue)):
            renames.append(change)
            continue
        data = changed(data, change)  # each change is as it is after those before it
        changes.append(change)
    for rename in renames:  # last, as places have the old keys
        if rename.to not in at(data, rename.keys[:-1]):
            data = changed(data, rename)
            changes.append(rename)
    return edit(draft.text, changes)


def without_budgets(before: PlacementDraft, after: PlacementDraft) -> tuple[str, str]:
    """Return the text without the rolling update where the type became External, and what was removed."""
    budgets = at(after.data, ROLLING_UPDATE)
    is_new = at(after.data, _TYPE) == StrategyType.EXTERNAL != at(before.data, _TYPE)
    if budgets is ABSENT or not is_new:
        return after.text, ""
    values = mapping_at(budgets).items()
    words = ", ".join(f"{key}: {value}" for key, value in values) or "no values"
    text = edit(after.text, [RemoveValue(ROLLING_UPDATE)])
    return text, f"Removed rollingUpdate ({words}): not allowed for type External."


def add_row(draft: PlacementDraft, name: str) -> str:
    """Return the text with a new row in the list of that name. Raise KeyError, UneditableYaml."""
    group = next(
        (
            field_group
            for field_group in _form_of(draft).all_groups
            if field_group.name == name and field_group.can_add
        ),
        None,
    )
    if group is None:
        raise KeyError(name)
    if group.is_single:
        return edit(draft.text, [SetValue(group.keys, group.new)])
    return _add_row(draft, group, group.new)


def _add_row(draft: PlacementDraft, group: FieldGroup, new: Any) -> str:
    rows = at(draft.data, group.keys)
    if rows == []:  # removed first, so that the new row is written as people write one
        return edit(
            draft.text, [_drop(draft.data, group.keys), SetValue((*group.keys, 0), new)]
        )
    place = len(rows) if isinstance(rows, list) else 0
    return edit(draft.text, [SetValue((*group.keys, place), new)])


def resources_meant(draft: PlacementDraft, typed: str) -> list[HubObject]:
    """Return the resources on the hub whose last words are typed, or else all that have them as a part.

    The words are those of "v1 Namespace web".
    """
    identities = {
        f" {hub_object.api_version} {hub_object.kind} {hub_object.name}".lower(): hub_object
        for hub_object in selectable_among(hub_objects(), draft.namespace)
    }
    exact = [
        hub_object
        for name, hub_object in identities.items()
        if name.endswith(f" {typed.lower()}")
    ]
    return exact or [
        hub_object for name, hub_object in identities.items() if typed.lower() in name
    ]


def pick_resource(draft: PlacementDraft, one: HubObject) -> str:
    """Return the text with a selector, in place of the first empty one. Raise UneditableYaml."""
    form = _form_of(draft)
    selector = {
        "group": one.group,
        "version": one.version,
        "kind": one.kind,
        "name": one.name,
    }
    replaced = next(
        (
            row.keys
            for row in form.resources.rows
            if not at(draft.data, (*row.keys, "kind"))
        ),
        None,
    )
    if replaced is None:
        return _add_row(draft, form.resources, selector)
    return edit(
        draft.text,
        [SetValue((*replaced, key), value) for key, value in selector.items()],
    )


def pick_cluster(draft: PlacementDraft, name: str) -> str:
    """Return the text with one more cluster name; one that is there already changes nothing."""
    names = at(_form_of(draft).data, CLUSTER_NAMES)
    if not name or (isinstance(names, list) and name in names):
        return draft.text
    return _add_row(draft, FieldGroup(CLUSTER_NAMES, "cluster", name), name)


def remove_row(draft: PlacementDraft, name: str) -> str:
    """Return the text without the row of that name. Raise KeyError, UneditableYaml."""
    rows = {row.name: row for group in _form_of(draft).all_groups for row in group.rows}
    keys = rows[name].keys
    if len(at(draft.data, keys[:-1])) == 1 and isinstance(keys[-1], int):
        return edit(draft.text, [_drop(draft.data, keys[:-1])])
    return edit(
        draft.text,
        [_drop(draft.data, keys) if isinstance(keys[-1], str) else RemoveValue(keys)],
    )


def remove_places(draft: PlacementDraft, paths: Sequence[str]) -> str:
    """Return the text without these places. Raise ValueError, UneditableYaml."""
    _form_of(draft)
    for path in paths:
        keys = split_path(path)
        if at(draft.data, keys) is not ABSENT:
            draft = PlacementDraft.parse(edit(draft.text, [_drop(draft.data, keys)]))
    return draft.text


def _form_of(draft: PlacementDraft) -> PlacementForm:
    if draft.form is None:
        raise UneditableYaml("it has no form")
    return draft.form


def _drop(data: Any, keys: Keys) -> RemoveValue:
    while len(keys) > _ROOTS and keys[:-1] != POLICY and keys[-2] != "preference":
        if len(at(data, keys[:-1])) > 1 or isinstance(keys[-2], int):
            break
        keys = keys[:-1]
    return RemoveValue(keys)
