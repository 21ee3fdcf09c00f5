"""Keep the order of the keys of the other documents too; what `jsonb` has sorted already stays sorted."""

from django.db import migrations

import fleetui.written


class Migration(migrations.Migration):
    """Overrides, budgets, evictions, staged updates, and the content of resource snapshots."""

    dependencies = [
        ("placements", "0010_documents_as_written"),
    ]

    operations = [
        migrations.AlterField(
            model_name="disruptionbudget",
            name="document",
            field=fleetui.written.WrittenField(),
        ),
        migrations.AlterField(
            model_name="eviction",
            name="document",
            field=fleetui.written.WrittenField(null=True),
        ),
        migrations.AlterField(
            model_name="override",
            name="document",
            field=fleetui.written.WrittenField(),
        ),
        migrations.AlterField(
            model_name="overridesnapshot",
            name="document",
            field=fleetui.written.WrittenField(),
        ),
        migrations.AlterField(
            model_name="resourcesnapshotpart",
            name="manifests",
            field=fleetui.written.WrittenField(),
        ),
        migrations.AlterField(
            model_name="stagedrun",
            name="document",
            field=fleetui.written.WrittenField(),
        ),
        migrations.AlterField(
            model_name="stagedstrategy",
            name="document",
            field=fleetui.written.WrittenField(),
        ),
    ]
