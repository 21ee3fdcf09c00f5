from typing import Any

from django.db import migrations


def delete(apps: Any, schema_editor: Any) -> None:
    apps.get_model("placements", "DryRun").objects.all().delete()


class Migration(migrations.Migration):
    """Delete the dry runs: no worker runs those that wait, and they may have Secrets."""

    dependencies = [("placements", "0013_stored_status")]

    operations = [migrations.RunPython(delete, migrations.RunPython.noop)]
