"""What was typed into the form, or done with its buttons, as changes of the text."""

from collections.abc import Iterator, Mapping
from typing import Any

from placements.drafting.fields import ABSENT, at
from placements.drafting.form import POLICY, Form, Group, form_of
from placements.manifests import load_documents
from placements.scheduling.faults import Keys, split_path
from placements.yaml_edits import Change, Drop, Put, changed, edit

_ROOTS = 2


class OutdatedFormError(Exception):
    """The form was made for a document with other rows than there are now."""


def apply_form(text: str, posted: Mapping[str, str], *, shape: str) -> str:
    """Give the text with what was typed; a form as it was shown changes nothing.

    Raises OutdatedFormError, CannotEditError.
    """
    data = load_documents(text)[0].data
    form = form_of(data)
    if shape != form.shape:
        raise OutdatedFormError
    return edit(text, _typed(data, form, posted))


def _typed(data: Any, form: Form, posted: Mapping[str, str]) -> Iterator[Change]:
    """Give the changes that fields make, each as it is after those before it."""
    renames = []
    for field in form.fields:
        change = field.change(posted[field.name]) if field.name in posted else None
        if change is None:
            continue
        if isinstance(change, Drop):
            change = pruned(data, change.keys)
        if not isinstance(change, (Put, Drop)):
            renames.append(change)
            continue
        data = changed(data, change)
        yield change
    for rename in renames:  # last, as places have the old keys
        if rename.to not in at(data, rename.keys[:-1]):
            data = changed(data, rename)
            yield rename


def pruned(data: Any, keys: Keys) -> Drop:
    """Take away a place with all around it that would be left empty, but for the policy and rows."""
    while len(keys) > _ROOTS and keys[:-1] != POLICY and keys[-2] != "preference":
        if len(at(data, keys[:-1])) > 1 or isinstance(keys[-2], int):
            break
        keys = keys[:-1]
    return Drop(keys)


def add_row(text: str, name: str) -> str:
    """Give the text with a new row in the list of that name. Raises KeyError, CannotEditError."""
    data = load_documents(text)[0].data
    group = _group(form_of(data), name)
    there = at(data, group.keys)
    if group.is_single:
        return edit(text, [Put(group.keys, group.new)])
    if there == []:  # gone first, so that the new row is written as people write one
        return edit(text, [pruned(data, group.keys), Put((*group.keys, 0), group.new)])
    place = len(there) if isinstance(there, list) else 0
    return edit(text, [Put((*group.keys, place), group.new)])


def _group(form: Form, name: str) -> Group:
    found = next((one for one in form.all_groups if one.name == name and one.can_add), None)
    if found is None:
        raise KeyError(name)
    return found


def remove_row(text: str, name: str) -> str:
    """Give the text without the row of that name. Raises KeyError, CannotEditError."""
    data = load_documents(text)[0].data
    rows = {row.name: row for group in form_of(data).all_groups for row in group.rows}
    keys = rows[name].keys
    if len(at(data, keys[:-1])) == 1 and isinstance(keys[-1], int):
        return edit(text, [pruned(data, keys[:-1])])
    return edit(text, [pruned(data, keys) if isinstance(keys[-1], str) else Drop(keys)])


def tidy(text: str, names: list[str]) -> str:
    """Give the text without these places. Raises ValueError, CannotEditError."""
    for name in names:
        data, keys = load_documents(text)[0].data, split_path(name)
        if at(data, keys) is not ABSENT:
            text = edit(text, [pruned(data, keys)])
    return text
