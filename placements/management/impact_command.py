"""The comparison of two revisions, as `simulate --diff` runs it."""

import json
import os
from contextlib import suppress
from pathlib import Path, PurePath
from typing import Any

from django.core.management.base import OutputWrapper

from clusters.fleet import Fleet
from fleetui import __version__
from fleetui.apimachinery.errors import InvalidManifest
from fleetui.apimachinery.links import preview_link
from fleetui.remote import (
    SERVER,
    TOKEN,
    RemoteClient,
    RemoteError,
    Server,
    ServerRefused,
    check_url,
    server_at,
)
from placements.engine.checks.file import NAME, ChecksFile, parse_checks_file
from placements.explain.impact import impact_document, impact_markdown, impact_sarif
from placements.manifests.binding import PlacedBinding
from placements.services.impact.compare import compare
from placements.services.impact.gates import check_gates, exit_status
from placements.services.impact.kustomize import Render
from placements.services.impact.sources import (
    BlobReader,
    DiffSide,
    UnreadableSourceError,
    read_checks_file,
    read_side,
)
from placements.services.simulate.request import (
    BadInputError,
    read_all_bindings,
    read_fleet,
)

APPROVED = "FLEETUI_IMPACT_APPROVED"
"""Set by the action where the pull request has the label that approves its impact."""
_NOT_DETERMINED = 3
_SNAPSHOT = "fleet-snapshot"


def run_diff(options: dict[str, Any], stderr: OutputWrapper) -> tuple[str, int]:
    """Compare two revisions; return the text and the exit status. Raise BadInputError.

    What was not read goes to `stderr` as well as into the text.
    """
    base, head = options["diff"]
    try:
        sides = _read_sides(options)
        fleet, bindings = _fleet_and_bindings(options, sides)
        file = _parse_file(NAME, parse_checks_file, read_checks_file(head))
        base_file = ChecksFile()
        with suppress(InvalidManifest):  # the change may be its correction
            base_file = parse_checks_file(read_checks_file(base))
        impact = compare(
            *sides, fleet=fleet, bindings=bindings, renames=dict(options["renames"])
        )
        results = check_gates(impact, file, base_file)
        links = {}
        if (console := options["console"]) is not None:
            check_url(Server(console, token="", allow_http=True), "--console")
            links = {
                row.name: preview_link(console, row.head.document)
                for row in impact.changed
                if row.head
            }
    except (UnreadableSourceError, RemoteError, ServerRefused, OSError) as error:
        raise BadInputError.of_text(str(error)) from error
    status = exit_status(results)
    if (
        options["require_render"]
        and status == 0
        and any(source_note.is_incomplete for source_note in impact.notes)
    ):
        status = _NOT_DETERMINED
    note = ""
    if status == 1 and os.environ.get(APPROVED) == "true":
        note = (
            "The broken gates were approved by the label `placement-impact-approved`."
        )
        status = 0
    for source_note in impact.notes:
        stderr.write(f"{source_note.file}:{source_note.line}: {source_note.message}")
    match options["output"]:
        case "json":
            document = impact_document(impact, results)
            return json.dumps(document, ensure_ascii=False, indent=2) + "\n", status
        case "sarif":
            return impact_sarif(impact, results, version=__version__), status
        case _:
            return impact_markdown(impact, results, note=note, links=links), status


def _read_sides(options: dict[str, Any]) -> list[DiffSide]:
    """Return both sides. Raise UnreadableSourceError, also for a path or a values file that none has."""
    reader, render = BlobReader(), Render(options["render"] or Render.AUTO)
    values = options["values"] or ()
    sides = [
        read_side(one, options["path"] or (), reader, render=render, values=values)
        for one in options["diff"]
    ]
    files = [PurePath(name) for side in sides for name in side.files]
    for path in options["path"] or ():
        if not any(file.is_relative_to(path) for file in files):
            raise UnreadableSourceError(
                f"--path {path}: no file there in BASE and HEAD"
            )
    for name in values:
        if not any(name in side.values for side in sides):
            raise UnreadableSourceError(
                f"--values {name}: no such file in BASE and HEAD"
            )
    return sides


def _fleet_and_bindings(
    options: dict[str, Any], sides: list[DiffSide]
) -> tuple[Fleet | None, dict[str, tuple[PlacedBinding, ...]] | None]:
    """Return the clusters of both sides, None for those of each, and the bindings before, None for none.

    A snapshot of a console has both.
    """
    names = {
        option: options[option]
        for option in ("fleet", "bindings")
        if options[option] is not None
    }
    # Clusters in the repository are what the change is about; the variable may be set for other commands.
    server = os.environ.get(SERVER)
    if server and "fleet" not in names and not all(side.members for side in sides):
        names["fleet"] = server
    contents = {name: _content(option, name) for option, name in names.items()}
    fleet = bindings = None
    if "fleet" in names:
        content = contents[names["fleet"]]
        fleet = _parse_file(names["fleet"], read_fleet, content).fleet
        bindings = _parse_file(
            names["fleet"], read_all_bindings, content, is_snapshot=True
        )
    elif not all(side.members for side in sides):
        raise UnreadableSourceError(
            "no MemberCluster found in both revisions: name a file or a console with --fleet, or set "
            f"{SERVER} and {TOKEN}"
        )
    if "bindings" in names:
        bindings = _parse_file(
            names["bindings"], read_all_bindings, contents[names["bindings"]]
        )
    return fleet, bindings


def _content(option: str, name: str) -> bytes:
    if not name.startswith(("https://", "http://")):
        return Path(name).read_bytes()
    server = server_at(
        name.removesuffix(f"/api/v1/{_SNAPSHOT}").rstrip("/"), option=f"--{option}"
    )
    return json.dumps(RemoteClient(server).request("GET", _SNAPSHOT)).encode()


def _parse_file(name: str, parse: Any, content: bytes | None, **options: Any) -> Any:
    try:
        return parse(content, **options)
    except InvalidManifest as invalid:
        raise BadInputError([(name, error) for error in invalid.errors]) from invalid
