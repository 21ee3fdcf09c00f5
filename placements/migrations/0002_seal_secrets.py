from typing import Any

from django.db import migrations

from fleetui.sealed_rows import hide_again, seal_texts, unseal_texts

TEXTS = (("placements_dryrun", "manifests"), ("placements_draft", "text"))


def seal(apps: Any, schema_editor: Any) -> None:
    hide_again(apps)
    for table, column in TEXTS:
        seal_texts(table, column)


def unseal(apps: Any, schema_editor: Any) -> None:
    """Leave the manifests as they are: the release before reads them."""
    for table, column in TEXTS:
        unseal_texts(table, column)


class Migration(migrations.Migration):
    """Hide unknown fields of Secrets in rows, and encrypt drafts and dry runs that wait."""

    dependencies = [("placements", "0001_initial"), ("fleetui", "0001_initial")]

    operations = [migrations.RunPython(seal, unseal)]
