from typing import Any

from django.db import migrations


def delete(apps: Any, schema_editor: Any) -> None:
    """Delete the rows of decisions that a hub had not made; the newest that it made is the latest again."""
    rows = apps.get_model("placements", "HubDecision")._base_manager.using(
        schema_editor.connection.alias
    )
    pending = rows.filter(agreement="pending")
    placements = list(pending.filter(placement__isnull=False).values_list("placement", flat=True))
    pending.delete()
    for placement in placements:
        newest = rows.filter(placement=placement).order_by("-pk").first()
        if newest is not None:
            rows.filter(pk=newest.pk).update(is_latest=True)


class Migration(migrations.Migration):
    dependencies = [("placements", "0021_agreement_on_demand")]

    operations = [
        # The release before writes them again for hubs that have not decided.
        migrations.RunPython(delete, migrations.RunPython.noop),
    ]
