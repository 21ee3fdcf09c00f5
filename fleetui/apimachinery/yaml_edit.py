"""Small edits of a YAML text that keep comments, order, quotes and blank lines.

Every result is parsed and compared with the expected data; an edit that would need a dump is refused.
"""

from collections.abc import Iterable
from copy import deepcopy
from dataclasses import dataclass, replace
from json import dumps
from typing import Any, TypeAlias

import yaml

from fleetui.apimachinery.errors import InvalidManifest, Keys, format_path
from fleetui.apimachinery.yaml import dump_yaml, load_documents

_STEP = 2
_FLOW_MARKS = frozenset(",[]{}#:&*!|>'\"%@`")


class UneditableYaml(ValueError):
    """The text is written in a way that an edit could not keep; it has to be changed manually."""


@dataclass(frozen=True, slots=True)
class SetValue:
    """Set the value at a path, and create what is missing around it; the index after the last one appends."""

    keys: Keys
    value: Any

    def change(self, inside: Any, key: Any) -> None:
        _put(inside, key, deepcopy(self.value))


@dataclass(frozen=True, slots=True)
class RemoveValue:
    keys: Keys

    def change(self, inside: Any, key: Any) -> None:
        del inside[key]


@dataclass(frozen=True, slots=True)
class RenameKey:
    keys: Keys
    to: str

    def change(self, inside: Any, key: Any) -> None:
        """Rename a key in its place. Raise KeyError if it is absent, or the new one is not."""
        if self.to in inside or key not in inside:
            raise KeyError(key)
        renamed = {key: self.to}
        entries = [(renamed.get(name, name), value) for name, value in inside.items()]
        inside.clear()
        inside.update(entries)


Change: TypeAlias = SetValue | RemoveValue | RenameKey


def edit(text: str, changes: Iterable[Change]) -> str:
    """Return the text of one document with these changes applied in order. Raise UneditableYaml."""
    for change in changes:
        wanted = changed(_data(text), change)

        try:
            root = yaml.compose(text, Loader=yaml.CSafeLoader)
        except yaml.YAMLError as error:
            raise UneditableYaml("the text uses an unusual YAML syntax") from error
        events: Iterable[Any] = yaml.parse(text, Loader=yaml.CSafeLoader)
        if root is None or any(isinstance(event, yaml.AliasEvent) for event in events):
            raise UneditableYaml("the text contains anchors and aliases (&, *)")
        done = _Editing(text, root).apply(change)

        if _data(done) != wanted:
            raise UneditableYaml(
                f"{format_path(change.keys)} cannot be edited in this text"
            )
        text = done
    return text


def changed(data: Any, change: Change) -> Any:
    """Return plain data with one change applied. Raise UneditableYaml for an impossible path."""
    whole = [deepcopy(data)]
    try:
        _change(whole, (0, *change.keys), change)
    except (KeyError, IndexError, TypeError) as error:
        raise UneditableYaml(f"{format_path(change.keys)} not found") from error
    return whole[0]


def _change(inside: Any, keys: Keys, change: Change) -> None:
    here, *rest = keys
    if not rest:
        change.change(inside, here)
        return
    entries = dict(enumerate(inside)) if isinstance(here, int) else inside
    if isinstance(change, SetValue) and entries.get(here) is None:
        _put(inside, here, [] if isinstance(rest[0], int) else {})
    _change(inside[here], tuple(rest), change)


def _put(inside: Any, key: str | int, value: Any) -> None:
    if isinstance(key, int) and key == len(inside):
        inside.append(value)
    else:
        inside[key] = value


def _data(text: str) -> Any:
    try:
        documents = load_documents(text)
    except InvalidManifest as invalid:
        raise UneditableYaml("the text cannot be parsed") from invalid
    if len(documents) != 1:
        raise UneditableYaml("the text contains more than one document")
    return documents[0].data


@dataclass(frozen=True, slots=True)
class _NodeSpot:
    node: Any
    key: Any = None
    inside: Any = None


