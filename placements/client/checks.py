"""`checks`: the findings about the hub, or about files; `checks_file`: what is asserted of its placements."""

import json
from argparse import Namespace
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from typing import Any

from clusters.kubeconfig_files import read_file
from fleetui import __version__
from fleetui.remote import RemoteError
from placements.client.output import Console
from placements.engine.checks.file import NAME
from placements.engine.checks.findings import Severity
from placements.explain.checks import document_lines, documents_sarif

HAS_FINDINGS = 1
_ORDER = list(map(str, Severity))


@dataclass(frozen=True, slots=True)
class Findings:
    """Findings as REST has them; `notes` are about files. `sarif` returns them for a version of FleetUI."""

    items: list[dict[str, Any]]
    muted: int
    not_checked: list[str]
    sarif: Callable[[str], str]
    notes: list[dict[str, Any]] | None = None

    def at_least(self, severity: str) -> int:
        failing = _ORDER[: _ORDER.index(severity) + 1]
        return sum(item["severity"] in failing for item in self.items)

    def document(self) -> dict[str, Any]:
        document = {
            "items": self.items,
            "muted": self.muted,
            "notChecked": self.not_checked,
        }
        notes = {} if self.notes is None else {"notes": self.notes}
        return document | notes

    def lines(self) -> list[str]:
        lines = document_lines(self.items) or ["No findings."]
        lines += [f"{self.muted} muted."] * bool(self.muted)
        not_checked = ", ".join(self.not_checked)
        return [*lines, *[f"Not checked: {not_checked}."] * bool(not_checked)]


def run(console: Console, options: Namespace) -> int:
    """Print the findings; status 1 if one is as severe as `--fail-on` says. Raise RemoteError, FleetError."""
    if options.do == "checks_file":
        checks_file(console, options.filename)
        return 0
    if options.files:
        files: Any = import_module("placements.client.file_checks")
        found: Findings = files.examine_files(options.files)
    else:
        answer = console.client.request("GET", "checks")
        items = answer["items"]
        found = Findings(
            items,
            answer["muted"],
            answer["notChecked"],
            partial(documents_sarif, items),
        )
    for one in found.notes or ():
        console.err.write(f"{one['file']}:{one['line']}: {one['message']}\n")
    found.items.sort(key=lambda one: _ORDER.index(one["severity"]))
    match options.output:
        case "sarif":
            console.out.write(found.sarif(__version__))
        case "json":
            console.document(found.document(), "json")
        case _:
            console.line("\n".join(found.lines()))
    if options.fail_on and (severe := found.at_least(options.fail_on)):
        raise RemoteError(
            f"--fail-on {options.fail_on}: {severe} found", returncode=HAS_FINDINGS
        )
    return 0


def checks_file(console: Console, path: str | None) -> None:
    if path is None:
        console.out.write(console.client.request("GET", "checks-file")["text"])
        return
    saved = console.client.request(
        "PUT",
        "checks-file",
        body=json.dumps({"text": read_file(path).decode(errors="replace")}).encode(),
        content_type="application/json",
    )
    console.line(f"{NAME} saved, revision {saved['revision']}")
