"""manage.py diff -f FILE: what `apply -f FILE` would change, as a unified diff."""

import sys
from datetime import UTC, datetime
from difflib import unified_diff
from typing import Any

from fleetui.apimachinery.yaml import Document, dump_yaml
from placements.management.manifest_command import ManifestCommand
from placements.services.apply import preview_documents

DIFFERENT = 1


class Command(ManifestCommand):
    """Compare manifests with the hub."""

    help = (
        "Show what applying manifests would change, and write nothing. "
        "Exit status: 0 no difference, 1 differences, above 1 an error."
    )

    def run_on(self, documents: list[Document], *, strict: bool = False, **_options: Any) -> None:
        """Print the differences; values of secrets are hidden."""
        now = datetime.now(UTC)
        preview = preview_documents(documents, by=None, now=now, confirmed=True, strict=strict)
        for change in preview.changes:
            before, after = (
                dump_yaml(one).splitlines() if one else [] for one in (change.before, change.after)
            )
            name = f"{change.kind} {change.name}"
            lines = list(unified_diff(before, after, f"{name} (hub)", f"{name} (applied)", lineterm=""))
            # Of a cluster the status may differ alone.
            for line in lines or [f"{name} {change.verb}"]:
                self.stdout.write(line)
        if any(result.did != "unchanged" for result in preview.results):
            sys.exit(DIFFERENT)
