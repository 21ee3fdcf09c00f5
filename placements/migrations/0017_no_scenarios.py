from typing import Any

from django.db import migrations


def delete(apps: Any, schema_editor: Any) -> None:
    apps.get_model("placements", "Scenario").objects.all().delete()


class Migration(migrations.Migration):
    """Delete the saved what-if analyses: a loss is evaluated within the request."""

    dependencies = [("placements", "0016_no_rebalance_plans")]

    operations = [migrations.RunPython(delete, migrations.RunPython.noop)]
