"""Assertions of several placements are entries of the checks file of their hub."""

from datetime import UTC, datetime
from typing import Any

from django.db import migrations

from fleetui.apimachinery.yaml import dump_yaml


def write_files(apps: Any, schema_editor: Any) -> None:
    """Write the documents of each hub into its file; they stay for processes of the release before."""
    database = schema_editor.connection.alias
    documents = apps.get_model("placements", "AssertionDocument")._base_manager.using(database)
    files = apps.get_model("placements", "StoredChecksFile")._base_manager.using(database)
    entries: dict[int, list[dict[str, Any]]] = {}
    for row in documents.order_by("hub_id", "name"):
        entry = {"name": row.name, **row.document["spec"]}
        if entry.get("selector") is None and not entry.get("placements"):
            continue  # it was about no placement; such an entry is about all
        entries.setdefault(row.hub_id, []).append(entry)
    now = datetime.now(UTC)
    for hub, several in entries.items():
        text = dump_yaml({"assertions": several})
        files.get_or_create(hub_id=hub, defaults={"text": text, "revision": 1, "updated_at": now})


class Migration(migrations.Migration):
    dependencies = [("placements", "0018_checks_file")]

    operations = [
        # The release before reads the documents, which are still there.
        migrations.RunPython(write_files, migrations.RunPython.noop),
    ]
