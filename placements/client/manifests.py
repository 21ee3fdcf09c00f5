"""`apply` and `diff`: manifests of files, folders and kustomizations."""

import sys
from argparse import Namespace
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fleetui.apimachinery.words import counted
from fleetui.errors import BAD_INPUT
from fleetui.remote import RemoteError, RemoteErrors, field_error
from placements.client.arguments import CONFIRMATION
from placements.client.objects import delete, list_rows, manifest_at, values_of
from placements.client.operations import ListedNoun, nouns
from placements.client.output import Console
from placements.engine.limits import ExceededLimit, balance_sentence

DIFFERENT = 1
_SUFFIXES = frozenset({".yaml", ".yml", ".json"})
_MOST_NAMES = 50
_LIMIT = (
    "topologyKey",
    "maxSkew",
    "fullestDomain",
    "fullestCount",
    "emptiestDomain",
    "emptiestCount",
    "skew",
)
"""The fields of an exceeded limit that a console sends."""
_PRUNED = (
    "placements",
    "staged-strategies",
    "overrides",
    "budgets",
    "resources",
)
"""The nouns that `--prune` deletes, in this order: a resource outlives what places it."""


@dataclass(frozen=True, slots=True)
class ManifestFile:
    name: str
    text: str


def run(console: Console, options: Namespace) -> int:
    """Apply or compare the manifests of all files. Raise RemoteError."""
    files = _read(options)
    if not files:
        raise RemoteError("-f or -k is missing", returncode=BAD_INPUT)
    texts = [file.text for file in files]
    if not "".join(texts).strip():
        names = ", ".join(file.name for file in files)
        raise RemoteError(f"{names}: Empty manifest", returncode=BAD_INPUT)
    manifests = "---\n".join(texts).encode()
    query = values_of(options, "query", ["strict", "confirm", "dryRun"])
    try:
        if options.do == "diff":
            return _diff(console, manifests, query)
        if options.prune and not options.selector:
            raise RemoteError(
                "--prune needs -l: the labels of what it may delete",
                returncode=BAD_INPUT,
            )
        _apply(console, manifests, query, options)
    except RemoteErrors as invalid:
        lines = [error_line(files, error) for error in invalid.errors]
        raise RemoteError("\n".join(lines), returncode=BAD_INPUT) from invalid
    return 0


def _read(options: Namespace) -> list[ManifestFile]:
    """Return the files with a line break at their end. Raise RemoteError."""
    files = []
    for name in options.filename:
        try:
            if name == "-":
                files.append(_manifest_file(name, sys.stdin.buffer.read()))
                continue
            path = Path(name)
            if not path.is_dir():
                files.append(_manifest_file(name, path.read_bytes()))
                continue
            there = path.rglob("*") if options.recursive else path.iterdir()
            found = sorted(one for one in there if one.suffix in _SUFFIXES)
            files += [_manifest_file(str(one), one.read_bytes()) for one in found]
        except OSError as error:
            raise RemoteError(
                f"{name}: cannot read file: {error.strerror}", returncode=BAD_INPUT
            ) from error
    if folder := options.kustomize:
        # It runs a program, which no other command does.
        from placements.services.impact.kustomize import (  # noqa: PLC0415
            NotRenderedError,
            build,
            command_for,
        )

        try:
            files.append(
                _manifest_file(
                    folder, build(Path.cwd(), command_for(Path.cwd(), folder))
                )
            )
        except NotRenderedError as error:
            raise RemoteError(f"{folder}: {error}", returncode=BAD_INPUT) from error
    return files


def _manifest_file(name: str, content: bytes) -> ManifestFile:
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise RemoteError(f"{name}: is not UTF-8 text", returncode=BAD_INPUT) from error
    return ManifestFile(name, text if text.endswith("\n") else f"{text}\n")


def error_line(files: Sequence[ManifestFile], error: Mapping[str, Any]) -> str:
    """Return an error of a console with the file, and the line there: the console knows one text."""
    line, name = error.get("line"), ", ".join(file.name for file in files)
    if isinstance(line, int):
        for file in files:
            length = file.text.count("\n")
            if line <= length or file is files[-1]:
                name = file.name
                break
            line -= length + 1
    return f"{name}: {field_error({**error, 'line': line})}"