class _Editing:
    def __init__(self, text: str, root: Any) -> None:
        self.text = text.removesuffix("\n") + "\n"
        self.root = root
        self.starts = [0]
        for line in self.text.splitlines(keepends=True):
            self.starts.append(self.starts[-1] + len(line))

    def apply(self, change: Change) -> str:
        spots = self._walk(change.keys)
        depth = len(spots) - 1
        flow = next(
            (place for place, spot in enumerate(spots) if _is_flow(spot.node)), None
        )
        if flow is not None and (
            flow < len(change.keys) or isinstance(change, SetValue)
        ):
            inner = replace(change, keys=change.keys[flow:])
            data = changed(self._data_at(change.keys[:flow]), inner)
            return self._span(*_ends(spots[flow].node), _flow(data))
        missing = change.keys[depth:]
        if isinstance(change, SetValue):
            if not missing:
                return self._replace(spots, change)
            value = change.value
            for key in reversed(missing[1:]):
                value = _around(value, key)
            return self._insert(spots[-1], value, missing[0])
        if missing:
            raise UneditableYaml(f"{format_path(change.keys)} not found")
        if isinstance(change, RenameKey):
            return self._span(*_ends(spots[-1].key), _inline(change.to))
        return self._remove(spots[-1])

    def _walk(self, keys: Keys) -> list[_NodeSpot]:
        """Return the nodes on the way to a path, as far as they exist."""
        spots = [_NodeSpot(self.root)]
        for key in keys:
            inside = spots[-1].node
            if isinstance(inside, yaml.MappingNode):
                entry = next(((k, v) for k, v in inside.value if k.value == key), None)
            elif (
                isinstance(inside, yaml.SequenceNode)
                and isinstance(key, int)
                and key < len(inside.value)
            ):
                entry = (None, inside.value[key])
            else:
                entry = None
            if entry is None:
                break
            spots.append(_NodeSpot(entry[1], entry[0], inside))
        return spots

    def _replace(self, spots: list[_NodeSpot], change: SetValue) -> str:
        spot = spots[-1]
        if _is_empty(spot.node):
            return self._fill(spot, change.value)
        if isinstance(spot.node, yaml.SequenceNode) and isinstance(change.value, list):
            return self._replace_items(spot.node, change)
        is_plain = isinstance(spot.node, yaml.ScalarNode) and spot.node.style not in (
            "|",
            ">",
        )
        if not is_plain or isinstance(change.value, dict):
            raise UneditableYaml(f"{format_path(change.keys)} cannot be overwritten")
        return self._span(*_ends(spot.node), _flow(change.value))

    def _replace_items(self, node: Any, change: SetValue) -> str:
        """Change the items of a list one by one, so that comments beside them stay."""
        if not change.value:
            return self._emptied(node, "[]")
        before = self._data_at(change.keys)
        changes: list[Change] = [
            SetValue((*change.keys, index), value)
            for index, value in enumerate(change.value)
            if [value] != before[index : index + 1]
        ]
        surplus = range(len(before) - 1, len(change.value) - 1, -1)
        changes += (RemoveValue((*change.keys, index)) for index in surplus)
        return edit(self.text, changes)

    def _data_at(self, keys: Keys) -> Any:
        data = _data(self.text)
        for key in keys:
            data = data[key]
        return data

    def _fill(self, spot: _NodeSpot, value: Any) -> str:
        """Write a value behind a key, or a dash, that has none."""
        if not isinstance(value, (dict, list)) or not value:
            return self._span(
                spot.node.start_mark.index,
                spot.node.start_mark.index,
                f" {_flow(value)}",
            )
        if spot.key is None:
            raise UneditableYaml("an empty item cannot be filled")
        return self._lines_after(
            spot.key.start_mark.line, _block(value, spot.key.start_mark.column + _STEP)
        )

    def _insert(self, spot: _NodeSpot, value: Any, key: str | int) -> str:
        """Add an entry or an item at the end of what it belongs to."""
        node = spot.node
        whole = _around(value, key)
        if _is_empty(node):
            return self._fill(spot, whole)
        if (
            isinstance(key, int) is not isinstance(node, yaml.SequenceNode)
            or not node.value
        ):
            raise UneditableYaml(f"{key} does not fit there")
        column = (
            node.start_mark.column
            if isinstance(key, int)
            else node.value[0][0].start_mark.column
        )
        return self._lines_after(_last_line(node), _block(whole, column))

    def _remove(self, spot: _NodeSpot) -> str:
        inside, last = spot.inside, _last_line(spot.node)
        if len(inside.value) == 1:
            return self._emptied(inside, "[]" if spot.key is None else "{}")
        if spot.key is None:
            dash = self.text.rfind("-", 0, spot.node.start_mark.index)
            line = self.text.count("\n", 0, dash)
            if self.text[self.starts[line] : dash].strip():
                raise UneditableYaml("the item shares its line with something else")
            return self._without_lines(line, last)
        line, column = spot.key.start_mark.line, spot.key.start_mark.column
        last = max(last, line)
        if not self.text[self.starts[line] : self.starts[line] + column].strip():
            return self._without_lines(line, last)
        following = inside.value[1][0]
        return self._span(spot.key.start_mark.index, following.start_mark.index, "")

    def _emptied(self, node: Any, nothing: str) -> str:
        return self._span(node.start_mark.index, _end_of(node), nothing)

    def _span(self, start: int, end: int, new: str) -> str:
        return self.text[:start] + new + self.text[end:]

    def _lines_after(self, line: int, new: str) -> str:
        return self._span(self.starts[line + 1], self.starts[line + 1], new)

    def _without_lines(self, first: int, last: int) -> str:
        return self._span(self.starts[first], self.starts[last + 1], "")


