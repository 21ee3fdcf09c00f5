"""`metadata.generation` was the revision so far, and must not fall."""

from django.apps.registry import Apps
from django.db import migrations
from django.db.backends.base.schema import BaseDatabaseSchemaEditor
from django.db.models import F

_MODELS = ("MemberCluster",)


def keep_generations(apps: Apps, schema_editor: BaseDatabaseSchemaEditor) -> None:
    database = schema_editor.connection.alias
    for name in _MODELS:
        rows = apps.get_model("clusters", name)._base_manager.using(database)
        rows.update(spec_generation=F("revision"))


class Migration(migrations.Migration):
    dependencies = [("clusters", "0006_spec_generation")]

    operations = [
        # The release before does not read it.
        migrations.RunPython(keep_generations, migrations.RunPython.noop),
    ]
