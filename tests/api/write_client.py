"""Writes what `fleetui` knows of the API: `python -m tests.api.write_client`, when its schema has changed."""

import json
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import django

from placements.client.operations import FILE

_SCALARS = {"string", "integer", "number", "boolean"}
_PATH = re.compile(r"/api/v1/(?P<noun>[a-z/-]+)")
_OBJECTS = {"/api/v1/budgets": "/api/v1/placements/{name}/budget"}
"""Where the manifest of an object is, if not below its list."""
_KEPT = ("type", "enum", "description")


def client_document(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return the operations that are commands, and the nouns, which have a list and objects."""
    known = Components(schema["components"]["schemas"])
    paths: Mapping[str, Any] = schema["paths"]
    bulk = known.resolved(known.of["BulkChangeInput"]["properties"]["action"])
    variants = known.resolved(known.of["WhatIfInput"]["properties"]["variant"])
    commands = [
        command
        for path, methods in paths.items()
        for method, operation in methods.items()
        for command in known.commands_of(path, method, operation)
    ]
    nouns = {
        match["noun"]: known.noun_of(path, paths)
        for path, methods in paths.items()
        if (match := _PATH.fullmatch(path))
        and "get" in methods
        and known.columns_of(methods["get"])
    }
    ordered = sorted(commands, key=lambda one: str(one["words"]))
    return {
        "bulk": bulk["enum"],
        "commands": ordered,
        "nouns": nouns,
        "variants": variants["enum"],
    }


@dataclass(frozen=True)
class Components:
    """The schemas of an OpenAPI document, to which its operations refer."""

    of: Mapping[str, Any]

    def resolved(self, one: Mapping[str, Any]) -> Mapping[str, Any]:
        for each in (one, *one.get("allOf", ())):
            if "$ref" in each:
                found: Mapping[str, Any] = self.of[each["$ref"].rpartition("/")[2]]
                return found
        return one

    def field(self, one: Mapping[str, Any]) -> dict[str, Any]:
        whole = {**self.resolved(one), **one}
        known = {key: whole[key] for key in _KEPT if key in whole}
        if "items" in whole:
            known["items"] = self.field(whole["items"])
        return known

    def query_of(self, operation: Mapping[str, Any]) -> dict[str, Any]:
        return {
            parameter["name"]: self.field(
                {**parameter["schema"], "description": parameter.get("description", "")}
            )
            for parameter in operation.get("parameters", ())
            if parameter["in"] == "query"
            and parameter["name"] not in ("format", "after")
        }

    def columns_of(self, operation: Mapping[str, Any]) -> list[str]:
        content = operation["responses"]["200"]["content"]["application/json"]
        page = self.resolved(content["schema"]).get("properties", {})
        row = self.resolved(page.get("items", {}).get("items", {}))
        return [
            name
            for name, one in row.get("properties", {}).items()
            if self.resolved(one).get("type") in _SCALARS
        ]

    def commands_of(
        self, path: str, method: str, operation: Mapping[str, Any]
    ) -> Iterator[dict[str, Any]]:
        """Yield the commands that send an operation."""
        content = operation.get("requestBody", {}).get("content", {})
        body = self.resolved(content.get("application/json", {}).get("schema", {}))
        for command in operation.get("x-fleetui-commands", ()):
            fields = {
                name: self.field(one)
                for name, one in body.get("properties", {}).items()
                if name not in command["body"]
            }
            yield {
                **command,
                "method": method.upper(),
                "path": path.removeprefix("/api/v1/"),
                "help": command.get("help", operation["summary"]),
                "query": self.query_of(operation),
                "fields": fields,
                "required": [one for one in body.get("required", ()) if one in fields],
            }

    def noun_of(self, path: str, paths: Mapping[str, Any]) -> dict[str, Any]:
        """Return the noun of a list: its objects, and the lists below them."""
        listing = paths[path]["get"]
        below = (one for one in paths if re.fullmatch(rf"{path}(/{{\w+}})+", one))
        found = next(below, "")
        one = _OBJECTS.get(path) or found
        operations = paths.get(one, {})
        parts = {
            other.removeprefix(f"{found}/"): each["get"]
            for other, each in paths.items()
            if found and other.startswith(f"{found}/") and "get" in each
        }
        return {
            "help": listing["summary"],
            "object": one.removeprefix("/api/v1/") if "get" in operations else "",
            "is_deleted": "delete" in operations,
            "columns": self.columns_of(listing),
            "query": self.query_of(listing),
            "parts": [
                name
                for name, operation in parts.items()
                if re.fullmatch(r"[a-z-]+", name) and self.columns_of(operation)
            ],
        }


def text_of(schema: Mapping[str, Any]) -> str:
    return (
        json.dumps(
            client_document(schema), indent=1, sort_keys=True, ensure_ascii=False
        )
        + "\n"
    )


def main() -> None:
    os.environ["DJANGO_SETTINGS_MODULE"] = "fleetui.settings"
    django.setup()
    from tests.api.schema import generated_schema  # noqa: PLC0415 -- needs the apps

    FILE.write_text(text_of(generated_schema()))


if __name__ == "__main__":
    main()
