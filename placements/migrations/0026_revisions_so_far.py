"""The latest resources, and what rolls them out, are of the current revision."""

from django.apps.registry import Apps
from django.db import migrations
from django.db.backends.base.schema import BaseDatabaseSchemaEditor
from django.db.models import Case, F, OuterRef, Subquery, When

from fleetui.hub_scope import LOCAL_HUB


def number_the_latest(apps: Apps, schema_editor: BaseDatabaseSchemaEditor) -> None:
    database = schema_editor.connection.alias
    models = ("Placement", "ResourceSnapshot", "Rollout", "StagedRun")
    placements, snapshots, *runs = (
        apps.get_model("placements", name)._base_manager.using(database)
        for name in models
    )
    rules = Case(When(hub=LOCAL_HUB, then=F("hub_changes")), default=0)
    own = placements.filter(pk=OuterRef("placement")).annotate(
        own=F("spec_generation") + rules
    )
    revision = F("number") + Subquery(own.values("own")[:1])
    snapshots.filter(is_latest=True).update(revision_number=revision)
    used = snapshots.filter(pk=OuterRef("resource_snapshot"))
    for rows in runs:
        rows.filter(ended_at=None).update(
            revision_number=Subquery(used.values("revision_number")[:1])
        )


class Migration(migrations.Migration):
    dependencies = [("placements", "0025_revisions_of_runs")]

    operations = [
        # The release before does not read it.
        migrations.RunPython(number_the_latest, migrations.RunPython.noop),
    ]
