"""`get`, `describe`, `delete` and `export`: the lists and the objects of the nouns."""

from argparse import Namespace
from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import parse_qs, urlsplit

from fleetui.apimachinery.metadata import without_hub_metadata
from fleetui.errors import BAD_INPUT
from fleetui.remote import RemoteError
from placements.client.operations import Noun, nouns, path_to
from placements.client.output import Console, table

_PAGE = 500
_DESCRIBED = 10


def run(console: Console, options: Namespace) -> int:
    """Run the command of a noun. Raise RemoteError."""
    noun: Noun = options.of
    match options.do:
        case "get":
            _get(console, noun, options)
        case "describe":
            for name in options.names:
                _describe(console, noun, name)
        case "delete":
            for name in options.names:
                delete(console, noun, name)
        case _:
            _export(console, noun, options)
    return 0


def list_rows(
    client: Any, path: str, query: Mapping[str, Any], *, most: int | None = None
) -> Iterator[dict[str, Any]]:
    """Yield the rows of a list from all its pages, or `most` from the first. Raise RemoteError."""
    query = dict(query)
    if path not in nouns() or "limit" in nouns()[path].query:
        query["limit"] = most or _PAGE
    while True:
        page = client.request("GET", path, query=query)
        yield from page["items"]
        after = parse_qs(urlsplit(page.get("next") or "").query).get("after")
        if not after or most:
            return
        query = {**query, "after": after[0]}


def query_of(options: Namespace) -> dict[str, Any]:
    """Return the parameters of a query that are given."""
    return {
        key.removeprefix("query_"): value
        for key, value in vars(options).items()
        if key.startswith("query_") and value is not None
    }


def object_path(noun: Noun, name: str) -> str:
    """Return the address of an object. Raise RemoteError for a name that has too few parts."""
    try:
        return path_to(noun.object, name)
    except ValueError as error:
        message = f"{noun.singular} {name!r}: write {error}"
        raise RemoteError(message, returncode=BAD_INPUT) from error


def _get(console: Console, noun: Noun, options: Namespace) -> None:
    query, form, names = query_of(options), options.output, options.names
    if names and noun.object and form in ("json", "yaml"):
        objects = [
            console.client.request("GET", object_path(noun, name)) for name in names
        ]
        content = objects[0]
        if len(objects) > 1:
            content = {"apiVersion": "v1", "kind": "List", "items": objects}
        console.document(content, form)
        return
    rows = list(list_rows(console.client, noun.name, _supported(noun, query)))
    if names:
        by_name = {noun.name_of(row): row for row in rows}
        for name in names:
            if name not in by_name and noun.object:
                # The console says what is wrong with the name, or shortens it, as that of a decision.
                console.client.request("GET", object_path(noun, name))
        rows = [by_name[name] for name in names if name in by_name]
    console.rows(rows, noun, form)


def _supported(noun: Noun, query: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in query.items() if key in noun.query}


def _describe(console: Console, noun: Noun, name: str) -> None:
    path = object_path(noun, name)
    console.document(console.client.request("GET", path), "yaml")
    for part in noun.parts:
        rows = list(list_rows(console.client, f"{path}/{part}", {}, most=_DESCRIBED))
        _print_part(console, part, rows)
    kind = "cluster" if noun.name == "clusters" else noun.singular
    events = list_rows(
        console.client, "events", {"kind": kind, "name": name}, most=_DESCRIBED
    )
    _print_part(console, "events", list(events))


def _print_part(
    console: Console, title: str, rows: Sequence[Mapping[str, Any]]
) -> None:
    """Print the scalar columns of some rows that have a value in one of them."""
    columns = [
        key
        for key in (rows[0] if rows else ())
        if any(row[key] not in (None, "") for row in rows)
        and not any(isinstance(row[key], dict | list) for row in rows)
    ]
    if columns:
        cells = [
            ["" if row[key] is None else str(row[key]) for key in columns]
            for row in rows
        ]
        lines = table([one.upper() for one in columns], cells)
        console.line("\n".join([f"\n{title}:", *(f"  {line}" for line in lines)]))


def delete(console: Console, noun: Noun, name: str, *, form: str = "table") -> None:
    """Delete an object. Raise RemoteError."""
    console.client.request("DELETE", object_path(noun, name))
    console.line(
        f"{noun.singular}/{name}"
        if form == "name"
        else f"{noun.singular} {name} deleted"
    )


def _export(console: Console, noun: Noun, options: Namespace) -> None:
    names = options.names or [
        noun.name_of(row) for row in list_rows(console.client, noun.name, {})
    ]
    manifests = [manifest_at(console.client, noun, name) for name in names]
    if options.no_status:
        manifests = [stored(one) for one in manifests]
    if options.output == "json":
        console.document(
            {"apiVersion": "v1", "kind": "List", "items": manifests}, "json"
        )
        return
    for number, manifest in enumerate(manifests):
        console.out.write("---\n" if number else "")
        console.document(manifest, "yaml")


def manifest_at(client: Any, noun: Noun, name: str) -> dict[str, Any]:
    manifest: dict[str, Any] = client.request("GET", object_path(noun, name))
    return manifest


def stored(manifest: Mapping[str, Any]) -> dict[str, Any]:
    """Return a manifest without what the hub sets."""
    content = without_hub_metadata(manifest)
    return {key: value for key, value in content.items() if key != "status"}
