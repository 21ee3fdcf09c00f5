from typing import Any

from django.db import migrations


def delete(apps: Any, schema_editor: Any) -> None:
    apps.get_model("placements", "BulkChange").objects.all().delete()


class Migration(migrations.Migration):
    """Delete the results of changes of many clusters: no worker continues those that wait."""

    dependencies = [("placements", "0014_dry_runs_without_rows")]

    operations = [migrations.RunPython(delete, migrations.RunPython.noop)]
