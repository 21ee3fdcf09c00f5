"""Placements under the rules of Open Cluster Management are decided again when any label or score changes."""

from django.apps.registry import Apps
from django.db import migrations
from django.db.backends.base.schema import BaseDatabaseSchemaEditor


def read_all_names(apps: Apps, schema_editor: BaseDatabaseSchemaEditor) -> None:
    database = schema_editor.connection.alias
    placements = apps.get_model("placements", "Placement")._base_manager
    for row in placements.using(database).filter(semantics="ocm"):
        row.label_keys_read = sorted({*row.label_keys_read, "*"})
        row.property_names_read = sorted({*row.property_names_read, "*"})
        row.save(update_fields=["label_keys_read", "property_names_read"])


class Migration(migrations.Migration):
    dependencies = [("placements", "0027_decided_again")]

    operations = [
        # The release before reads `*` as a name that no cluster has.
        migrations.RunPython(read_all_names, migrations.RunPython.noop),
    ]
