"""manage.py diff -f FILE: what `apply -f FILE` would change, as a unified diff."""

import sys
from datetime import UTC, datetime
from typing import Any

from fleetui.apimachinery.yaml import Document
from fleetui.remote import RemoteClient
from placements.explain.diff import unified_text
from placements.management.manifest_command import ManifestCommand
from placements.services.apply import UNCHANGED, preview_documents
from placements.services.results import CONFIRMATION

DIFFERENT = 1


class Command(ManifestCommand):
    """Compare manifests with the hub."""

    help = (
        "Show what applying manifests would change, and write nothing. "
        "Exit status: 0 no difference, 1 differences, above 1 an error."
    )

    def run_on(
        self, documents: list[Document], *, strict: bool = False, **_options: Any
    ) -> None:
        """Print the differences; values of secrets are hidden."""
        now = datetime.now(UTC)
        preview = preview_documents(
            documents, by=None, now=now, confirmed=True, strict=strict
        )
        for change in preview.changes:
            self.stdout.write(unified_text(change))
        if any(result.did != UNCHANGED for result in preview.results):
            sys.exit(DIFFERENT)

    def run_remotely(
        self,
        client: RemoteClient,
        manifests: bytes,
        *,
        strict: bool = False,
        **_options: Any,
    ) -> None:
        """Print what a console would change; it hides the values of secrets."""
        query = {"dryRun": "All", "confirm": CONFIRMATION} | (
            {"strict": "true"} if strict else {}
        )
        answer = client.request("POST", "apply", query=query, body=manifests)
        for change in answer["changes"]:
            self.stdout.write(change["diff"])
        if any(one["did"] != UNCHANGED for one in answer["items"]):
            sys.exit(DIFFERENT)
