"""`get`, `describe`, `delete` and `export`: the lists and the objects of the nouns."""

from argparse import Namespace
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import parse_qs, urlsplit

from fleetui.apimachinery.metadata import without_hub_metadata
from fleetui.errors import BAD_INPUT
from fleetui.remote import RemoteError
from placements.client.operations import ListedNoun, nouns, path_to
from placements.client.output import Console, table

_PAGE = 500
_DESCRIBED = 10


def run(console: Console, options: Namespace) -> int:
    """Run the command of a noun. Raise RemoteError."""
    noun: ListedNoun = options.of
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


def values_of(options: Namespace, where: str, names: Iterable[str]) -> dict[str, Any]:
    """Return the fields that are given of those that a query or a body may have."""
    values = {name: getattr(options, f"{where}_{name}", None) for name in names}
    return {name: value for name, value in values.items() if value is not None}


def object_path(noun: ListedNoun, name: str) -> str:
    """Return the address of an object. Raise RemoteError for a name that has too few parts."""
    try:
        return path_to(noun.object, name)
    except ValueError as error:
        raise RemoteError(
            f"{noun.singular} {name!r}: write {error}", returncode=BAD_INPUT
        ) from error


def _get(console: Console, noun: ListedNoun, options: Namespace) -> None:
    form = options.output
    names = options.names
    if names and noun.object and form in ("json", "yaml"):
        objects = [
            console.client.request("GET", object_path(noun, name)) for name in names
        ]
        if len(objects) == 1:
            console.document(objects[0], form)
        else:
            console.rows(objects, noun, form)
        return
    rows = list(
        list_rows(console.client, noun.name, values_of(options, "query", noun.query))
    )
    if names:
        by_name = {noun.name_of(row): row for row in rows}
        rows = []
        for name in names:
            if name in by_name:
                rows.append(by_name[name])
            elif noun.object:
                # The console says what is wrong with the name, or shortens it, as that of a decision.
                console.client.request("GET", object_path(noun, name))
    console.rows(rows, noun, form)


def _describe(console: Console, noun: ListedNoun, name: str) -> None:
    path = object_path(noun, name)
    console.document(console.client.request("GET", path), "yaml")
    for part in noun.parts:
        _print_part(
            console,
            part,
            list(list_rows(console.client, f"{path}/{part}", {}, most=_DESCRIBED)),
        )
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
        for key in next(iter(rows), ())
        if any(row[key] not in (None, "") for row in rows)
        if not any(isinstance(row[key], dict | list) for row in rows)
    ]
    if columns:
        cells = [
            ["" if row[key] is None else str(row[key]) for key in columns]
            for row in rows
        ]
        lines = table([column.upper() for column in columns], cells)
        console.line("\n".join([f"\n{title}:", *(f"  {line}" for line in lines)]))


def delete(
    console: Console, noun: ListedNoun, name: str, *, form: str = "table"
) -> None:
    """Delete an object. Raise RemoteError."""
    console.client.request("DELETE", object_path(noun, name))
    done = {"name": f"{noun.singular}/{name}"}
    console.line(done.get(form, f"{noun.singular} {name} deleted"))


def _export(console: Console, noun: ListedNoun, options: Namespace) -> None:
    names = options.names or [
        noun.name_of(row) for row in list_rows(console.client, noun.name, {})
    ]
    manifests = [manifest_at(console.client, noun, name) for name in names]
    if options.no_status:
        manifests = [stored(manifest) for manifest in manifests]
    if options.output == "json":
        console.document(
            {"apiVersion": "v1", "kind": "List", "items": manifests}, "json"
        )
        return
    for number, manifest in enumerate(manifests):
        console.out.write("---\n" if number else "")
        console.document(manifest, "yaml")


def manifest_at(client: Any, noun: ListedNoun, name: str) -> dict[str, Any]:
    manifest: dict[str, Any] = client.request("GET", object_path(noun, name))
    return manifest


def stored(manifest: Mapping[str, Any]) -> dict[str, Any]:
    return {
        key: value
        for key, value in without_hub_metadata(manifest).items()
        if key != "status"
    }
