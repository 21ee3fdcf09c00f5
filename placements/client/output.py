"""What the commands print: tables, JSON, YAML, names."""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, TextIO

from placements.client.operations import ListedNoun

_COLUMNS = {
    "approvals": ["placement", "stage", "side", "askedAt", "approvedAt", "approvedBy"],
    "clusters": ["state", "verdict", "placements", "cordoned", "joinedAt"],
    "placements": ["type", "placed", "fulfilled", "pending", "createdAt"],
    "decisions": [
        "placement",
        "kind",
        "fulfilled",
        "wanted",
        "picked",
        "kept",
        "because",
        "createdAt",
    ],
    "removals": ["cluster", "reason", "since"],
    "resources": ["size", "revision", "updatedAt"],
    "overrides": ["placement", "revision", "updatedAt"],
    "rollouts": [
        "state",
        "placementIsDeleted",
        "because",
        "startedAt",
        "endedAt",
        "endedBecause",
    ],
    "staged-runs": [
        "placement",
        "placementIsDeleted",
        "status",
        "snapshot",
        "startedAt",
        "endedAt",
    ],
    "events": ["at", "type", "by", "what", "kind", "name"],
    "evictions": ["placement", "cluster", "outcome", "why", "at"],
}
"""The columns of a table beside the name; of other nouns it has the first five, of `wide` all."""
_FIRST = 5


@dataclass(frozen=True, slots=True)
class Console:
    client: Any
    out: TextIO
    err: TextIO

    def line(self, text: str) -> None:
        self.out.write(f"{text}\n")

    def document(self, content: Any, form: str) -> None:
        if form == "json":
            self.line(json.dumps(content, ensure_ascii=False, indent=2))
            return
        # Its checks of YAML that is read take longer to import than a command.
        from fleetui.apimachinery.yaml import dump_yaml  # noqa: PLC0415

        self.out.write(dump_yaml(content))

    def rows(
        self, rows: Sequence[Mapping[str, Any]], noun: ListedNoun, form: str
    ) -> None:
        if form == "name":
            for row in rows:
                self.line(f"{noun.singular}/{noun.name_of(row)}")
        elif form in ("json", "yaml"):
            self.document({"apiVersion": "v1", "kind": "List", "items": rows}, form)
        elif rows:
            columns = [
                column for column in noun.columns if column not in ("name", "namespace")
            ]
            if form != "wide":
                columns = _COLUMNS.get(noun.name, columns[:_FIRST])
            cells = [
                [noun.name_of(row), *(_cell(row.get(column)) for column in columns)]
                for row in rows
            ]
            for line in table(["NAME", *map(heading_of, columns)], cells):
                self.line(line)
        else:
            self.err.write(f"No {noun.name} found\n")


def table(heading: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    cells = [heading, *rows]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    return [
        "  ".join(
            cell.ljust(width) for cell, width in zip(row, widths, strict=True)
        ).rstrip()
        for row in cells
    ]


def heading_of(column: str) -> str:
    """Return the heading of a column: "CREATED" for `createdAt`."""
    return re.sub("(?=[A-Z])", " ", column).removesuffix(" At").upper()


def _cell(value: Any) -> str:
    if value is None or value == "":
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    text = str(value)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return text
    return f"{moment.astimezone(UTC):%Y-%m-%d %H:%M}" if moment.tzinfo else text