def _around(value: Any, key: str | int) -> Any:
    """Return the list or mapping that has this value alone."""
    return [value] if isinstance(key, int) else {key: value}


def _is_flow(node: Any) -> bool:
    return isinstance(node, yaml.CollectionNode) and bool(node.flow_style)


def _is_empty(node: Any) -> bool:
    return (
        isinstance(node, yaml.ScalarNode)
        and node.start_mark.index == node.end_mark.index
    )


def _ends(node: Any) -> tuple[int, int]:
    return node.start_mark.index, node.end_mark.index


def _end_of(node: Any) -> int:
    if isinstance(node, yaml.CollectionNode) and not _is_flow(node) and node.value:
        return max(map(_end_of, _last_nodes(node)))
    return int(node.end_mark.index)


def _last_nodes(node: Any) -> tuple[Any, ...]:
    """Return the last item of a list, or the last key of a mapping and its value."""
    last = node.value[-1]
    return last if isinstance(last, tuple) else (last,)


def _last_line(node: Any) -> int:
    """Return the last line of a node itself, without the comments and blank lines that follow it."""
    if _is_empty(node) or not isinstance(node, yaml.CollectionNode) or _is_flow(node):
        ends_before: bool = (
            node.end_mark.column == 0 and node.end_mark.line > node.start_mark.line
        )
        return int(node.end_mark.line) - ends_before
    return max(map(_last_line, _last_nodes(node)))


def _block(value: Any, column: int) -> str:
    return "".join(f"{' ' * column}{line}\n" for line in dump_yaml(value).splitlines())


def _inline(value: Any) -> str:
    return dump_yaml([value])[2:].rstrip("\n")


def _flow(value: Any) -> str:
    if isinstance(value, dict):
        return f"{{{', '.join(f'{_flow_word(key)}: {_item(inner)}' for key, inner in value.items())}}}"
    if isinstance(value, list):
        return f"[{', '.join(map(_item, value))}]"
    return _inline(value)


def _item(value: Any) -> str:
    return _flow(value) if isinstance(value, (dict, list)) else _flow_word(value)


def _flow_word(value: Any) -> str:
    if isinstance(value, str) and _FLOW_MARKS & set(value):
        return dumps(value, ensure_ascii=False)
    return _inline(value)
