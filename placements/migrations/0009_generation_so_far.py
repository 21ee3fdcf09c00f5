"""`metadata.generation` was the revision so far, and must not fall."""

from django.apps.registry import Apps
from django.db import migrations
from django.db.backends.base.schema import BaseDatabaseSchemaEditor
from django.db.models import F

from fleetui.hub_scope import LOCAL_HUB

_MODELS = (
    "AssertionDocument",
    "DisruptionBudget",
    "Override",
    "Placement",
    "Resource",
    "StagedStrategy",
)


def keep_generations(apps: Apps, schema_editor: BaseDatabaseSchemaEditor) -> None:
    database = schema_editor.connection.alias
    for name in _MODELS:
        rows = apps.get_model("placements", name)._base_manager.using(database)
        rows.update(spec_generation=F("revision"))
    runs = apps.get_model("placements", "StagedRun")._base_manager.using(database)
    runs.filter(hub=LOCAL_HUB, generation=0).update(generation=F("revision"))


class Migration(migrations.Migration):
    dependencies = [("placements", "0008_spec_generation")]

    operations = [
        # The release before does not read it.
        migrations.RunPython(keep_generations, migrations.RunPython.noop),
    ]
