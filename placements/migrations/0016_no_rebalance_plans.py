from typing import Any

from django.db import migrations


def delete(apps: Any, schema_editor: Any) -> None:
    apps.get_model("placements", "RebalancePlan").objects.all().delete()


class Migration(migrations.Migration):
    """Delete the rebalance plans: nothing continues them. The rollouts that they started are finished."""

    dependencies = [("placements", "0015_bulk_changes_at_once")]

    operations = [migrations.RunPython(delete, migrations.RunPython.noop)]
