"""The comparison of two revisions, as `simulate --diff` runs it."""

import os
from pathlib import Path
from typing import Any

from fleetui import __version__
from fleetui.apimachinery.errors import InvalidManifest
from placements.explain.impact import impact_json, impact_junit, impact_markdown, impact_sarif
from placements.services.impact.compare import compare
from placements.services.impact.gates import CONFIG, GateConfig, check_gates, exit_status, parse_gates
from placements.services.impact.sources import BlobReader, UnreadableSourceError, git, read_side
from placements.services.simulate.inputs import read_bindings, read_fleet
from placements.services.simulate.request import BadInputError

APPROVED = "FLEETUI_IMPACT_APPROVED"
"""Set by the action where the pull request has the label that approves its impact."""


def run_diff(options: dict[str, Any]) -> tuple[str, int]:
    """Compare two revisions; return the text and the exit status. Raise BadInputError."""
    base, head = options["diff"]
    reader = BlobReader()
    try:
        sides = [read_side(one, options["path"] or (), reader) for one in (base, head)]
        fleet = bindings = None
        if options["fleet"] is not None:
            fleet = read_fleet(Path(options["fleet"]).read_bytes()).fleet
        elif not all(side.members for side in sides):
            raise UnreadableSourceError("no MemberCluster found in both revisions: name a file with --fleet")
        if options["bindings"] is not None:
            content = Path(options["bindings"]).read_bytes()
            names = [name for _, name in sides[0].placements]
            bindings = {name: read_bindings(content, placement=name).bindings for name in names}
        impact = compare(*sides, fleet=fleet, bindings=bindings, renames=dict(options["renames"]))
        results = check_gates(impact, _config(head))
    except (UnreadableSourceError, InvalidManifest, OSError) as error:
        faults = error.faults if isinstance(error, InvalidManifest) else (error,)
        raise BadInputError.of_text("\n".join(map(str, faults))) from error
    status = exit_status(results)
    note = ""
    if status == 1 and os.environ.get(APPROVED) == "true":
        note, status = "The broken gates were approved by the label `placement-impact-approved`.", 0
    match options["output"]:
        case "json":
            return impact_json(impact, results), status
        case "sarif":
            return impact_sarif(impact, results, version=__version__), status
        case "junit":
            return impact_junit(results), status
        case _:
            return impact_markdown(impact, results, note=note), status


def _config(head: str) -> GateConfig:
    """Return the gates of the head: the file at the root of the folder or of the revision."""
    if Path(head).is_dir():
        path = Path(head) / CONFIG
        return parse_gates(path.read_bytes()) if path.is_file() else GateConfig()
    if CONFIG not in git("ls-tree", "--full-tree", "--name-only", f"{head}^{{tree}}").decode().splitlines():
        return GateConfig()
    return parse_gates(git("show", f"{head}:{CONFIG}"))