def _diff(console: Console, manifests: bytes, query: dict[str, Any]) -> int:
    query |= {"dryRun": "All", "confirm": CONFIRMATION}
    answer = console.client.request("POST", "apply", query=query, body=manifests)
    for change in answer["changes"]:
        console.line(change["diff"].removesuffix("\n"))
    return (
        DIFFERENT if any(item["did"] != "unchanged" for item in answer["items"]) else 0
    )


def _apply(
    console: Console, manifests: bytes, query: dict[str, Any], options: Namespace
) -> None:
    try:
        answer = console.client.request("POST", "apply", query=query, body=manifests)
    except RemoteError as error:
        applied = error.problem.get("applied", ())
        _print_results(console, applied, options)
        if applied:
            console.err.write(f"{error.args[0]}\n")
        raise
    if options.output in ("json", "yaml"):
        console.document(answer, options.output)
    else:
        _print_results(console, answer["items"], options)
    if options.output == "table":
        for decision in answer.get("decisions", ()):
            console.line(_decision_line(decision))
        if more := answer.get("notEvaluated"):
            console.line(f"{more} more placements not evaluated")
    if options.prune:
        _prune(
            console, {(item["kind"], item["name"]) for item in answer["items"]}, options
        )


def _decision_line(one: Mapping[str, Any]) -> str:
    changes = [
        f"{verb} {', '.join(names[:_MOST_NAMES])}{', …' * (len(names) > _MOST_NAMES)}"
        for verb, names in (("selects", one["joins"]), ("deselects", one["leaves"]))
        if names
    ]
    result = "fulfilled" if one["isFulfilled"] else "not fulfilled"
    words = (
        f"{'; '.join(changes) or 'no change'}; {counted(one['placedAfter'], 'cluster')}"
    )
    exceeded = [
        ExceededLimit(*map(limit.get, _LIMIT)) for limit in one["exceededLimits"]
    ]
    line = (
        f"decision {one['placement']}: {words}, {result} {balance_sentence(exceeded)}"
    )
    return line.rstrip()


def _print_results(
    console: Console, results: Sequence[Mapping[str, Any]], options: Namespace
) -> None:
    suffix = " (dry run)" if options.query_dryRun else ""
    for result in results:
        if options.output == "name":
            console.line(f"{result['kind']}/{result['name']}")
            continue
        detail = f": {result['message']}" if result["message"] else ""
        console.line(
            f"{result['kind']} {result['name']} {result['did']}{suffix}{detail}"
        )
        for warning in result["warnings"]:
            console.err.write(f"  warning: {warning['path']}: {warning['message']}\n")


def _prune(console: Console, applied: set[tuple[str, str]], options: Namespace) -> None:
    """Delete what has all labels and was not applied. Raise RemoteError."""
    pairs = (part.partition("=") for part in options.selector.split(","))
    wanted = {key: value for key, _, value in pairs}
    for noun in map(nouns().__getitem__, _PRUNED):
        for row in list(list_rows(console.client, noun.name, {})):
            name = noun.name_of(row)
            labels = row.get("labels")
            if labels is None:
                manifest = manifest_at(console.client, noun, name)
                labels = manifest["metadata"].get("labels") or {}
            if _result_of(noun, row) in applied or not wanted.items() <= labels.items():
                continue
            if options.query_dryRun:
                console.line(f"{noun.singular} {name} deleted (dry run)")
            else:
                delete(console, noun, name, form=options.output)


def _result_of(noun: ListedNoun, row: Mapping[str, Any]) -> tuple[str, str]:
    """Return the kind and the name that the result of an apply has for a row of a list."""
    if noun.name != "overrides":
        return noun.singular, noun.name_of(row)
    name = "/".join(filter(None, [row["namespace"], row["name"]]))
    return ("override" if row["namespace"] else "cluster-override"), name
