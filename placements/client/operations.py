"""What the commands are made of: the operations of the REST API that are actions, and its nouns.

`operations.json` is written from the schema by `python -m tests.api.write_client`.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import quote

from fleetui.apimachinery.grouping import grouped

FILE = Path(__file__).with_name("operations.json")
_KEY = re.compile(r"\{(\w+)\}")
_COLUMNS = {
    "decision": ("id",),
    "group": ("group",),
    "kind": ("kind",),
    "name": ("name", "placement", "id"),
    "namespace": ("namespace",),
    "number": ("number", "id"),
}
"""The columns of a row in which a key of an address is: the first that there is."""
_MANIFESTS = frozenset(
    {
        "approvals",
        "budgets",
        "clusters",
        "overrides",
        "placements",
        "resources",
        "staged-runs",
        "staged-strategies",
    }
)
"""The nouns whose objects are manifests, which can be applied again."""
_EMPTY = {"group": "core", "namespace": "-"}
"""What an address has in place of an empty part."""
_ALIASES = {
    "crp": "placements",
    "rp": "placements",
    "mc": "clusters",
    "runs": "staged-runs",
    "strategies": "staged-strategies",
}


@dataclass(frozen=True, slots=True)
class Operation:
    """An operation as a command: its words, the address, the query and the fields of its body."""

    words: str
    message: str
    body: Mapping[str, Any]
    method: str
    path: str
    help: str
    query: Mapping[str, Any]
    fields: Mapping[str, Any]
    required: list[str]


@dataclass(frozen=True, slots=True)
class ListedNoun:
    """A noun of the API: `object` is the path of one of its objects, `parts` the lists below it."""

    name: str
    help: str
    object: str
    is_deleted: bool
    columns: list[str]
    query: Mapping[str, Any]
    parts: list[str]

    @property
    def verbs(self) -> list[str]:
        """Return the commands for this noun: what has no object is only listed."""
        if not self.object:
            return ["get"]
        found = ["get", "describe"]
        if self.is_deleted:
            found.append("delete")
        if self.name in _MANIFESTS:
            found.append("export")
        return found

    @property
    def singular(self) -> str:
        if self.name.endswith("ies"):
            return f"{self.name[:-3]}y"
        return self.name.removesuffix("s")

    @property
    def aliases(self) -> list[str]:
        return [
            self.singular,
            *(alias for alias in _ALIASES if _ALIASES[alias] == self.name),
        ]

    def name_of(self, row: Mapping[str, Any]) -> str:
        """Return the name by which a command names the object of a row of the list."""
        keys = _KEY.findall(self.object)
        if "namespace" not in keys and row.get("namespace"):
            return f"{row['namespace']}/{row['name']}"
        columns = [_COLUMNS[key] for key in keys or ["name"]]
        return "/".join(
            str(next((row[name] for name in names if name in row), ""))
            for names in columns
        )


@cache
def _document() -> Any:
    return json.loads(FILE.read_text(encoding="utf-8"))


@cache
def commands() -> dict[str, list[Operation]]:
    """Return the operations of each command by its words, such as `rollout pause`."""
    return grouped(
        (command["words"], Operation(**command)) for command in _document()["commands"]
    )


def bulk_actions() -> list[str]:
    found: list[str] = _document()["bulk"]
    return found


def loss_variants() -> list[str]:
    found: list[str] = _document()["variants"]
    return found


@cache
def nouns() -> dict[str, ListedNoun]:
    return {name: ListedNoun(name, **one) for name, one in _document()["nouns"].items()}


def path_to(template: str, name: str) -> str:
    """Return the address of the object with a name such as `web`, `shop/web` or `apps/Deployment/shop/web`.

    Raise ValueError for a name with too few parts.
    """
    keys = _KEY.findall(template)
    if len(keys) == 1:
        return _KEY.sub(quote(name.replace("/", ":"), safe=":"), template)
    parts = name.split("/")
    if len(parts) > len(keys):  # the first key may have slashes or be a full name
        rest = len(keys) - 1
        parts = [":".join(parts[:-rest]), *parts[-rest:]]
    if len(parts) != len(keys):
        raise ValueError("/".join(keys).upper())
    for key, part in zip(keys, parts, strict=True):
        template = template.replace(
            f"{{{key}}}", quote(part or _EMPTY.get(key, ""), safe=":"), 1
        )
    return template
