"""manage.py assertions: check the assertions of placements now, and print them."""

import json
from datetime import UTC, datetime
from typing import Any

from django.core.management.base import CommandError, CommandParser, OutputWrapper

from clusters.queries import current_fleet
from fleetui.management.hub_command import HubCommand
from placements.explain.assertions import result_document
from placements.services.assertions import check_due, checks
from placements.services.impact.compare import compare
from placements.services.impact.sources import UnreadableSourceError, read_files
from placements.services.results import get_placement

BROKEN, UNKNOWN = 1, 3


class Command(HubCommand):
    """Check the assertions of placements now, and print them."""

    help = "Check the assertions of placements. Exit status: 1 one is broken, 3 one is unknown."

    def add_arguments(self, parser: CommandParser) -> None:
        add = parser.add_argument
        add("names", nargs="*", metavar="NAME", help="only these placements")
        add(
            "-f",
            "--filename",
            action="append",
            default=[],
            metavar="PATH",
            help="file or folder with placements instead of those of the hub (repeatable)",
        )
        add("-o", "--output", choices=["table", "json"], default="table")

    def handle(self, *, names: list[str], filename: list[str], output: str, **_options: Any) -> None:
        rows = _of_files(filename, names, self.stderr) if filename else _of_hub(names)
        if output == "json":
            items = [{"placement": name, "assertions": results} for name, results in rows]
            self.stdout.write(json.dumps({"items": items}, indent=2))
        for name, results in rows if output == "table" else ():
            for each in results:
                details = ", ".join(each["evidence"]) or each["reason"]
                line = f"{name}: {each['state']}: {each['name']}"
                self.stdout.write(f"{line} ({details})" if details else line)
        states = {each["state"] for _, results in rows for each in results}
        for state, status in (("broken", BROKEN), ("unknown", UNKNOWN)):
            if state in states:
                raise CommandError(f"an assertion is {state}", returncode=status)


_Rows = list[tuple[str, list[dict[str, Any]]]]


def _of_hub(names: list[str]) -> _Rows:
    for name in names:
        get_placement(name)
    while check_due(now=datetime.now(UTC)):
        pass
    rows = ((one.placement.full_name, one.results) for one in checks())
    return [(name, results) for name, results in rows if not names or name in names]


def _of_files(files: list[str], names: list[str], stderr: OutputWrapper) -> _Rows:
    """Decide the placements in files from nothing, on the clusters there, or else on those of the hub."""
    side = read_files(files)
    for one in side.notes:
        stderr.write(f"{one.file}:{one.line}: {one.message}")
    impact = compare(side, side, fleet=None if side.members else current_fleet().fleet)
    known = {row.name for row in impact.rows}
    if missing := [one for one in names if one not in known]:
        raise UnreadableSourceError(f"no placement in the files is named {missing[0]!r}")
    rows = []
    for row in impact.rows:
        items = impact.assertions_of(row.where, of_base=False)
        if items and (not names or row.name in names):
            results = impact.assertion_results(row, items, of_base=False)
            rows.append((row.name, [result_document(one) for one in results]))
    return rows
